"""What the client's terminal says of ranks that have stopped: at once, and again each minute while nobody is attached.

If it is a terminal at which the program waits, Enter attaches to them there; without line editing, as a program that ends meanwhile must
leave the terminal as it was. One thread does both; it ends when nobody is in the debugger any more.
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
from . import server
from .console import Console, PlainTerminal
from .protocol import Row
from .views import grouped_ranks

_GATHER = 0.15  # seconds without another rank that stops, after which those that have are told together
_LONGEST = 1.0  # seconds, however many stop
_AGAIN = 60.0  # seconds
_LOOK = 0.5  # seconds between looks at whether Enter was pressed


class Notices:
    """Args:
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
        """Some rank has stopped; on the I/O thread."""
        self._news.set()
        with self._lock:
            if not self._running:
                self._running = True
                threading.Thread(target=self._run, name="monarch-debugger", daemon=True).start()

    def _run(self) -> None:
        told: dict[int, float] = {}  # when, by session
        served = server.start(self._hub)
        if served:
            _say(served)
        while True:
            if self._news.wait(_LOOK):
                self._gather()
            rows = self._rows()
            with self._lock:
                if not rows and not self._news.is_set():
                    self._running = False
                    return
            self._tell(rows, told)
            if _enter_pressed():
                Console(self._hub.root, PlainTerminal(sys.stdin, sys.stdout)).run()

    def _gather(self) -> None:
        until = time.monotonic() + _LONGEST
        while self._news.wait(_GATHER) and time.monotonic() < until:
            self._news.clear()
            time.sleep(_GATHER)

    def _tell(self, rows: list[Row], told: dict[int, float]) -> None:
        now = time.monotonic()
        waiting = [row for row in rows if row.stopped and not row.driver]
        for gone in told.keys() - {row.number for row in waiting}:
            del told[gone]
        due = [row for row in waiting if now - told.get(row.number, -_AGAIN) >= _AGAIN]
        if not due:
            return
        for row in due:
            told[row.number] = now
        how = "run `monarch debug` in another terminal"
        if _has_terminal():
            how += ", or press Enter here"
        _say("\n".join([*map(_line, grouped_ranks(due)), f"monarch: to look at it, {how}"]))


def _line(group: list[Row]) -> str:
    row = group[0]
    where, count = row.place.line, len(group)
    ranks = f"{row.who.name} {row.label}" if count == 1 else f"{count} ranks of {row.who.name} ({_ranks(group)})"
    have = "has" if count == 1 else "have"
    since = f" {row.since:.0f} s ago" if row.since >= _AGAIN / 2 else ""
    host = f" on {row.who.host}" if len({each.who.host for each in group}) == 1 else ""
    return f"monarch: {ranks} {have} stopped{since} in {where.function}() at {where.file}:{where.number}{host}: {row.place.why}"


def _ranks(group: list[Row]) -> str:
    return ", ".join(row.label for row in group[:8]) + (", ..." if len(group) > 8 else "")


def _say(text: str) -> None:
    with suppress(Exception):  # there is no stderr, or nobody reads it any more
        print(text, file=sys.stderr, flush=True)


def _has_terminal() -> bool:
    """Whether a person may press Enter there: a terminal of ours, and nobody else reads it, as a prompt of Python's would."""
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


def _enter_pressed() -> bool:
    """Takes the line, if the program waits for an answer; one that reads its input itself is to have it."""
    if not _has_terminal() or not select.select([sys.stdin], [], [], 0)[0] or not _main_thread_waits():
        return False
    return bool(sys.stdin.readline())


def _main_thread_waits() -> bool:
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    return frame is not None and frame.f_globals.get("__name__", "").startswith("monarch._core.")
