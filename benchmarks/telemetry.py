"""What telemetry costs for each message: `python -m benchmarks.telemetry`, from the repository's
root.

A pair of procs for each row: an actor in one calls an actor in the other. All pairs are there at
once, and take turns in blocks of some tenths of a second, in another order each round. A row is
compared with the row `off` of the same round; there are two of these, and what the second one says
of the first is the error of the measurement. The processor time of both processes, with all their
threads, is what counts: on a machine that does other things, too, the time on the wall says little.

    bare      the count of messages, and the look once a second, are taken out of the engine
    off       as programs run
    control   the same
    sampled   with `enable_telemetry()`
    all       each message is remembered

`--viewer 20` compares so many rounds of blocks of some seconds in which somebody looks at the front
page of the program, its events as they come, with blocks in which nobody does; it needs the extra
`admin`. `--memory 10` sends that many million messages to an actor with telemetry on, and shows the
memory of its process after each million.
"""

from __future__ import annotations

import argparse
import http.client
import inspect
import os
import random
import socket
import statistics
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from monarch._core.actors import sync_cell
from monarch.actor import Actor, endpoint, this_host
from monarch.config import configured

COUNTED = {
    "_handle": "self.begun[name] += 1\n",
    "_next": "if not self.hub.pulse.beating:\n    self.hub.pulse.start()\n",
}
ROWS = {"bare": "off", "off": "off", "control": "off", "sampled": "sampled", "all": "all"}
LIMITS = {
    "call_one": {"off": 0.5, "sampled": 1.0, "viewed": 3.0},
    "one_way": {"off": 0.5, "sampled": 2.0},
}
VIEWER_ROWS = ("off", "control", "viewed")
VIEWER_SECONDS = 4.0  # of a block: at least one picture of the front page is made in each


class Handles(Actor):
    """Does as little as can be."""

    def __init__(self, bare: bool) -> None:
        if bare:
            leave_out_counts()

    @endpoint
    def handle(self, value: int) -> int:
        return value

    @endpoint
    def used(self) -> float:
        return time.process_time()

    @endpoint
    def resident(self) -> float:
        return (
            int(Path("/proc/self/statm").read_text().split()[1])
            * os.sysconf("SC_PAGE_SIZE")
            / (1 << 20)
        )


class Calls(Actor):
    """Calls the other one of its pair.

    Args:
        other: The actor that is called.
    """

    def __init__(self, bare: bool, other: Any) -> None:
        self._other = other
        if bare:
            leave_out_counts()

    @endpoint
    def used(self) -> float:
        both: float = time.process_time() + self._other.used.call_one().get()
        return both

    @endpoint
    def block(self, kind: str, count: int) -> float:
        """Microseconds of processor time for each message, in both processes."""
        other = self._other
        before: float = time.process_time() + other.used.call_one().get()
        if kind == "call_one":
            for number in range(count):
                other.handle.call_one(number).get()
        else:
            for number in range(count):
                other.handle.broadcast(number)
        after: float = other.used.call_one().get() + time.process_time()
        return (after - before) / count * 1e6


def leave_out_counts() -> None:
    """Have actors of this process be run by an engine without what telemetry needs of it always."""
    for name, text in COUNTED.items():
        source = textwrap.dedent(inspect.getsource(getattr(sync_cell.SyncCell, name)))
        indented = [textwrap.indent(text, " " * spaces) for spaces in (4, 8)]
        found = [each for each in indented if each in source]
        assert found, f"{name} has changed: {text!r} is not in it"
        made: dict[str, Any] = {}
        exec(compile(source.replace(found[0], ""), __file__, "exec"), vars(sync_cell), made)
        setattr(sync_cell.SyncCell, name, made[name])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=0.15, help="of a block, about")
    parser.add_argument("--seed", type=int, default=os.getpid(), help="of the order of rows")
    parser.add_argument(
        "--memory", type=int, default=0, metavar="MILLIONS", help="show the memory instead"
    )
    parser.add_argument(
        "--viewer", type=int, default=0, metavar="ROUNDS", help="show what who looks costs instead"
    )
    options = parser.parse_args()
    if options.memory:
        show_memory(options.memory)
        return
    if options.viewer:
        show_viewer(options.viewer, random.Random(options.seed))
        return
    pairs = {row: pair(row, mode) for row, mode in ROWS.items()}
    order = random.Random(options.seed)
    for kind in ("call_one", "one_way"):
        count = 500
        cost = min(pairs["off"].block.call_one(kind, count).get() for _ in range(5))
        count = int(options.seconds * 1e6 / cost)
        taken: dict[str, list[float]] = {row: [] for row in ROWS}
        for _ in range(options.rounds):
            for row in order.sample(list(ROWS), len(ROWS)):
                taken[row].append(pairs[row].block.call_one(kind, count).get())
        report(kind, taken, count)


