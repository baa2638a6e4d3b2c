"""When a loan ends: at once, or, where loans follow each other closely, when nobody has borrowed
for a moment.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from monarch._core.net import loan
from monarch._core.net.loan import Lendable

CLOSELY = 0.0001  # seconds
LONG = 60.0


class Clock:
    """The time, and a poller whose timers go off when it passes."""

    thread_id = None

    def __init__(self) -> None:
        self.now = 1000.0
        self._timers: list[tuple[float, Callable[[], None]]] = []

    def monotonic(self) -> float:
        return self.now

    def call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        self._timers.append((self.now + seconds, callback))

    def pass_by(self, seconds: float) -> int:
        """Returns how many timers went off."""
        self.now += seconds
        due = [timer for timer in self._timers if timer[0] <= self.now]
        self._timers = [timer for timer in self._timers if timer[0] > self.now]
        for _, callback in due:
            callback()
        return len(due)

    def modify(self, fd: int, events: int) -> None: ...

    def add(self, fd: int, handler: Callable[[int], None], events: int = 0) -> None: ...

    def remove(self, fd: int) -> None: ...

    def call_soon(self, callback: Callable[[], None]) -> None: ...


class Letters(Lendable):
    """Something that can be lent; `told` is each word to the poller whether it may read."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock, 0)
        self.told: list[bool] = []

    @property
    def readable_by_borrower(self) -> bool:
        return True

    def _watch(self, read: bool) -> None:
        self.told.append(read)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(loan, "time", clock)
    return clock


@pytest.fixture
def letters(clock: Clock) -> Letters:
    return Letters(clock)


def use(letters: Letters) -> None:
    assert letters.borrow()
    letters.give_back()


def linger(letters: Letters) -> None:
    use(letters)
    use(letters)


def test_the_poller_reads_again_as_soon_as_a_single_loan_ends(
    letters: Letters, clock: Clock
) -> None:
    for _ in range(3):
        use(letters)
        clock.pass_by(LONG)
    assert letters.told == [False, True] * 3


def test_of_loans_that_follow_each_other_closely_the_poller_is_not_told(
    letters: Letters, clock: Clock
) -> None:
    use(letters)
    for _ in range(1000):
        use(letters)
        clock.pass_by(CLOSELY)
    assert letters.told == [False, True, False]


def test_a_loan_that_lingers_ends_after_a_moment_without_a_borrower(
    letters: Letters, clock: Clock
) -> None:
    linger(letters)
    clock.pass_by(LONG)
    assert letters.told == [False, True, False, True]
    assert clock.pass_by(LONG) == 0


def test_nothing_looks_after_a_loan_that_goes_on(letters: Letters, clock: Clock) -> None:
    linger(letters)
    assert letters.borrow()
    assert clock.pass_by(LONG) == 1
    assert clock.pass_by(LONG) == 0
    assert letters.told == [False, True, False]
    letters.give_back()
    assert letters.told == [False, True, False, True]


def test_a_loan_that_another_thread_wanted_does_not_linger(letters: Letters) -> None:
    linger(letters)
    assert letters.borrow()
    assert not letters.borrow()
    letters.give_back()
    assert letters.told == [False, True, False, True]


def test_after_a_wrong_guess_loans_end_at_once_for_a_while(letters: Letters, clock: Clock) -> None:
    linger(letters)
    clock.pass_by(0.01)
    letters.told.clear()
    linger(letters)
    assert letters.told == [False, True] * 2
    clock.pass_by(LONG)
    letters.told.clear()
    linger(letters)
    assert letters.told == [False, True, False]


def test_a_loan_that_an_error_cut_short_ends_at_once(letters: Letters) -> None:
    linger(letters)
    assert letters.borrow()
    letters.give_back(ValueError())
    assert letters.told == [False, True, False, True]
