"""Load and memory of a host over the last ten minutes: what is kept of it, and for how long."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from monarch.telemetry import host_history
from monarch.telemetry.host_history import KEPT, PERIOD, Figures, HostHistory, begin


class Timers:
    """Those of a poller, whose time passes when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.due: list[tuple[float, Callable[[], None]]] = []

    def call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        self.due.append((self.now + seconds, callback))

    def pass_time(self, until: float) -> None:
        while self.due and self.due[0][0] <= until:
            self.now, callback = self.due.pop(0)
            callback()
        self.now = until


def looking() -> Callable[[], Figures]:
    """Loads 0, 1, 2, ..."""
    loads = itertools.count()
    return lambda: Figures(float(next(loads)), 1, 0, 1.0, 0, 0)


def test_a_row_comes_each_ten_seconds_and_the_last_one_is_of_now() -> None:
    timers = Timers()
    history = HostHistory(timers, looking(), lambda: timers.now)
    timers.pass_time(1025)
    assert [row[:2] for row in history.rows()] == [
        (1_000_000_000, 0), (1_010_000_000, 1), (1_020_000_000, 2), (1_025_000_000, 3),
    ]  # fmt: skip
    timers.pass_time(1030.5)
    assert [at for at, *_ in history.rows()][-1] == 1_030_000_000  # which is now, nearly


def test_ten_minutes_are_kept_however_long_it_goes_on() -> None:
    timers = Timers()
    history = HostHistory(timers, looking(), lambda: timers.now)
    timers.pass_time(1000 + 5000 * PERIOD)
    rows = history.rows()
    assert len(rows) == KEPT and rows[-1][0] - rows[0][0] == (KEPT - 1) * PERIOD * 1e6
    assert len(timers.due) == 1  # one timer, also after long


def test_gpus_have_ten_minutes_as_well_and_a_driver_that_hangs_holds_up_nothing() -> None:
    timers, answers = Timers(), threading.Event()
    told, none = (10.0, 20.0, 30.0, 40.0, 50.0, 60.0), (None,) * 6

    def gpus() -> tuple[float, ...]:
        answers.wait(60)
        return told

    def known(history: HostHistory) -> list[tuple[Any, ...]]:
        return [(row[1], row[-6:]) for row in history.rows()]

    history = HostHistory(timers, looking(), lambda: timers.now, gpus)
    timers.pass_time(1020.5)
    assert known(history) == [(0, none), (1, none), (2, none)]  # the host's own go on
    answers.set()

    def pass_time(until: float) -> None:
        """Have the look end that has begun, before the next one."""
        assert history._asking is not None
        history._asking.join()
        timers.pass_time(until)
        history._asking.join()

    pass_time(1030.5)
    pass_time(1040.5)
    assert known(history) == [(0, told), (1, none), (2, none), (3, told), (4, told)]
    for step in range(2 * KEPT):
        pass_time(1050.5 + PERIOD * step)
    rows = known(history)
    assert len(rows) == KEPT and {of_gpus for _, of_gpus in rows} == {told}


def test_an_agent_has_one_history_however_often_it_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(host_history, "_own", None)

    def asked(timers: Timers) -> Any:
        return SimpleNamespace(service=SimpleNamespace(hub=SimpleNamespace(poller=timers)))

    looked_for_gpus: list[None] = []

    def none() -> None:
        looked_for_gpus.append(None)

    timers = Timers()
    first = begin(asked(timers), looking(), none)
    assert begin(asked(timers), looking(), none) is first and len(timers.due) == 1
    assert len(looked_for_gpus) == 1
    assert begin(asked(Timers()), looking(), none) is not first  # of an engine that started anew
