"""The timeline of made-up rows, as the official schema reads it."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import pytest

from helpers.perfetto_traces import shown_by, tracks_of
from monarch.telemetry.timeline import MESSAGE, NEEDS, SPAN, Window, _lanes, _Slice, draw

pytest.importorskip("perfetto")

T0 = 1_800_000_000_000_000  # microseconds
WINDOW = Window(T0, T0 + 1_000, {})
HOST, PROC, SENDER, RECEIVER = 1, 2, 3, 4


def rows(**more: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    tables: dict[str, list[dict[str, Any]]] = {table: [] for table in NEEDS}
    tables["hosts"] = [{"id": HOST, "address": "tcp://a:1", "machine": "a"}]
    tables["procs"] = [
        {
            "id": PROC,
            "mesh": "m",
            "rank": 0,
            "host_id": HOST,
            "pid": 7,
            "state": "up",
            "reason": None,
        }
    ]
    tables["actors"] = [
        {"id": who, "name": name, "rank": 0, "class": "C", "proc_id": PROC, "status": "Idle"}
        for who, name in ((SENDER, "sender"), (RECEIVER, "receiver"))
    ]
    return {**tables, **more}


def message(
    at: int, took: int | None, number: int = 100, call: int | None = None, name: str = "go"
) -> dict[str, Any]:
    return {
        "id": number, "timestamp_us": T0 + at, "from_actor_id": SENDER, "to_actor_id": RECEIVER, "endpoint": name,
        "bytes": 10, "duration_us": took, "call": call, "sample_weight": 1,
    }  # fmt: skip


def span(
    at: int, took: int | None, name: str = "load", actor: int | None = RECEIVER
) -> dict[str, Any]:
    return {
        "process_id": PROC, "id": 1, "name": name, "fields_json": '{"shard": 3}', "timestamp_us": T0 + at,
        "duration_us": took, "actor_id": actor, "thread_name": "reader",
    }  # fmt: skip


def sent(at: int, call: int | None) -> dict[str, Any]:
    return {
        "timestamp_us": T0 + at, "sender_actor_id": SENDER, "endpoint": "go", "bytes": 10, "call": call, "sample_weight": 1
    }  # fmt: skip


def test_a_span_is_inside_of_the_message_that_it_began_in() -> None:
    found = shown_by(
        draw(
            rows(messages=[message(10, 20)], spans=[span(10, 20), span(12, 3, "inner")]), WINDOW
        ).content
    )
    assert [(each.name, each.depth, each.track) for each in found] == [
        (name, depth, "host a (tcp://a:1) / proc m[0] (process 7) / actor receiver[0]")
        for depth, name in enumerate(("go", "load", "inner"))
    ]
    assert found[0].begin == (T0 + 10) * 1000 and found[0].end == (T0 + 30) * 1000
    assert found[1].fields == {"shard": 3} and found[0].fields == {"from": "sender[0]", "bytes": 10}


def test_messages_that_are_handled_at_once_are_side_by_side() -> None:
    messages = [message(10, 100, 1), message(20, 50, 2), message(30, 60, 3), message(75, 5, 4)]
    found = shown_by(draw(rows(messages=messages), WINDOW).content)
    assert all(each.depth == 0 for each in found) and len(found) == 4
    by_track: dict[str, int] = {}
    for each in found:
        by_track[each.track] = by_track.get(each.track, 0) + 1
    assert sorted(by_track.values()) == [1, 3]  # beside it two, and a third one behind one of these


def test_an_arrow_leads_from_a_call_to_each_that_handles_it_and_none_to_another() -> None:
    messages = [
        message(10, 5, 101, call=7),
        message(12, 5, 102, call=7),
        message(30, 5, 103, call=8),
        message(40, 1, 104),
    ]
    found = shown_by(
        draw(rows(messages=messages, sent_messages=[sent(5, 7), sent(35, None)]), WINDOW).content
    )
    sends = [each for each in found if each.category == "send"]
    assert [(each.starts, each.end) for each in sends] == [((101, 102), None), ((), None)]
    assert sorted(each.ends for each in found if each.category == "message") == [
        (),
        (),
        (101,),
        (102,),
    ]


def test_what_is_of_another_time_is_left_out_and_what_goes_on_ends_with_the_window() -> None:
    messages = [
        message(-50, 40, 1, name="before"),
        message(-50, 60, 2, name="into"),
        message(2_000, 1, 3, name="after"),
    ]
    found = shown_by(
        draw(rows(messages=[*messages, message(100, None, 4, name="on")]), WINDOW).content
    )
    assert [each.name for each in found] == ["into", "on"]
    assert found[1].end == WINDOW.end * 1000 and found[1].fields["unfinished"] is True


def test_a_host_whose_clock_is_ahead_is_shown_by_ours() -> None:
    ahead = Window(T0, T0 + 1_000, {HOST: 5_000_000})
    tables = rows(messages=[message(5_000_010, 20)], spans=[span(5_000_020, None)])
    message_, span_ = shown_by(draw(tables, ahead).content)
    assert (message_.begin, span_.begin) == ((T0 + 10) * 1000, (T0 + 20) * 1000)
    assert not shown_by(draw(tables, WINDOW).content)


def test_a_step_ends_where_the_next_one_begins() -> None:
    steps = [
        {
            "timestamp_us": T0 + at,
            "proc_id": PROC,
            "actor_id": RECEIVER,
            "step": at,
            "duration_us": 0,
        }
        for at in (300, 0)
    ]
    found = shown_by(draw(rows(steps=steps), WINDOW).content)
    assert [
        (each.name, each.begin // 1000 - T0, (each.end or 0) // 1000 - T0) for each in found
    ] == [
        ("step 0", 0, 300),
        ("step 300", 300, 1_000),
    ]
    assert all(each.track.endswith("/ actor receiver[0] / steps") for each in found)


def test_what_is_not_known_any_more_has_a_track_as_well() -> None:
    tables = rows(messages=[message(1, 1)], spans=[span(1, 1, actor=None)])
    tables["actors"], tables["hosts"] = [], []
    assert len(shown_by(draw(tables, WINDOW).content)) == 2
    assert "proc m[0] (process 7) / thread reader" in tracks_of(draw(tables, WINDOW).content)
    assert draw(rows(), WINDOW).slices == 0


def test_texts_of_any_kind_and_numbers_of_any_size_are_written() -> None:
    odd = span(1, 1, "half a \ud800 character")
    odd["fields_json"] = (
        '{"big": 100000000000000000000, "minus": -5, "real": 0.5, "no": false, "none": null}'
    )
    [found] = shown_by(draw(rows(spans=[odd]), WINDOW).content)
    assert found.name == "half a ? character"
    assert found.fields == {"big": "100000000000000000000", "minus": -5, "real": 0.5, "no": False}


def seconds_of_lanes(at_once: int) -> float:
    slices = [_Slice(number, number + at_once, "go", MESSAGE, {}) for number in range(10_000)]
    begin = time.thread_time()
    lanes = _lanes(slices)
    took = time.thread_time() - begin
    assert len(lanes) == at_once and sorted(each.begin for lane in lanes for each in lane) == list(
        range(10_000)
    )
    assert all(before.end <= after.begin for lane in lanes for before, after in pairwise(lane))
    return took


def test_two_thousand_messages_at_once_are_laid_out_about_as_fast_as_ten() -> None:
    few, many = (min(seconds_of_lanes(at_once) for _ in range(3)) for at_once in (10, 2_000))
    assert many < 15 * few, (
        f"{many:.3f} s, not {few:.3f} s: it must not look at each lane for each message"
    )


def test_spans_are_in_what_they_began_in_and_take_lanes_that_are_free_again() -> None:
    message = [
        _Slice(0, 100, "a", MESSAGE, {}),
        _Slice(10, 60, "b", MESSAGE, {}),
        _Slice(70, 90, "c", MESSAGE, {}),
    ]
    spans = [
        _Slice(20, 50, "d", SPAN, {}),
        _Slice(95, 120, "e", SPAN, {}),
        _Slice(110, 130, "f", SPAN, {}),
    ]
    assert [[each.name for each in lane] for lane in _lanes([*message, *spans])] == [
        ["a", "d", "f"],
        ["b", "c", "e"],
    ]
