"""How fast each path of one-sided transfers is: `python -m benchmarks.rdma_paths`, from the
repository's root.

Beside the paths stand what limits them: a plain copy, one Unix and one TCP stream between two
processes, and nixl used by hand, if that is installed. They take turns, so that a busy hour of the
machine is shared by all of them. "Hosts" are workers on this machine: the bytes go through both of
their agents, over TCP encrypted.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from benchmarks import machine, report
from benchmarks.workloads import _nixl
from benchmarks.workloads._memory import copier
from benchmarks.workloads._rdma import SMALL, Owner, User
from monarch.actor import ProcMesh, attach_to_workers, this_host
from monarch.config import configured
from monarch.rdma import RDMABuffer

MIB = 64
ROUNDS = 5
PATIENCE = 60.0  # seconds for workers to come up
_WORKER = (
    "import sys; from monarch.actor import run_worker_loop_forever;"
    " run_worker_loop_forever(address=sys.argv[1])"
)

Measure = Callable[[int], float]
"""Seconds of one transfer of so many bytes."""


@contextmanager
def stream(family: socket.AddressFamily) -> Iterator[Measure]:
    """A process at the other end of one stream, which sends as many bytes as it is asked for."""
    mine, theirs = _pair(family)
    child = os.fork()
    if child == 0:
        mine.close()
        _serve(theirs)
        os._exit(0)
    theirs.close()
    into = memoryview(bytearray(MIB << 20))

    def read(size: int) -> float:
        start = time.perf_counter()
        mine.sendall(size.to_bytes(8, "little"))
        got = 0
        while got < size:
            got += mine.recv_into(into[got:size])
        return time.perf_counter() - start

    yield read
    mine.close()
    os.waitpid(child, 0)


def _pair(family: socket.AddressFamily) -> tuple[socket.socket, socket.socket]:
    if family == socket.AF_UNIX:
        return socket.socketpair()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        mine = socket.create_connection(listening.getsockname())
        theirs, _ = listening.accept()
    for end in (mine, theirs):
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return mine, theirs


def _serve(link: socket.socket) -> None:
    source = memoryview(bytearray(b"\x01") * (MIB << 20))
    while asked := link.recv(8, socket.MSG_WAITALL):
        link.sendall(source[: int.from_bytes(asked, "little")])


@contextmanager
def path(name: str, owners: ProcMesh, users: ProcMesh) -> Iterator[Measure]:
    """Reads between two actors; the procs were spawned with the one path that is allowed."""
    owner = owners.spawn(f"owner_{name}", Owner, MIB << 20, 1)
    user = users.spawn(f"user_{name}", User, MIB << 20, 1)
    (large,) = owner.share.call_one().get()
    small = owners.spawn(f"small_{name}", Owner, SMALL, 1).share.call_one().get()
    few = users.spawn(f"few_{name}", User, SMALL, 1)
    buffers: dict[int, tuple[Any, list[RDMABuffer]]] = {
        MIB << 20: (user, [large]),
        SMALL: (few, small),
    }

    def read(size: int) -> float:
        reader, shared = buffers[size]
        seconds: list[float] = reader.time.call_one(shared, "read", 3).get()
        return statistics.median(seconds)

    yield read


@contextmanager
def by_hand(owners: ProcMesh, users: ProcMesh) -> Iterator[Measure]:
    sizes = {MIB << 20: "large", SMALL: "small"}
    owned = {
        size: owners.spawn(f"hand_owner_{name}", Owner, size, 1) for size, name in sizes.items()
    }
    used = {size: users.spawn(f"hand_user_{name}", User, size, 1) for size, name in sizes.items()}
    offers = {size: owner.offer_by_hand.call_one().get() for size, owner in owned.items()}
    yield lambda size: statistics.median(
        used[size].time_by_hand.call_one(offers[size], "read", 3).get()
    )


@contextmanager
def two_hosts(scheme: str) -> Iterator[tuple[ProcMesh, ProcMesh]]:
    """A proc on each of two workers."""
    with tempfile.TemporaryDirectory(prefix="mb") as folder, configured(rdma_paths="messages"):
        addresses = [
            f"ipc://{folder}/{i}" if scheme == "ipc" else f"tcp://127.0.0.1:{_free_port()}"
            for i in range(2)
        ]
        started = [
            subprocess.Popen([sys.executable, "-c", _WORKER, address]) for address in addresses
        ]
        try:
            hosts = attach_to_workers(workers=addresses)
            hosts.initialized.get(timeout=PATIENCE)
            procs = hosts.spawn_procs()
            yield procs.slice(hosts=0), procs.slice(hosts=1)
            hosts.shutdown().get(timeout=PATIENCE)
        finally:
            for worker in started:
                worker.terminate()
                worker.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def two_procs(paths: str) -> Iterator[tuple[ProcMesh, ProcMesh]]:
    with configured(rdma_paths=paths):
        procs = this_host().spawn_procs(per_host={"procs": 2})
    yield procs.slice(procs=0), procs.slice(procs=1)
    procs.stop().get()


def contestants(stack: ExitStack) -> dict[str, Measure]:
    enter = stack.enter_context
    # forked before there are threads
    found: dict[str, Measure] = {
        "copy: within a process": _time_copy,
        "floor: one Unix stream": enter(stream(socket.AF_UNIX)),
        "floor: one TCP stream": enter(stream(socket.AF_INET)),
    }
    found["vm"] = enter(path("vm", *enter(two_procs("vm"))))
    found["messages, one host"] = enter(path("messages", *enter(two_procs("messages"))))
    found["messages, two hosts, ipc"] = enter(path("ipc", *enter(two_hosts("ipc"))))
    found["messages, two hosts, tcp"] = enter(path("tcp", *enter(two_hosts("tcp"))))
    if _nixl.is_installed():
        found["nixl"] = enter(path("nixl", *enter(two_procs("nixl"))))
        found["nixl by hand"] = enter(by_hand(*enter(two_procs("nixl"))))
    return found


def _time_copy(size: int) -> float:
    copy = copier([bytearray(b"\x01") * size])
    copy()
    start = time.perf_counter()
    copy()
    return time.perf_counter() - start


def measure(found: dict[str, Measure], rounds: int) -> list[list[str]]:
    """One line for each: GB/s of large reads, that as a part of a copy's, µs of small ones; medians
    of the rounds.
    """
    seconds: dict[tuple[str, int], list[float]] = {}
    for _ in range(rounds):
        for name, once in found.items():
            for size in (MIB << 20, SMALL):
                seconds.setdefault((name, size), []).append(once(size))
    medians = {key: statistics.median(values) for key, values in seconds.items()}
    copy = medians[next(iter(found)), MIB << 20]
    return [
        [
            name,
            report.number((MIB << 20) / medians[name, MIB << 20] / 1e9),
            report.number(copy / medians[name, MIB << 20]),
            report.number(medians[name, SMALL] * 1e6),
        ]
        for name in found
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    rounds: int = parser.parse_args(arguments).rounds
    os.environ.setdefault("MONARCH_SECRET", "a secret of benchmarks, which is long enough")
    with ExitStack() as stack:
        lines = measure(contestants(stack), rounds)
    header = ["one read", f"GB/s, {MIB} MiB", "of a copy", f"µs, {SMALL} bytes"]
    print(report.align([header, *lines], {1, 2, 3}))
    described = machine.describe()
    print(f"\n{described['cpu']}, {described['cores']} cores; median of {rounds} rounds")


if __name__ == "__main__":
    main()
