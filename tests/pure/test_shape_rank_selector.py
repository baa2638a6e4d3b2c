"""Ranks as a person writes them: `RankSelector`."""

from __future__ import annotations

import pickle
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monarch._core.shape import Extent, Point
from monarch._core.shape.checks import LabelError
from monarch._rank_selector import RankSelector

MESH = Extent(["hosts", "gpus"], [3, 4])


def picked(text: str, extent: Extent = MESH) -> list[int]:
    return RankSelector(text).ranks(extent)


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("0", [0]),
        ("11", [11]),
        ("0,3-5", [0, 3, 4, 5]),
        ("5-5", [5]),
        ("5,0,5", [0, 5]),
        (" 0 , 3-5 ", [0, 3, 4, 5]),
        ("0:4", [0, 1, 2, 3]),
        ("8:", [8, 9, 10, 11]),
        (":2", [0, 1]),
        (":", list(range(12))),
        ("::5", [0, 5, 10]),
        ("1::5", [1, 6, 11]),
        ("1:8:3", [1, 4, 7]),
        (":8:3", [0, 3, 6]),
        ("2:4:", [2, 3]),
        ("::2,1", [0, 1, 2, 4, 6, 8, 10]),
        ("10-99", [10, 11]),
        ("hosts=1", [4, 5, 6, 7]),
        ("gpus=0", [0, 4, 8]),
        ("gpus=0:2", [0, 1, 4, 5, 8, 9]),
        ("gpus=2-3", [2, 3, 6, 7, 10, 11]),
        ("gpus=::2", [0, 2, 4, 6, 8, 10]),
        ("gpus=(0,2)", [0, 2, 4, 6, 8, 10]),
        ("gpus=(0,2:)", [0, 2, 3, 4, 6, 7, 8, 10, 11]),
        ("hosts=(0, 2), gpus=1", [1, 9]),
        ("hosts=1,gpus=0:4", [4, 5, 6, 7]),
        ("hosts = 1 , gpus = 3", [7]),
        ("gpus=3,hosts=1", [7]),
    ],
)
def test_an_expression_selects_these_ranks_of_3_hosts_with_4_gpus(
    text: str, ranks: list[int]
) -> None:
    assert picked(text) == ranks
    selector = RankSelector(text)
    assert [rank for rank in range(12) if selector.matches(rank, dict(Point(rank, MESH)))] == ranks


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "a number or range is missing"),
        (" ", "a number or range is missing"),
        (",", "a number or range is missing"),
        ("1,", "a number or range is missing"),
        ("-1", "'-1' is no number or range"),
        ("1-", "'1-' is no number or range"),
        ("x", "'x' is no number or range"),
        ("1.5", "'1.5' is no number or range"),
        ("1 2", "'1 2' is no number or range"),
        ("٣", "'٣' is no number or range"),
        ("1:2:3:4", "'1:2:3:4' is no number or range"),
        ("(1,2)", "'(1,2)' is no number or range"),
        ("5-3", "'5-3' is empty"),
        ("4:4", "'4:4' is empty"),
        (":0", "':0' is empty"),
        ("::0", "the step of '::0' is at least 1"),
        ("gpus=", "a number or range is missing"),
        ("gpus=()", "a number or range is missing"),
        ("gpus=(0,)", "a number or range is missing"),
        ("gpus=(0,2", "'(0' is no number or range"),
        ("gpus=((0))", "'((0))' is no number or range"),
        ("=1", "'=1' is no number or range"),
        ("gpus=0,gpus=1", "'gpus' is there twice"),
        ("0,gpus=1", "both numbers of ranks and coordinates"),
        (
            "gpus=0,2",
            "both numbers of ranks and coordinates; several coordinates are written gpus=(0,2)",
        ),
        ("ranks(0)", "'ranks(0)' is no number or range"),
    ],
)
def test_what_is_no_expression_is_refused_with_the_part_and_examples(text: str, why: str) -> None:
    with pytest.raises(ValueError) as caught:
        RankSelector(text)
    assert (
        why in str(caught.value)
        and "Examples: 0,3-5" in str(caught.value)
        and "\n" not in str(caught.value)
    )


def test_what_is_no_string_is_a_type_error() -> None:
    with pytest.raises(TypeError, match=r"got \[0, 1\]"):
        RankSelector([0, 1])  # type: ignore[arg-type]


def test_an_endless_expression_is_refused_before_it_is_read() -> None:
    with pytest.raises(ValueError, match="at most 4096 characters, got 100000"):
        RankSelector("0" * 100_000)


def test_ranges_of_any_size_cost_nothing() -> None:
    selector = RankSelector("0-999999999999999999999,5:")
    assert selector.matches(10**20, {}) and selector.matches(3, {})


def test_a_mesh_without_the_dimension_is_an_error_that_names_those_it_has() -> None:
    with pytest.raises(LabelError, match=r"'gpu=0': no dimension 'gpu'; there are 'hosts', 'gpus'"):
        picked("gpu=0")


def test_a_mesh_of_which_nothing_is_meant_is_an_error_that_names_its_ranks() -> None:
    with pytest.raises(
        ValueError, match=r"'12' selects none of \{hosts: 3, gpus: 4\}, which has ranks 0 to 11"
    ):
        picked("12")


def test_a_rank_without_the_dimension_does_not_match() -> None:
    assert not RankSelector("gpus=0").matches(0, {"hosts": 0})
    assert RankSelector("0").matches(0, {})


def test_a_mesh_without_dimensions_has_rank_0() -> None:
    assert picked("0", Extent([], [])) == [0]


def test_selectors_are_compared_by_what_they_select_and_can_be_sent() -> None:
    assert RankSelector("0:2, 4") == RankSelector(" 0:2,4 ") != RankSelector("0:2")
    assert hash(RankSelector("gpus=0")) == hash(RankSelector("gpus = 0"))
    sent = pickle.loads(pickle.dumps(RankSelector(" gpus=0:4 ")))
    assert (
        sent == RankSelector("gpus=0:4")
        and str(sent) == "gpus=0:4"
        and repr(sent) == "RankSelector('gpus=0:4')"
    )
    assert sent.dimensions == ("gpus",) and RankSelector("0").dimensions == ()


@given(start=st.integers(0, 9), stop=st.integers(1, 12), step=st.integers(1, 4))
def test_a_slice_selects_what_pythons_own_selects(start: int, stop: int, step: int) -> None:
    expected = list(range(12))[start:stop:step]
    if not expected:
        with pytest.raises(ValueError, match="is empty"):
            RankSelector(f"{start}:{stop}:{step}")
    else:
        assert picked(f"{start}:{stop}:{step}") == expected


def test_coordinates_select_what_the_same_slices_of_the_mesh_have() -> None:
    for host, gpu in product(range(3), range(4)):
        assert picked(f"hosts={host},gpus={gpu}") == [host * 4 + gpu]
