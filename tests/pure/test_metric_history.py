"""The course of a metric over a run: bounded, exact in the last ten minutes, whole before."""

from __future__ import annotations

import itertools

from monarch.telemetry.metric_history import MOST, Course
from monarch.telemetry.metrics import MOST_COURSES, Meter


def course_of(seconds: int, in_a_second: int = 4) -> Course:
    """One whose value is the time at which it was noted, for so long."""
    course = Course()
    for number in range(seconds * in_a_second):
        course.note(number / in_a_second, number / in_a_second)
    return course


def test_each_second_of_ten_minutes_has_its_last_value() -> None:
    points = list(course_of(600).points())
    assert [value for _, value, _ in points] == [second + 0.75 for second in range(600)]


def test_a_day_has_some_hundred_points_from_its_begin_to_its_end() -> None:
    day = 86_400
    points = list(course_of(day, 1).points())
    times = [at for at, _, _ in points]
    assert times == sorted(set(times)) and times[-600:] == [*range(day - 600, day)]
    before = times[:-600]
    assert MOST // 2 - 4 <= len(before) <= MOST
    apart = {later - earlier for earlier, later in itertools.pairwise(before)}
    assert max(apart) <= 2 * day / MOST * 2 and before[0] < 2 * max(apart)


def test_courses_of_instruments_are_as_cumulative_as_their_values() -> None:
    meter = Meter("test")
    counter, gauge = meter.create_counter("tokens"), meter.create_gauge("loss")
    histogram = meter.create_histogram("batch_time")
    for value in (3, 4):
        counter.add(value)
        gauge.set(value)
        histogram.record(value)
    ends = {each.name: each.courses()[()][-1][1:] for each in meter.instruments()}
    assert ends == {"tokens": (7, None), "loss": (4, None), "batch_time": (7, 2)}


def test_attributes_without_bound_have_courses_with_one() -> None:
    gauge = Meter("test").create_gauge("of_requests")
    for number in range(3 * MOST_COURSES):
        gauge.set(1, {"request": number})
    assert len(gauge.values()) == 3 * MOST_COURSES and len(gauge.courses()) == MOST_COURSES
