"""What files cost that are read through a mount: `python -m benchmarks.mounts`, from the repository's root.

A file is read from its start to its end, locally and through `gather_mount`, and torch is imported from its folder and through
`remotemount` of that folder, with a new mount each time (first), and once more (again). Both sides of a mount are processes of this
machine, so it says what the way costs, and nothing of a network. The file lies in the page cache. Needs FUSE and torch.
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
from pathlib import Path

from monarch.actor import this_host
from monarch.gather_mount import gather_mount
from monarch.remotemount import remotemount

_CHUNK = 1 << 20
_IMPORT = "import sys, time; sys.path.insert(0, sys.argv[1]); t = time.perf_counter(); import torch; print(time.perf_counter() - t)"

Times = dict[str, list[float]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=1 << 30, help="bytes of the file")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for title, times in (
            (f"read {options.size} bytes", _reading(Path(folder), options.size, options.rounds)),
            ("import torch", _importing(Path(folder), options.rounds)),
        ):
            print(f"{title}, {options.rounds} rounds, seconds: median (min)")
            for way, seconds in times.items():
                print(f"    {way:32}{statistics.median(seconds):8.2f} ({min(seconds):.2f})", flush=True)


def _reading(folder: Path, size: int, rounds: int) -> Times:
    (folder / "run").mkdir()
    file = folder / "run" / "file"
    with file.open("wb") as to:
        for _ in range(size // _CHUNK):
            to.write(os.urandom(_CHUNK))
    times: Times = {"local": [], "mount, first": [], "mount, its first 64 KiB": []}
    for _ in range(rounds):
        times["local"].append(_read(file))
        with gather_mount(this_host(), file.parent, folder / "seen"):
            began = time.perf_counter()
            with (folder / "seen" / "file").open("rb", buffering=0) as seen:
                seen.read(1 << 16)
            times["mount, its first 64 KiB"].append(time.perf_counter() - began)
        with gather_mount(this_host(), file.parent, folder / "seen"):
            times["mount, first"].append(_read(folder / "seen" / "file"))
    file.unlink()
    return times


def _read(path: Path) -> float:
    began = time.perf_counter()
    with path.open("rb", buffering=0) as file:
        buffer = bytearray(_CHUNK)
        while file.readinto(buffer):
            pass
    return time.perf_counter() - began


def _importing(folder: Path, rounds: int) -> Times:
    spec = importlib.util.find_spec("torch")
    assert spec is not None and spec.origin is not None
    packages = Path(spec.origin).parent.parent
    times: Times = {"local": [], "mount, first": [], "mount, again": []}
    for _ in range(rounds):
        times["local"].append(_import(packages))
        with remotemount(this_host(), packages, folder / "packages"):
            times["mount, first"].append(_import(folder / "packages"))
            times["mount, again"].append(_import(folder / "packages"))
    return times


def _import(packages: Path) -> float:
    command = [sys.executable, "-I", "-c", _IMPORT, str(packages)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


if __name__ == "__main__":
    main()