def pair(row: str, mode: str) -> Any:
    """Make one, and return the actor that calls."""
    with configured(telemetry=mode):
        procs = this_host().spawn_procs({"gpus": 2}, name=row)
        other = procs.slice(gpus=1).spawn("handles", Handles, row == "bare")
        return procs.slice(gpus=0).spawn("calls", Calls, row == "bare", other)


def show_viewer(rounds: int, order: random.Random) -> None:
    calls = pair("off", "off")
    count = int(
        VIEWER_SECONDS * 1e6 / min(calls.block.call_one("call_one", 2_000).get() for _ in range(3))
    )
    taken: dict[str, list[float]] = {row: [] for row in VIEWER_ROWS}
    with viewer():
        pass  # the first look imports, in each process
    for _ in range(rounds):
        for row in order.sample(VIEWER_ROWS, len(VIEWER_ROWS)):
            if row == "viewed":
                with viewer():
                    taken[row].append(calls.block.call_one("call_one", count).get())
            else:
                taken[row].append(calls.block.call_one("call_one", count).get())
    report("call_one", taken, count)


@contextmanager
def viewer() -> Iterator[None]:
    """Somebody who reads the events of the front page, from the first one on."""
    from monarch.admin import access

    entry = access("view")
    connection = http.client.HTTPConnection(urlsplit(entry["url"]).netloc, timeout=60)
    connection.connect()
    opened: socket.socket = connection.sock
    connection.request(
        "GET", "/v1/now/events", headers={"Authorization": f"Bearer {entry['token']}"}
    )
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    assert answer.readline()  # the first one is there
    reader = threading.Thread(target=lambda: [None for _ in iter(answer.readline, b"")])
    reader.start()
    try:
        yield
    finally:
        opened.shutdown(socket.SHUT_RDWR)
        reader.join()
        connection.close()


def show_memory(millions: int) -> None:
    with configured(telemetry="sampled"):
        handles = (
            this_host().spawn_procs({"gpus": 1}, name="memory").spawn("handles", Handles, False)
        )
    for million in range(1, millions + 1):
        for number in range(1_000_000):
            handles.handle.broadcast(number)
        print(
            f"{million:3} million messages: {handles.resident.call_one().get():7.1f} MiB",
            flush=True,
        )


def report(kind: str, taken: dict[str, list[float]], count: int) -> None:
    print(
        f"\n{kind}: µs of processor time a message, both sides; {len(taken['off'])} rounds of"
        f" {count:,} messages\n"
    )
    print(f"{'':9} {'median':>7} {'least':>7} {'against off':>12} {'quartiles':>18}  limit")
    for row, costs in taken.items():
        # what counts of `off` is how much it is above `bare`
        other = "bare" if row == "off" and "bare" in taken else "off"
        against = [
            100 * (cost / beside - 1) for cost, beside in zip(costs, taken[other], strict=True)
        ]
        low, middle, high = statistics.quantiles(against, n=4)
        limit = LIMITS[kind].get(row) if row != other else None
        text = (
            f"{limit:g} %" + (" (against bare)" if other == "bare" else "")
            if limit is not None
            else ""
        )
        print(
            f"{row:9} {statistics.median(costs):7.2f} {min(costs):7.2f} {middle:+10.1f} %"
            f" {low:+8.1f} {high:+7.1f} %  {text}"
        )


if __name__ == "__main__":
    main()
