"""Which messages are looked at, on a clock that the test moves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monarch.telemetry.answer import Collected, is_said_of, join, of_rows
from monarch.telemetry.programs import unfilled
from monarch.telemetry.registry import AGENT, PROC, Incomplete, producer_of
from monarch.telemetry.sampling import RATE, Sampling
from monarch.telemetry.tables import EMPTY, TABLES


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def looks(
    sampling: Sampling, clock: Clock, count: int, rate: float, kinds: int = 1
) -> list[tuple[int, int]]:
    """Of `count` messages, `rate` in a second, of kinds in turn: those looked at, as kind and
    weight.
    """
    found = []
    left = sampling.gap
    for number in range(count):
        clock.now += 1 / rate
        left -= 1
        if not left:
            found.append((number % kinds, sampling.looked()))
            left = sampling.gap
    return found


def test_all_of_few_messages_are_looked_at() -> None:
    clock = Clock()
    found = looks(Sampling(clock, seed=1), clock, 5_000, RATE / 2)
    assert found == [(0, 1)] * 5_000


@pytest.mark.parametrize("rate", [10_000, 100_000, 1_000_000])
def test_of_many_messages_about_so_many_are_looked_at_and_the_weights_add_up(rate: int) -> None:
    clock = Clock()
    sampling = Sampling(clock, seed=2)
    looks(sampling, clock, 10_000, rate)  # it has to find out
    found = looks(sampling, clock, 2 * rate, rate)  # two seconds
    assert RATE / 2 <= len(found) / 2 <= 1.5 * RATE
    assert sum(weight for _, weight in found) == pytest.approx(2 * rate, rel=0.1)


def test_messages_that_alternate_are_all_seen_in_their_shares() -> None:
    clock = Clock()
    sampling = Sampling(clock, seed=3)
    found = looks(sampling, clock, 400_000, 50_000, kinds=4)
    shares = [sum(weight for kind, weight in found if kind == each) / 400_000 for each in range(4)]
    assert shares == pytest.approx([0.25] * 4, abs=0.03)


def test_after_a_flood_all_of_few_messages_are_looked_at_again() -> None:
    clock = Clock()
    sampling = Sampling(clock, seed=4)
    looks(sampling, clock, 200_000, 200_000)
    sampling.ease()
    assert sampling.weight > 256  # the flood still goes on
    for _ in range(2):
        looks(sampling, clock, 100, 100)
        sampling.ease()
    assert looks(sampling, clock, 1_000, 100) == [(0, 1)] * 1_000


def test_to_ease_is_to_look_next_and_the_thread_that_looks_does_the_rest() -> None:
    clock = Clock()
    sampling = Sampling(clock, seed=6)
    looks(sampling, clock, 200_000, 200_000)
    weight, clock.now = sampling.weight, clock.now + 10
    sampling.ease()
    assert (sampling.gap, sampling.weight) == (
        1,
        weight,
    ), "a count of the other thread is left alone"
    assert sampling.looked() == sampling.weight < weight


def test_a_burst_is_looked_at_whole_for_a_moment_only() -> None:
    clock = Clock()
    assert len(looks(Sampling(clock, seed=5), clock, 10_000, 100_000)) < RATE / 2


def test_what_is_not_adaptive_looks_at_everything() -> None:
    clock = Clock()
    assert len(looks(Sampling(clock, adaptive=False), clock, 10_000, 1e6)) == 10_000


@pytest.mark.parametrize("more", range(10_000, 24_000, 1_000))
def test_what_has_just_been_eased_looks_at_everything_from_when_it_is_asked_to(more: int) -> None:
    clock = Clock()
    sampling = Sampling(clock, seed=7)
    looks(sampling, clock, 50_000, 100_000)
    looks(sampling, clock, more, 190_000)
    sampling.ease()
    sampling.adapt(False)
    clock.now += 0.05
    found = looks(sampling, clock, 1_000, 100_000)
    assert len(found) == 1_000 and {weight for _, weight in found} == {1}


@given(st.lists(st.integers(0, 1000), max_size=30), st.integers(0, 40), st.integers(0, 1000))
def test_the_latest_rows_are_kept_and_the_others_counted(
    times: list[int], limit: int, since: int
) -> None:
    rows = [(number, at, 7, "Idle", None) for number, at in enumerate(sorted(times))]
    found = of_rows({"actor_status_events": rows}, {"actor_status_events": ["id"]}, since, limit)
    wanted = [number for number, at, *_ in rows if at >= since]
    kept = wanted[-limit:] if limit else []
    [columns] = found.columns.values()
    # by which the latest of all are told
    assert columns["id"] == kept and list(columns) == ["id", "timestamp_us"]
    assert found.left_out.get("actor_status_events", 0) == len(wanted) - len(kept)


def test_events_that_are_too_late_push_out_none_that_are_wanted() -> None:
    rows = [(number, number, 7, "Idle", None) for number in range(10)]
    found = of_rows({"actor_status_events": rows}, {}, 2, 3, until_us=6)
    assert found.columns["actor_status_events"]["id"] == [4, 5, 6] and found.left_out == {
        "actor_status_events": 2
    }


@given(st.lists(st.lists(st.integers(0, 1000), max_size=12), max_size=4), st.integers(0, 20))
def test_of_joined_events_the_latest_are_kept_in_any_order_of_answers(
    answers: list[list[int]], limit: int
) -> None:
    every = sorted((at for times in answers for at in times), reverse=True)
    each = [
        of_rows(
            {"span_events": [(7, 1, at, "enter") for at in times]},
            {"span_events": ["id"]},
            None,
            limit,
        )
        for times in answers
    ]
    joined = join(each, {}, limit)
    assert (
        sorted(joined.columns.get("span_events", {}).get("timestamp_us", []), reverse=True)
        == every[:limit]
    )
    assert joined.left_out.get("span_events", 0) == max(0, len(every) - limit)


def test_answers_are_joined_by_column_within_the_limit() -> None:
    one = Collected({"actors": {"a": [1, 2], "b": [3, 4]}}, {"x": "gone"}, {"actors": 5})
    two = Collected({"actors": {"a": [5], "b": [6]}}, {}, {})
    joined = join([one, two], {"y": "late"}, 2)
    columns = {"actors": {"a": [2, 5], "b": [4, 6]}}
    assert joined == Collected(columns, {"x": "gone", "y": "late"}, {"actors": 6})
    assert joined.rows("actors") == [{"a": 2, "b": 4}, {"a": 5, "b": 6}]


def test_a_table_that_raises_costs_only_itself() -> None:
    def broken() -> Iterator[tuple[Any, ...]]:
        yield 7, 1, 5, "enter"
        raise OSError("no text")

    found = of_rows({"span_events": broken(), "snapshots": [("now", 5)]}, {}, None, 10, "p[0]")
    assert (
        found.rows("snapshots") == [{"snapshot_id": "now", "snapshot_ts": 5}]
        and found.rows("span_events") == []
    )
    assert found.silent == {"span_events of p[0]": "OSError: no text"}


def test_a_producer_that_can_give_a_part_says_what_is_missing() -> None:
    def cut() -> Iterator[tuple[Any, ...]]:
        yield "now", 5
        raise Incomplete("the rest is too long")

    found = of_rows({"snapshots": cut()}, {}, None, 10, "p[0]")
    assert found.rows("snapshots") == [{"snapshot_id": "now", "snapshot_ts": 5}]
    assert found.silent == {"snapshots of p[0]": "the rest is too long"}
    [name] = found.silent
    assert (
        is_said_of(name, ("snapshots",))
        and not is_said_of(name, ("actors",))
        and is_said_of("p[0] of ours", ())
    )


def test_the_tables_that_nothing_fills_are_known() -> None:
    filled = {
        table
        for table in TABLES
        for where in (PROC, AGENT)
        if producer_of(table, where) is not None
    }
    assert set(EMPTY) == set(TABLES) - filled
    assert unfilled(["actors", "resolution_errors"]) == {
        "table resolution_errors": (
            "it is always empty: who does not answer is named with each answer"
        )
    }
