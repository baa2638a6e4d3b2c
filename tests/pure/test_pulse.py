"""The look at active actors once a second, on a clock that the test moves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from monarch._core.actors.pulse import ActorPulse


class Timers:
    """A poller, and its clock."""

    def __init__(self) -> None:
        self.now = 100.0
        self.set_by = 0.0  # what somebody has added to the clock on the wall
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        callback()

    def call_later(self, seconds: float, callback: Callable[[], None]) -> object:
        self.timers.append((self.now + seconds, callback))
        return object()

    def pass_by(self, seconds: float) -> int:
        """Returns how often something was due."""
        end, count = self.now + seconds, 0
        while due := sorted(
            (timer for timer in self.timers if timer[0] <= end), key=lambda timer: timer[0]
        )[:1]:
            self.timers.remove(due[0])
            self.now, callback = due[0]
            callback()
            count += 1
        self.now = end
        return count


class Cell:
    uid = 7

    def __init__(self) -> None:
        self.active: dict[object, Any] = {}
        self.begun: defaultdict[str, int] = defaultdict(int)
        self.serving: object = None
        self.waiting = 0

    def queued(self) -> list[None]:
        return [None] * self.waiting

    def begin(self, name: str, activity: object = None) -> Any:
        self.begun[name] += 1
        self.active[activity] = None, SimpleNamespace(meta=name.encode())
        return self.active[activity]


@pytest.fixture
def timers(monkeypatch: pytest.MonkeyPatch) -> Timers:
    made = Timers()
    monkeypatch.setattr(
        "monarch._core.actors.pulse.time.time_ns", lambda: int((made.now + made.set_by) * 1e9)
    )
    monkeypatch.setattr("monarch._core.actors.pulse.time.monotonic_ns", lambda: int(made.now * 1e9))
    return made


@pytest.fixture
def cell() -> Cell:
    return Cell()


@pytest.fixture
def pulse(timers: Timers, cell: Cell) -> ActorPulse:
    hub: Any = SimpleNamespace(poller=timers)
    return ActorPulse(hub, lambda: [cell])  # type: ignore[list-item]


def test_nothing_happens_before_something_gets_active(timers: Timers, pulse: ActorPulse) -> None:
    assert timers.pass_by(1_000) == 0 and not pulse.beating


def test_what_stays_is_known_since_when_to_a_second(
    timers: Timers, pulse: ActorPulse, cell: Cell
) -> None:
    item = cell.begin("step")
    pulse.start()
    timers.pass_by(43)
    since = pulse.since(cell.uid, item)
    assert since is not None and 0 <= since / 1e9 - 100 <= 1
    assert pulse.since(cell.uid, object()) is None


@pytest.mark.parametrize("by", [-600.0, 600.0])
def test_how_long_a_call_takes_is_right_when_the_clock_was_set(
    timers: Timers, pulse: ActorPulse, cell: Cell, by: float
) -> None:
    item = cell.begin("step")
    pulse.start()
    timers.pass_by(20)
    timers.set_by = by
    timers.pass_by(20)
    since = pulse.since(cell.uid, item)
    assert since is not None and 39 <= timers.now + by - since / 1e9 <= 40


def test_it_stops_soon_after_the_last_activity_and_starts_with_the_next(
    timers: Timers, pulse: ActorPulse, cell: Cell
) -> None:
    cell.begin("step")
    pulse.start()
    assert 9 <= timers.pass_by(10) <= 12
    cell.active.clear()
    # one look that finds nothing, and another one
    assert timers.pass_by(10) == 2 and not pulse.beating
    assert timers.pass_by(1_000) == 0
    pulse.start()
    assert timers.pass_by(10) == 2


def test_who_got_active_while_it_stopped_is_seen_by_the_last_look(
    timers: Timers, pulse: ActorPulse, cell: Cell
) -> None:
    pulse.start()
    timers.pass_by(0.5)
    assert not pulse.beating
    item = cell.begin("step")  # its thread had seen it go on
    timers.pass_by(10)
    assert pulse.beating and pulse.since(cell.uid, item)


def test_it_goes_on_while_messages_are_queued(
    timers: Timers, pulse: ActorPulse, cell: Cell
) -> None:
    cell.waiting = 1
    pulse.start()
    timers.pass_by(100)
    assert pulse.beating


def test_another_call_at_the_same_place_in_memory_is_not_taken_for_the_one_before(
    timers: Timers, pulse: ActorPulse, cell: Cell
) -> None:
    item = cell.begin("step")
    pulse.start()
    timers.pass_by(50)
    cell.begun["step"] += 1  # the tuple of the next one, where that of the last was
    timers.pass_by(10)
    since = pulse.since(cell.uid, item)
    assert since is not None and since / 1e9 >= 150


def test_a_concurrent_call_is_stuck_though_others_of_its_endpoint_end(
    timers: Timers, pulse: ActorPulse, cell: Cell
) -> None:
    class Task: ...

    task = Task()
    item = cell.begin("fetch", task)
    pulse.start()
    timers.pass_by(5)
    for _ in range(10):
        other = Task()
        cell.begin("fetch", other)
        timers.pass_by(1)
        del cell.active[other]
    since = pulse.since(cell.uid, item)
    assert since is not None and since / 1e9 <= 101
