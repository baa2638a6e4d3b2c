"""Which lines are asked for: `LineFilter`."""

from __future__ import annotations

import logging

import pytest

from monarch.logs.filter import LineFilter, parse_level
from monarch.logs.line import LogLine
from monarch.logs.ranks import coordinates

LINE = LogLine(100.0, "log", logging.WARNING, "loss is 0.5", "h0", "trainers", 5, "hosts=1,gpus=1")


@pytest.mark.parametrize(
    ("wanted", "matches"),
    [
        (LineFilter(), True),
        (LineFilter(mesh="trainers"), True),
        (LineFilter(mesh="train"), False),
        (LineFilter(ranks="0,3-5"), True),
        (LineFilter(ranks="0-4"), False),
        (LineFilter(ranks="hosts=1,gpus=:2"), True),
        (LineFilter(ranks="hosts=0"), False),
        (LineFilter(ranks="cores=0"), False),
        (LineFilter(level=logging.WARNING), True),
        (LineFilter(level=logging.ERROR), False),
        (LineFilter(grep=r"loss is \d"), True),
        (LineFilter(grep="^is"), False),
        (LineFilter(since=100.0), True),
        (LineFilter(since=100.1), False),
        (LineFilter(until=100.0), True),
        (LineFilter(until=99.9), False),
        (LineFilter("trainers", "5", logging.INFO, "0.5", 99.0), True),
        (LineFilter("trainers", "5", logging.INFO, "0.6", 99.0), False),
    ],
)
def test_a_line_matches_if_it_is_all_that_is_asked_for(wanted: LineFilter, matches: bool) -> None:
    assert wanted.matcher()(LINE) is matches


def test_what_was_printed_has_no_level() -> None:
    printed = LINE._replace(stream="stderr", level=0)
    assert not LineFilter(level=1).matcher()(printed) and LineFilter().matcher()(printed)


def test_what_cannot_be_read_is_refused_before_any_line_is() -> None:
    with pytest.raises(ValueError, match=r"'\(' is no regular expression: .*unterminated"):
        LineFilter(grep="(").matcher()
    with pytest.raises(ValueError, match="'5-' does not say which ranks"):
        LineFilter(ranks="5-").matcher()


def test_coordinates_are_read_from_their_text() -> None:
    assert coordinates("hosts=1,gpus=3") == {"hosts": 1, "gpus": 3}
    assert coordinates("") == {} and coordinates("rubbish,x=,y=-1,z=1") == {"z": 1}


@pytest.mark.parametrize(
    ("text", "level"), [("info", 20), ("WARNING", 30), ("warn", 30), ("35", 35), ("critical", 50)]
)
def test_a_level_has_a_name_or_a_number(text: str, level: int) -> None:
    assert parse_level(text) == level


@pytest.mark.parametrize("text", ["", "loud", "0", "256", "-10", "1.5"])
def test_what_is_no_level_is_refused_with_those_there_are(text: str) -> None:
    with pytest.raises(ValueError, match="a level is one of DEBUG, INFO"):
        parse_level(text)
