"""Meshes drawn as grids."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

from monarch._core.shape import Extent
from monarch._patterns.grid import as_html, as_text


def drawn(**sizes: int) -> list[str]:
    title, *lines = as_text(
        "title", Extent([*sizes], [*sizes.values()]), lambda rank: f"r{rank}"
    ).split("\n")
    assert title == "title"
    return lines


def test_two_dimensions_are_rows_and_columns() -> None:
    assert drawn(hosts=2, gpus=3) == [
        "  hosts\\gpus  0   1   2",
        "  0           r0  r1  r2",
        "  1           r3  r4  r5",
    ]


def test_one_dimension_is_rows_and_a_mesh_without_any_is_one_cell() -> None:
    assert drawn(hosts=2) == ["  hosts", "  0      r0", "  1      r1"]
    assert [line.strip() for line in drawn() if line.strip()] == ["r0"]


def test_more_dimensions_are_blocks_with_titles() -> None:
    assert drawn(a=2, b=1, c=1, d=2) == [
        "  a=0, b=0",
        "  c\\d  0   1",
        "  0    r0  r1",
        "  a=1, b=0",
        "  c\\d  0   1",
        "  0    r2  r3",
    ]


def test_what_is_long_is_left_out_in_the_middle() -> None:
    rows = drawn(hosts=100, gpus=16)
    assert [line.split()[0] for line in rows] == [
        "hosts\\gpus",
        "0",
        "1",
        "2",
        "...",
        "97",
        "98",
        "99",
    ]
    assert rows[0].split()[1:] == ["0", "1", "2", "...", "13", "14", "15"]
    assert rows[1].split() == ["0", "r0", "r1", "r2", "...", "r13", "r14", "r15"]
    assert rows[-1].split() == ["99", "r1584", "r1585", "r1586", "...", "r1597", "r1598", "r1599"]
    assert len(drawn(hosts=20)) == 21
    assert len(drawn(hosts=10_000)) == 8
    titles = [line.strip() for line in drawn(a=100, b=1, c=1) if "a=" in line]
    assert titles == ["a=0", "a=1", "a=2", "a=...", "a=97", "a=98", "a=99"]


class Texts(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.found.append(data)


@pytest.mark.parametrize(
    ("sizes", "texts"),
    [
        ({"b": 2, "c": 1}, ["<t>", "b\\c", "0", "0", "<0>", "1", "<1>"]),
        (
            {"a": 2, "b": 1, "c": 1},
            ["<t>", "a=0", "b\\c", "0", "0", "<0>", "a=1", "b\\c", "0", "0", "<1>"],
        ),
        ({}, ["<t>", "<0>"]),
    ],
)
def test_html_has_the_same_cells_escaped(sizes: dict[str, int], texts: list[str]) -> None:
    parser = Texts()
    parser.feed(as_html("<t>", Extent([*sizes], [*sizes.values()]), lambda rank: f"<{rank}>"))
    parser.close()
    assert (parser.found, parser.open) == (texts, [])
