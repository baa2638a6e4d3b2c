"""Asking after calls that take long."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from monarch._core.actors.cell import thread_lives
from monarch._core.calls.pending import PendingOperation
from monarch._core.hub.overdue import Overdue
from monarch._core.wire import pickling
from monarch._core.wire.address import SYSTEM, ProcAddress
from monarch.config import configured

PROCS = ProcAddress("host", "proc.0"), ProcAddress("host", "proc.1")


class Unanswered(PendingOperation):
    def awaited(self) -> Any:
        return SimpleNamespace(uid=7, silent=PROCS)


def test_a_call_is_asked_after_ever_more_rarely_and_others_not_at_all() -> None:
    asked: list[tuple[object, ...]] = []

    def cast(
        procs: Any, target: int, meta: bytes, content: tuple[bytes, Any], *rest: object
    ) -> None:
        fields, _ = pickling.loads(content[0])
        asked.append((*procs, target, meta, *fields))

    hub: Any = SimpleNamespace(requests={1: Unanswered()}, cast=cast)
    overdue = Overdue(hub)
    when = []
    for look in range(1, 20):
        hub.requests[100 + look] = Unanswered()  # answered soon
        overdue.look()
        del hub.requests[100 + look]
        if asked:
            assert asked == [(proc, SYSTEM, b"LookAfter", 7) for proc in PROCS]
            when.append(look)
            asked.clear()
    assert when == [2, 4, 8, 16]


def test_a_timer_runs_only_while_calls_are_open() -> None:
    timers: list[Callable[[], None]] = []

    def call_later(seconds: float, callback: Callable[[], None]) -> object:
        timers.append(callback)
        return callback

    poller = SimpleNamespace(call_soon=lambda callback: callback(), call_later=call_later)
    hub: Any = SimpleNamespace(requests={}, poller=poller, cast=lambda *what: None)
    overdue = Overdue(hub)
    # what expects no answer of an actor
    overdue.watch(PendingOperation())  # type: ignore[arg-type]
    assert not overdue.watching
    assert not timers
    hub.requests[1] = call = Unanswered()
    for _ in range(2):  # as from two threads
        overdue.watch(call)  # type: ignore[arg-type]
    for _ in range(3):
        assert overdue.watching
        timers.pop()()
        assert len(timers) == 1
    del hub.requests[1]
    timers.pop()()
    assert not overdue.watching
    assert not timers


def test_no_timer_is_set_where_the_limit_is_taken_away_while_a_call_is_open() -> None:
    timers: list[Callable[[], None]] = []
    poller = SimpleNamespace(
        call_soon=lambda callback: callback(),
        call_later=lambda _, callback: timers.append(callback),
    )
    hub: Any = SimpleNamespace(requests={1: Unanswered()}, poller=poller, cast=lambda *what: None)
    overdue = Overdue(hub)
    overdue.watch(hub.requests[1])
    with configured(heartbeat_timeout="0s"):
        timers.pop()()
        assert not timers
        assert not overdue.watching


def test_a_thread_lives_until_it_has_ended() -> None:
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    assert thread.native_id is not None
    assert thread_lives(thread.native_id)
    end.set()
    thread.join()
    # Python is told a moment before the kernel has let go of it
    while thread_lives(thread.native_id):
        threading.Event().wait(0.001)
