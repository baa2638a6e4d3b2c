"""What bringing code to hosts takes: `python -m benchmarks.sync`, from the repository's root.

5,000 files of 10 kB go to 1 and to 8 workers of this machine, each with a store of its own, beside
as many clients of rsync at once, which speak to a daemon over loopback, without encryption: the
first time, unchanged, and with one file changed. All of it in turn, in one sitting; every process
shares the cores of this machine. Without rsync its rows are left out. Needs the extra `sync`.

CPU time is that of all processes together, of the client and of all hosts, while one of the two
ways is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from monarch._proc_stat import USER_TICKS, stat_of
from monarch.actor import HostMesh, attach_to_workers
from monarch.trust import make_secret

_PORT = 28730
_AFTER = 0.5  # seconds in which hosts end what they do when the client has its answer
_PARENT = 1  # in what `stat_of` has

CASES = ("first copy", "unchanged", "one file changed")

Taken = tuple[float, float]
"""Seconds that passed; seconds of CPU time."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=int, default=5000)
    parser.add_argument("--size", type=int, default=10_000, help="bytes of each")
    parser.add_argument("--hosts", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print(
        f"{options.files} files of {options.size} bytes, {options.rounds} rounds, seconds: median"
        " (min), CPU time\n"
    )
    print(f"{'':8}{'':8}" + "".join(f"{case:>26}" for case in CASES))
    with tempfile.TemporaryDirectory() as folder:
        project = _make(Path(folder, "project"), options.files, options.size)
        os.environ["XDG_CACHE_HOME"] = f"{folder}/cache"
        for count in options.hosts:
            stores = [Path(folder, f"store{count}.{index}") for index in range(count)]
            ways = {"monarch": _monarch, **({"rsync": _rsync} if shutil.which("rsync") else {})}
            taken: dict[str, dict[str, list[Taken]]] = {
                way: {case: [] for case in CASES} for way in ways
            }
            with _workers(stores, folder) as hosts, _daemon(stores, folder):
                for _ in range(options.rounds):
                    for way, function in ways.items():
                        for place in (*stores, Path(folder, "cache")):
                            shutil.rmtree(place, ignore_errors=True)
                        for case in ("first copy", *["unchanged"] * 3, *["one file changed"] * 5):
                            if case == "one file changed":
                                (project / "part0" / "file0.py").write_bytes(
                                    os.urandom(options.size)
                                )
                            # called at once
                            taken[way][case].append(_time(lambda: function(project, stores, hosts)))  # noqa: B023
            for way, cases in taken.items():
                texts = [_said(times) for times in cases.values()]
                print(
                    f"{way:8}{count:>3} host{'s' * (count > 1):2}"
                    + "".join(f"{text:>26}" for text in texts),
                    flush=True,
                )


def _monarch(project: Path, stores: list[Path], hosts: HostMesh) -> None:
    asyncio.run(hosts.sync_workspace(project))


def _rsync(project: Path, stores: list[Path], hosts: HostMesh) -> None:
    urls = [f"rsync://127.0.0.1:{_PORT}/{store.name}/" for store in stores]
    for store in stores:
        store.mkdir(exist_ok=True)
    running = [subprocess.Popen(["rsync", "-a", "--delete", f"{project}/", url]) for url in urls]
    assert [process.wait() for process in running] == [0] * len(stores)


def _time(function: Callable[[], None]) -> Taken:
    used, began = _cpu_time(), time.perf_counter()
    function()
    passed = time.perf_counter() - began
    time.sleep(_AFTER)
    return passed, _cpu_time() - used


def _said(times: list[Taken]) -> str:
    passed, used = zip(*times, strict=True)
    # the kernel counts in ticks of 10 ms: a mean says more of them than a median
    return f"{statistics.median(passed):.3f} ({min(passed):.3f}), {statistics.mean(used):.3f}"


def _cpu_time() -> float:
    """Seconds of this process and of all below it, those that have ended included."""
    ticks: dict[int, int] = {}
    below: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        if stat := stat_of(int(name)):
            # with those of children that it has waited for
            ticks[int(name)] = sum(map(int, stat[USER_TICKS : USER_TICKS + 4]))
            below.setdefault(int(stat[_PARENT]), []).append(int(name))
    found = [os.getpid()]
    for pid in found:
        found += below.get(pid, [])
    return sum(ticks.get(pid, 0) for pid in found) / os.sysconf("SC_CLK_TCK")


def _make(project: Path, files: int, size: int) -> Path:
    random.seed(0)
    for index in range(files):
        path = project / f"part{index // 100}" / f"file{index}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(random.randbytes(size))
    return project


@contextmanager
def _daemon(stores: list[Path], folder: str) -> Iterator[None]:
    """An rsync that takes what is for each of the stores."""
    if not shutil.which("rsync"):
        yield
        return
    config = Path(folder, "rsyncd.conf")
    modules = "".join(f"[{store.name}]\npath = {store}\n" for store in stores)
    config.write_text(
        f"use chroot = no\nread only = no\nuid = {os.getuid()}\ngid = {os.getgid()}\n{modules}"
    )
    daemon = subprocess.Popen(
        [
            "rsync",
            "--daemon",
            "--no-detach",
            "--address=127.0.0.1",
            f"--port={_PORT}",
            f"--config={config}",
        ]
    )
    try:
        while True:
            try:
                socket.create_connection(("127.0.0.1", _PORT)).close()
                break
            except ConnectionRefusedError:
                time.sleep(0.05)
        yield
    finally:
        daemon.terminate()
        daemon.wait()


@contextmanager
def _workers(stores: list[Path], folder: str) -> Iterator[HostMesh]:
    os.environ["MONARCH_SECRET"] = make_secret()
    addresses = [f"ipc://{folder}/w{len(stores)}.{index}" for index in range(len(stores))]
    workers = [
        subprocess.Popen(
            [sys.executable, "-m", "monarch.tools", "worker", "--listen", address],
            env={**os.environ, "MONARCH_SYNC_FOLDER": str(store)},
            stderr=subprocess.DEVNULL,
        )
        for address, store in zip(addresses, stores, strict=True)
    ]
    try:
        hosts = attach_to_workers(workers=addresses)
        hosts.initialized.get()
        yield hosts
        hosts.shutdown().get(timeout=60)
    finally:
        for worker in workers:
            worker.terminate()
            worker.wait()


if __name__ == "__main__":
    main()
