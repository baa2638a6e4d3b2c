"""Where the time of one call goes: `python -m benchmarks.journey`, from the repository's root.

Makes calls, one at a time, to an actor in another process, and notes the time where a message
passes from one step of the code to the next, in both processes. `--update` writes the table into
`docs/journey_of_a_message.md`.

It looks into the package, as no workload does: what it wraps is named in `CALLER` and `CALLED`, and
a step that is no longer there is an error. A note costs some tenths of a microsecond; that is
measured and taken off.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import report
from benchmarks.environments import REPOSITORY
from monarch._core.actors import cell, request
from monarch._core.actors.adverbs import Endpoint
from monarch._core.actors.sync_cell import SyncCell
from monarch._core.calls.future import Future
from monarch._core.net.connection import Connection
from monarch._core.net.waiter import Waiter
from monarch._core.wire import pickling
from monarch._core.wire.frame import Decoder
from monarch.actor import Actor, endpoint, this_host

PAGE = REPOSITORY / "docs" / "journey_of_a_message.md"
BEGIN, END = "<!-- journey:begin -->", "<!-- journey:end -->"
_clock = time.perf_counter_ns


class Step(NamedTuple):
    """What happens until the note `until` is made, from the note before it on."""

    until: str
    what: str


# In the order in which each side passes them; the first has nothing before it.
CALLER = (
    Step("call_one >", ""),
    Step("pickle >", "check the arguments, find out who calls"),
    Step("pickle <", "pickle the arguments"),
    Step("write >", "make request and future, find the connection, encode the frame"),
    Step("write <", "system call: send"),
    Step("get >", "back in the program, which asks for the result"),
    Step("wait >", "may this thread wait? hold signals, borrow the connection"),
    Step("wait <", ""),  # the called side, and both wake-ups
    Step("feed >", "system call: receive"),
    Step("reply >", "cut and decode the frame, find the request"),
    Step("reply <", "complete the future"),
    Step("read >", "give the connection back, let signals in"),
    Step("read <", "unpickle the result"),
    Step("get <", "return it"),
)
CALLED = (
    Step("wait <", ""),
    Step("feed >", "system call: receive"),
    Step("mailbox >", "cut and decode the frame, find the actor"),
    Step("handle >", "mailbox, give the connection back"),
    Step("unpickle >", "method, context of the message"),
    Step("unpickle <", "unpickle the arguments"),
    Step("method", "call the method"),
    Step("pickle >", "return from it"),
    Step("pickle <", "pickle the result"),
    Step("write >", "encode the frame"),
    Step("write <", "system call: send"),
    Step("wait >", "borrow the connection"),
)
WRAPPED: tuple[tuple[Any, str, str], ...] = (
    (Endpoint, "call_one", "call_one"),
    (pickling, "dumps_call", "pickle"),
    (pickling, "dumps_value", "pickle"),
    (cell, "read_value", "unpickle"),
    (request, "read_value", "read"),
    (Connection, "_write_small", "write"),
    (Future, "get", "get"),
    (Waiter, "wait", "wait"),
    (Decoder, "feed", "feed"),
    (request.UnaryCall, "reply", "reply"),
    (SyncCell, "receive", "mailbox"),
    (SyncCell, "_handle", "handle"),
)
Notes = list[tuple[str, int]]
_notes: Notes = []


def note(name: str) -> None:
    _notes.append((name, _clock()))


def noting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    before, after = f"{name} >", f"{name} <"

    @functools.wraps(function)
    def noted(*args: Any, **kwargs: Any) -> Any:
        _notes.append((before, _clock()))
        result = function(*args, **kwargs)
        _notes.append((after, _clock()))
        return result

    return noted


def take_notes() -> None:
    """From now on, in this process."""
    for owner, attribute, name in WRAPPED:
        setattr(owner, attribute, noting(name, getattr(owner, attribute)))


def cost_of_a_note() -> float:
    """Nanoseconds that lie between two notes with nothing between them."""
    nothing = noting("nothing", lambda: None)
    bare = []
    for _ in range(2000):
        nothing()
        bare.append(_notes[-1][1] - _notes[-2][1])
    _notes.clear()
    return statistics.median(bare)


class Called(Actor):
    @endpoint
    def echo(self, value: int) -> int:
        note("method")
        return value

    @endpoint
    def begin(self) -> None:
        take_notes()

    @endpoint
    def notes(self) -> Notes:
        return _notes


def rounds(notes: Notes, steps: Sequence[Step]) -> list[list[int]]:
    """The times of each message that took these steps and no others, as most do."""
    order = [step.until for step in steps]
    kept = [(name, at) for name, at in notes if name in order]
    found, start = [], 0
    while start + len(order) <= len(kept):
        if [name for name, _ in kept[start : start + len(order)]] == order:
            found.append([at for _, at in kept[start : start + len(order)]])
            start += len(order)
        else:
            start += 1
    return found


def medians(
    times: Sequence[Sequence[int]], steps: Sequence[Step], overhead: float
) -> dict[str, float]:
    """Microseconds of each step that has a name."""
    return {
        step.what: (
            max(0.0, statistics.median(row[i] - row[i - 1] for row in times) - overhead) / 1e3
        )
        for i, step in enumerate(steps)
        if step.what
    }


def measure(calls: int) -> tuple[list[list[str]], str]:
    """The rows of the table, and a line about the whole."""
    procs = this_host().spawn_procs(per_host={"procs": 1})
    actor = procs.spawn("called", Called)
    bare = []
    for _ in range(calls):
        start = _clock()
        actor.echo.call_one(1).get()
        bare.append(_clock() - start)
    overhead = cost_of_a_note()
    actor.begin.call_one().get()
    take_notes()
    for _ in range(calls):
        actor.echo.call_one(1).get()
    mine = _notes.copy()
    theirs = actor.notes.call_one().get()
    procs.stop().get()
    caller, called = rounds(mine, CALLER), rounds(theirs, CALLED)
    if min(len(caller), len(called)) < calls / 4:
        raise RuntimeError(
            f"of {calls} calls, {len(caller)} and {len(called)} took the steps that CALLER and"
            " CALLED name"
        )
    here, there = medians(caller, CALLER, overhead), medians(called, CALLED, overhead)
    wait = [step.until for step in CALLER].index("wait <")
    # since the frame was written
    away = statistics.median(row[wait] - row[wait - 3] for row in caller) / 1e3
    until_written = sum(list(there.values())[:-1])
    split = [step.until for step in CALLER if step.what].index("feed >")
    rows: list[tuple[str, str, float]] = [
        ("caller", what, us) for what, us in list(here.items())[:split]
    ]
    rows += [("called", what, us) for what, us in there.items()]
    rows += [("caller", what, us) for what, us in list(here.items())[split:]]
    rows.append(
        (
            "kernel",
            "both wake-ups: between writing here and going on there",
            max(0.0, away - until_written),
        )
    )
    table = [["where", "step", "µs"], *([where, what, f"{us:.1f}"] for where, what, us in rows)]
    total = statistics.median(bare) / 1e3
    line = (
        f"{calls} calls; a call without notes took {total:.1f} µs (median). In the steps of the"
        " called side that the caller "
    )
    line += f"waits for: {until_written:.1f} µs. In its own: {sum(here.values()):.1f} µs."
    return table, line


def markdown(rows: list[list[str]], line: str) -> str:
    head, *body = rows
    lines = ["| " + " | ".join(row) + " |" for row in [head, ["---", "---", "---:"], *body]]
    return "\n".join([*lines, "", line])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.journey", description="Where the time of a call goes."
    )
    parser.add_argument("--calls", type=int, default=5000, help="calls to measure (default 5000)")
    parser.add_argument(
        "--update", action="store_true", help=f"write the table into {PAGE.relative_to(REPOSITORY)}"
    )
    options = parser.parse_args(arguments)
    rows, line = measure(options.calls)
    print(report.align(rows, right={2}))
    print(line)
    if options.update:
        text = Path(PAGE).read_text(encoding="utf-8")
        PAGE.write_text(
            report.update_block(text, markdown(rows, line), BEGIN, END), encoding="utf-8"
        )
    return 0


if __name__ == "__main__":
    from benchmarks import journey as module  # as the called process knows it

    sys.exit(module.main())
