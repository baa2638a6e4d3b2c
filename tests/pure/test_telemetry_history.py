"""What is kept of counts, on a clock that the test moves."""

from __future__ import annotations

from monarch.telemetry.history import LEVELS, ROW_BYTES, History

MUCH = 64 << 20


def look(history: History, now: float, actors: list[tuple[int, int, int]]) -> None:
    """By two clocks that agree."""
    history.look(now, int(now * 1e6), actors)


def run(
    history: History, seconds: int, begin: int = 1_000_000, rate: int = 5, actors: int = 1
) -> None:
    for second in range(1, seconds + 1):
        look(history, begin + second, [(uid, rate * second, 0) for uid in range(actors)])


def test_counts_are_kept_by_second_for_10_minutes_and_by_10_s_for_6_hours() -> None:
    history = History(MUCH)
    run(history, 7 * 3600)
    end = 1_000_000 + 7 * 3600
    for seconds, kept in LEVELS:
        rows = [row for row in history.rows() if row.seconds == seconds]
        assert kept // seconds <= len(rows) <= kept // seconds + 1
        assert (
            rows[-1].at // 1_000_000 > end - seconds
            and rows[0].at // 1_000_000 >= end - kept - seconds
        )
        assert {row.handled for row in rows} == {5 * seconds}


def test_an_actor_that_does_nothing_has_no_rows_unless_messages_wait_for_it() -> None:
    history = History(MUCH)
    for second in range(1, 11):
        look(history, second, [(1, 7, 0), (2, 0, 3)])
    rows = [row for row in history.rows() if row.seconds == 1]
    assert [row.handled for row in rows if row.uid == 1] == [7]
    assert [(row.handled, row.queued) for row in rows if row.uid == 2] == [(0, 3)] * 10


def test_what_was_handled_between_two_looks_is_never_lost() -> None:
    history = History(MUCH)
    for second, count in (
        (10, 1),
        (10.1, 4),
        (11, 9),
        (500, 30),
        (500.2, 31),
        (502, 31),
        (510, 40),
    ):
        look(history, second, [(1, count, 0)])
    for seconds, _ in LEVELS:
        assert sum(row.handled for row in history.rows() if row.seconds == seconds) == 40


def test_ten_thousand_short_lived_actors_and_their_hours_stay_within_the_memory() -> None:
    most = 256 << 10
    history = History(most)
    for number in range(10_000):
        look(history, number, [(number + each, 10, 1) for each in range(20)])
    assert 1_000 <= sum(1 for _ in history.rows()) * ROW_BYTES / 32 <= most / ROW_BYTES + 40
    assert all(len(level._counts) == 20 for level in history._levels)  # those that live
    latest = [row for row in history.rows() if row.seconds == 1][-20:]
    assert {row.at for row in latest} == {9_999 * 1_000_000}


def test_it_goes_on_when_the_clock_is_set_back() -> None:
    history = History(MUCH)
    for second in range(20):
        at = 1_000 + second if second < 10 else 400 + second
        history.look(second, at * 1_000_000, [(1, 5 * (second + 1), 0)])
    rows = [row for row in history.rows() if row.seconds == 1]
    assert [row.handled for row in rows] == [5] * 20
    assert [row.at // 1_000_000 for row in rows] == [*range(1_000, 1_010), *range(410, 420)]
