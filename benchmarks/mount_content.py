"""What carries the content of a mount: `python -m benchmarks.mount_content`, from the repository's
root.

A file is brought from one process of this machine to another in blocks, as a mount does it, several
at a time: in messages, which is how it does it, and through an `RDMABuffer` that the side of the
file reads each block into. The two take turns. CPU time is that of both processes. The file lies in
the page cache.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections import deque
from pathlib import Path
from pickle import PickleBuffer
from typing import Any

from monarch.actor import Actor, Future, endpoint, this_host
from monarch.rdma import RDMABuffer

_BLOCK = 4 << 20
_AHEAD = 2  # blocks that are asked for before one is read
_CHUNK = 1 << 20

WAYS = ("messages", "RDMABuffer")


class Source(Actor):
    """Has the file."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_RDONLY)
        self._memory = [bytearray(_BLOCK) for _ in range(_AHEAD + 1)]
        self._buffers = [RDMABuffer(each) for each in self._memory]

    @endpoint
    def read(self, way: str, index: int) -> Any:
        """A block, or a name for the memory that it is in."""
        if way == "messages":
            return PickleBuffer(os.pread(self._file, _BLOCK, index * _BLOCK))
        place = index % len(self._memory)
        os.preadv(self._file, [self._memory[place]], index * _BLOCK)
        return self._buffers[place]

    @endpoint
    def used(self) -> float:
        """Seconds of CPU time, so far."""
        return time.process_time()


class Reader(Actor):
    """Wants it."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self._into = bytearray(_BLOCK)

    @endpoint
    def read(self, way: str, blocks: int) -> tuple[float, float]:
        """Read all; seconds that passed, and of CPU time."""
        used = time.process_time() + self._source.used.call_one().get()
        began = time.perf_counter()
        asked: deque[Future[Any]] = deque()
        for index in range(blocks + _AHEAD):
            if index < blocks:
                asked.append(self._source.read.call_one(way, index))
            if index >= _AHEAD:
                answer = asked.popleft().get()
                if way != "messages":
                    answer.read_into(self._into).get()
        passed = time.perf_counter() - began
        return passed, time.process_time() + self._source.used.call_one().get() - used


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", type=int, default=512 << 20, help="bytes of the file")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    taken: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as folder, this_host().spawn_procs({"procs": 2}) as procs:
        path = Path(folder, "file")
        with path.open("wb") as file:
            for _ in range(options.size // _CHUNK):
                file.write(os.urandom(_CHUNK))
        source = procs.slice(procs=0).spawn("source", Source, str(path))
        reader = procs.slice(procs=1).spawn("reader", Reader, source)
        for _ in range(options.rounds):
            for way, times in taken.items():
                times.append(reader.read.call_one(way, options.size // _BLOCK).get())
    print(f"{options.size} bytes, {options.rounds} rounds, seconds: median (min)")
    for way, times in taken.items():
        columns = [
            f"{statistics.median(each):.2f} ({min(each):.2f})" for each in zip(*times, strict=True)
        ]
        print(f"    {way:12}passed {columns[0]:16}CPU time {columns[1]}")


if __name__ == "__main__":
    main()
