"""Counts what a message costs and what does not depend on the machine: system calls, Python
functions, thread switches.

`sys.setprofile` reports each Python function and each C function that is called. The C functions
that enter the kernel are known, so this counts system calls without a tracer, on the thread that
counts and on the one that does I/O.
"""

from __future__ import annotations

import os
import pickle
import resource
import sys
import threading
from collections import Counter
from typing import Any

from monarch._core.actors.cell import actors_of
from monarch._core.actors.context import current_hub
from monarch.actor import Actor, endpoint

# C functions that enter the kernel, by what a reader of `strace` would call them.
_SYSTEM_CALLS = {
    "socket.send": "send",
    "socket.sendmsg": "send",
    "socket.recvmsg_into": "receive",
    "poll.poll": "wait",
    "epoll.poll": "wait",
    "epoll.modify": "watch",
    "epoll.register": "watch",
    "epoll.unregister": "watch",
    "signal": "signal",
    "eventfd_write": "wake",
    "eventfd_read": "wake",
    "write": "wake",
    "read": "wake",
    "memfd_create": "memory",
    "ftruncate": "memory",
    "pwrite": "memory",
    "pwritev": "memory",
    "copy_file_range": "memory",
}


class Count:
    """What the current thread, and the I/O thread of this process, do until `stop`."""

    def __init__(self) -> None:
        self._here: Counter[str] = Counter()
        self._io: Counter[str] = Counter()
        self._poller = current_hub().poller
        self._on_io_thread(lambda: sys.setprofile(_counting(self._io)))
        self._before = _kernel()
        sys.setprofile(_counting(self._here))

    def stop(self) -> dict[str, int]:
        """By kind of system call; `python` are Python functions, `telemetry` those of them that are
        telemetry's, `io` whatever the I/O thread called.
        """
        sys.setprofile(None)
        after = _kernel()
        self._on_io_thread(lambda: sys.setprofile(None))
        self._here["switches"] = after[0] - self._before[0]
        self._here["written"] = after[1] - self._before[1]
        self._here["io"] = self._io["python"]
        return dict(self._here + self._io - Counter(python=self._io["python"]))

    def _on_io_thread(self, function: Any) -> None:
        done = threading.Event()

        def run() -> None:
            function()
            done.set()

        self._poller.call_soon(run)
        done.wait()


def _counting(counts: Counter[str]) -> Any:
    def count(frame: Any, event: str, function: Any) -> None:
        if event == "call":
            counts["python"] += 1
            if "/monarch/telemetry/" in frame.f_code.co_filename:
                counts["telemetry"] += 1
        elif event == "c_call":
            kind = _SYSTEM_CALLS.get(function.__qualname__)
            if kind is not None:
                counts[kind] += 1

    return count


def _kernel() -> tuple[int, int]:
    """How often this thread has waited, and how many bytes this process has written to files,
    memory files among them.
    """
    with open(f"/proc/{os.getpid()}/io") as file:
        written = int(next(line for line in file if line.startswith("wchar")).split()[1])
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw, written


def look_at_no_more(hub: Any, gap: int = 1 << 60) -> None:
    """As if this process and its actors had more messages than telemetry looks at; with a `gap` of
    1, look again.
    """
    for cell in actors_of(hub):
        if cell.sampler is not None:
            cell.sampler.gap = gap
    if hub.outgoing is not None:
        hub.outgoing.gap = gap


class Block:
    """Large memory, as arrays have it: it stays out of the pickle."""

    def __init__(self, data: bytearray | memoryview) -> None:
        self.data = data

    def __reduce_ex__(self, protocol: Any) -> Any:
        return Block, (pickle.PickleBuffer(self.data),)


class Counted(Actor):
    """Answers, and counts what that costs."""

    def __init__(self) -> None:
        self._count: Count | None = None

    @endpoint
    def echo(self, value: Any) -> Any:
        return value

    @endpoint
    def look_at_no_more(self) -> None:
        look_at_no_more(current_hub())

    @endpoint
    def start_counting(self) -> None:
        self._count = Count()

    @endpoint
    def stop_counting(self) -> dict[str, int]:
        assert self._count is not None
        return self._count.stop()
