"""The client's notices of stopped ranks.

One comes at once, and one each minute while no terminal is attached.

If it is a terminal at which the program waits, Enter attaches to them there; without line editing,
as a program that ends meanwhile must leave the terminal as it was. One thread does both; it ends
when no rank is in the debugger any more.
"""

from __future__ import annotations

import os
import select
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from .._core.plane import Hub
from .._words import duration, named, tame
from . import server
from .console import Console, Terminal
from .protocol import Row
from .views import grouped_ranks, who

# seconds without another rank that stops, after which those that have are told together
_GATHER = 0.15
_LONGEST = 1.0  # seconds, however many stop
_AGAIN = 60.0  # seconds
_LOOK = 0.5  # seconds between looks at whether Enter was pressed


class Notices:
    """The notices in one client.

    Args:
        rows: Gives the sessions.
        hub: That of the root client.
    """

    def __init__(self, rows: Callable[[], list[Row]], hub: Hub) -> None:
        self._rows = rows
        self._hub = hub
        self._lock = threading.Lock()
        self._news = threading.Event()
        self._running = False

    def stopped(self) -> None:
        """Note that a rank has stopped; on the I/O thread."""
        self._news.set()
        with self._lock:
            if not self._running:
                self._running = True
                threading.Thread(target=self._run, name="monarch-debugger", daemon=True).start()

    def _run(self) -> None:
        told: dict[int, float] = {}  # when, by session
        served = server.start(self._hub)
        if served:
            say(served)
        while True:
            if self._news.wait(_LOOK):
                self._gather()
            rows = self._rows()
            with self._lock:
                if not rows and not self._news.is_set():
                    self._running = False
                    return
            self._tell(rows, told)
            with suppress(OSError, ValueError):  # the terminal has hung up, or was closed
                if _enter_pressed():
                    Console(self._hub.root, Terminal()).run()

    def _gather(self) -> None:
        until = time.monotonic() + _LONGEST
        while self._news.wait(_GATHER) and time.monotonic() < until:
            self._news.clear()
            time.sleep(_GATHER)

    def _tell(self, rows: list[Row], told: dict[int, float]) -> None:
        waiting = due(rows, told, time.monotonic())
        if waiting:
            enter = ", or press Enter here" if _has_terminal() else _in_a_cell()
            how = f"monarch: to look at it, run `monarch debug` in another terminal{enter}"
            say("\n".join([*news(waiting), how]))


def due(rows: list[Row], told: dict[int, float], now: float) -> list[Row]:
    """Return the activities that wait for a terminal and are due for a notice.

    Args:
        rows: Rows of activities that wait for a terminal.
        told: When each was told of last, by number; updated.
        now: The time, in seconds.
    """
    waiting = [row for row in rows if row.stopped and not row.driver]
    for gone in told.keys() - {row.number for row in waiting}:
        del told[gone]
    found = [row for row in waiting if row.number not in told or now - told[row.number] >= _AGAIN]
    told.update({row.number: now for row in found})
    return found


def news(rows: list[Row]) -> list[str]:
    """A line for all that have stopped at one line of an actor mesh."""
    return [_line(group) for group in grouped_ranks(rows)]


def _line(group: list[Row]) -> str:
    row, count = group[0], len(group)
    where = row.place.line
    ranks = (
        f"{row.who.name} {row.label} has" if count == 1 else f"{who(group)} ({count} ranks) have"
    )
    since = f" {duration(row.since)} ago" if row.since >= _AGAIN / 2 else ""
    host = f" on {row.who.host}" if len({each.who.host for each in group}) == 1 else ""
    return named(
        f"monarch: {ranks} stopped{since} in {where.function}() at"
        f" {where.file}:{where.number}{host}: {row.place.why}"
    )


def say(text: str) -> None:
    """Show the user of the client a line."""
    with suppress(Exception):  # there is no stderr, or its reader has gone
        print(tame(text, False), file=sys.stderr, flush=True)


def _has_terminal() -> bool:
    """Return whether a person may press Enter at this terminal.

    It must be ours, and no other program may read it, as a prompt of Python's would.
    """
    try:
        descriptor = sys.stdin.fileno()
        return (
            os.isatty(descriptor)
            and os.tcgetpgrp(descriptor) == os.getpgrp()
            and not hasattr(sys, "ps1")
            and not sys.flags.interactive
            and "IPython" not in sys.modules
        )
    except (OSError, ValueError, AttributeError):
        return False


def _in_a_cell() -> str:
    kernel = sys.modules.get("ipykernel.kernelapp")
    if kernel and kernel.IPKernelApp.initialized():
        return ", or monarch.debugger.debug() in a cell"
    return ""


def _enter_pressed() -> bool:
    """Take the line, if the program waits for an answer.

    A program that reads its input itself is to have it.
    """
    if (
        not _has_terminal()
        or not select.select([sys.stdin], [], [], 0)[0]
        or not _main_thread_waits()
    ):
        return False
    return bool(sys.stdin.readline())


def _main_thread_waits() -> bool:
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    return frame is not None and frame.f_globals.get("__name__", "").startswith("monarch._core.")
