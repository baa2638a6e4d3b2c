"""What files cost that are read through a mount: `python -m benchmarks.mounts`, from the
repository's root.

A file is read from its start to its end, locally and through `gather_mount`, and torch is imported
from its folder and through `remotemount` of that folder, with a new mount each time (first), and
once more (again). Both sides of a mount are processes of this machine, so it says what the way
costs, and nothing of a network. The file lies in the page cache. CPU time is that of the reader and
of both sides, with what the kernel does for them. Needs FUSE and torch.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.dashboard import below
from monarch._proc_stat import USER_TICKS, stat_of
from monarch.actor import this_host
from monarch.gather_mount import gather_mount
from monarch.remotemount import remotemount

_CHUNK = 1 << 20
_IMPORT = "import sys; sys.path.insert(0, sys.argv[1]); import torch"

Times = defaultdict[str, list[tuple[float, float]]]
"""By way of reading: seconds that passed, and of CPU time."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", type=int, default=1 << 30, help="bytes of the file")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for title, times in (
            (f"read {options.size} bytes", _reading(Path(folder), options.size, options.rounds)),
            ("import torch", _importing(Path(folder), options.rounds)),
        ):
            print(f"{title}, {options.rounds} rounds, seconds: median (min)")
            for way, taken in times.items():
                columns = [
                    f"{statistics.median(each):.2f} ({min(each):.2f})"
                    for each in zip(*taken, strict=True)
                ]
                print(f"    {way:26}passed {columns[0]:16}CPU time {columns[1]}", flush=True)


def _reading(folder: Path, size: int, rounds: int) -> Times:
    (folder / "run").mkdir()
    file = folder / "run" / "file"
    with file.open("wb") as to:
        for _ in range(size // _CHUNK):
            to.write(os.urandom(_CHUNK))
    times: Times = defaultdict(list)
    for _ in range(rounds):
        with _measured(times["local"]):
            _read(file)
        with gather_mount(this_host(), file.parent, folder / "seen"):
            with (
                _measured(times["mount, its first 64 KiB"]),
                (folder / "seen" / "file").open("rb", buffering=0) as seen,
            ):
                seen.read(1 << 16)
        with (
            gather_mount(this_host(), file.parent, folder / "seen"),
            _measured(times["mount, first"]),
        ):
            _read(folder / "seen" / "file")
    file.unlink()
    return times


@contextmanager
def _measured(taken: list[tuple[float, float]]) -> Iterator[None]:
    began, used = time.perf_counter(), _used()
    yield
    taken.append((time.perf_counter() - began, _used() - used))


def _used() -> float:
    """Seconds of CPU time of this process, of all below it, and of those that they have waited
    for.
    """
    ticks = [
        int(each)
        for pid in below(os.getpid())
        for each in stat_of(pid)[USER_TICKS : USER_TICKS + 4]
    ]
    return sum(ticks) / os.sysconf("SC_CLK_TCK")


def _read(path: Path) -> None:
    with path.open("rb", buffering=0) as file:
        buffer = bytearray(_CHUNK)
        while file.readinto(buffer):
            pass


def _importing(folder: Path, rounds: int) -> Times:
    spec = importlib.util.find_spec("torch")
    assert spec is not None and spec.origin is not None
    packages = Path(spec.origin).parent.parent
    times: Times = defaultdict(list)
    for _ in range(rounds):
        _import(packages, times["local"])
        with remotemount(this_host(), packages, folder / "packages"):
            _import(folder / "packages", times["mount, first"])
            _import(folder / "packages", times["mount, again"])
    return times


def _import(packages: Path, taken: list[tuple[float, float]]) -> None:
    with _measured(taken):
        subprocess.run([sys.executable, "-I", "-c", _IMPORT, str(packages)], check=True)


if __name__ == "__main__":
    main()
