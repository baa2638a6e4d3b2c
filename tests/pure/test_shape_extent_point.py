from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monarch._core.shape import Extent, Point, Region, Slice

GRID = Extent(["hosts", "gpus"], [2, 3])
NONE = Extent([], [])

some_sizes = st.lists(st.integers(1, 4), max_size=4)


def extent_of(sizes: list[int]) -> Extent:
    return Extent([f"d{i}" for i in range(len(sizes))], sizes)


def test_an_extent_gives_labels_and_sizes_as_lists_in_order() -> None:
    assert GRID.labels == ["hosts", "gpus"]
    assert GRID.sizes == [2, 3]


def test_an_extent_counts_elements_and_its_length_counts_dimensions() -> None:
    assert (GRID.nelements, len(GRID)) == (6, 2)


def test_an_extent_without_dimensions_has_one_element() -> None:
    assert (NONE.nelements, len(NONE), repr(NONE)) == (1, 0, "{}")


def test_an_extent_is_a_complete_mapping_from_label_to_size() -> None:
    assert isinstance(GRID, Mapping)
    assert dict(GRID) == {"hosts": 2, "gpus": 3}
    assert list(GRID) == GRID.keys() == ["hosts", "gpus"]
    assert list(GRID.items()) == [("hosts", 2), ("gpus", 3)]
    assert list(GRID.values()) == [2, 3]
    assert GRID["gpus"] == GRID.get("gpus") == 3
    assert GRID.get("x") is None
    assert "gpus" in GRID and "x" not in GRID


@pytest.mark.parametrize("kind", [ValueError, KeyError])
def test_an_unknown_label_is_a_value_error_and_a_key_error_naming_it(
    kind: type[Exception],
) -> None:
    with pytest.raises(kind) as caught:
        GRID["x"]
    assert str(caught.value) == "no dimension 'x'; there are 'hosts', 'gpus'"


def test_an_extent_shows_its_sizes_by_label() -> None:
    assert repr(GRID) == "{hosts: 2, gpus: 3}"


def test_extents_are_equal_if_labels_order_and_sizes_are() -> None:
    assert Extent(("hosts", "gpus"), (2, 3)) == GRID
    assert Extent(["gpus", "hosts"], [3, 2]) != GRID
    for other in (Extent(["hosts", "gpus"], [2, 4]), Extent(["hosts", "z"], [2, 3])):
        assert other != GRID and hash(other) != hash(GRID)
    assert (GRID == {"hosts": 2, "gpus": 3}) is False


def test_equal_extents_have_equal_hashes() -> None:
    assert len({GRID, Extent(["hosts", "gpus"], [2, 3]), NONE}) == 2


def test_an_extent_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        GRID.labels = ["x"]  # type: ignore[misc]  # the point of the test
    with pytest.raises(AttributeError):
        GRID.other = 1  # type: ignore[attr-defined]  # the point of the test
    GRID.sizes.append(7)
    GRID.labels.append("x")
    GRID.keys().append("x")
    assert Extent(["hosts", "gpus"], [2, 3]) == GRID


def test_the_region_of_an_extent_holds_its_ranks_in_row_major_order() -> None:
    assert GRID.region == Region(["hosts", "gpus"], Slice.new_row_major([2, 3]))


def test_an_extent_takes_whole_numbers_of_other_types() -> None:
    extent = Extent(["a"], [np.int64(3)])
    assert extent == Extent(["a"], [3])
    assert type(extent["a"]) is int


@pytest.mark.parametrize(
    ("labels", "sizes", "error", "named"),
    [
        (["a"], [1, 2], ValueError, "1 labels ['a'] and 2 sizes [1, 2]"),
        (["a", "b", "a"], [1, 2, 3], ValueError, "'a' twice in ['a', 'b', 'a']"),
        (["c", "a", "a"], [1, 2, 3], ValueError, "'a' twice in ['c', 'a', 'a']"),
        (["a"], [0], ValueError, "size 0"),
        (["a", "b"], [2, -1], ValueError, "size -1 in [2, -1]"),
        (["a"], [1.5], TypeError, "1.5"),
        (["a"], ["2"], TypeError, "'2'"),
        ([3], [1], TypeError, "3"),
        ("gpus", [1, 2, 3, 4], TypeError, "['gpus']"),
    ],
)
def test_a_wrong_extent_is_refused_with_what_is_wrong(
    labels: Any, sizes: Any, error: type[Exception], named: str
) -> None:
    with pytest.raises(error) as caught:
        Extent(labels, sizes)
    assert named in str(caught.value)


def test_a_point_maps_each_label_to_an_index() -> None:
    point = Point(4, GRID)
    assert (point["hosts"], point["gpus"]) == (1, 1)
    assert dict(point) == dict(**point) == {"hosts": 1, "gpus": 1}
    assert list(point) == point.keys() == ["hosts", "gpus"]
    assert list(point.items()) == [("hosts", 1), ("gpus", 1)]
    assert list(point.values()) == [1, 1]
    assert point.get("x", 9) == 9
    assert "gpus" in point and "x" not in point
    assert isinstance(point, Mapping)


def test_a_point_knows_its_rank_extent_and_sizes() -> None:
    point = Point(rank=4, extent=GRID)
    assert (point.rank, point.extent, point.size("gpus"), len(point)) == (4, GRID, 3, 2)


def test_a_point_shows_index_and_size_of_each_dimension() -> None:
    assert repr(Point(1, Extent(["hosts", "gpus"], [1, 2]))) == "{'hosts': 0/1, 'gpus': 1/2}"
    assert repr(Point(0, NONE)) == "{}"


def test_points_are_equal_if_rank_and_extent_are_and_can_be_dict_keys() -> None:
    assert Point(1, GRID) == Point(1, Extent(["hosts", "gpus"], [2, 3]))
    assert Point(1, GRID) != Point(2, GRID)
    assert hash(Point(1, GRID)) != hash(Point(2, GRID))
    assert Point(1, GRID) != Point(1, Extent(["hosts", "gpus"], [2, 4]))
    assert (Point(1, GRID) == {"hosts": 0, "gpus": 1}) is False
    assert {Point(1, GRID): "one"}[Point(1, GRID)] == "one"


@pytest.mark.parametrize("kind", [ValueError, KeyError])
def test_an_unknown_label_of_a_point_is_a_value_error_and_a_key_error_that_names_it(
    kind: type[Exception],
) -> None:
    with pytest.raises(kind, match="'x'"):
        Point(0, GRID)["x"]
    with pytest.raises(kind, match="'x'"):
        Point(0, GRID).size("x")
    with pytest.raises(kind, match="there are no dimensions"):
        Point(0, NONE)["x"]


@pytest.mark.parametrize("rank", [-1, 6])
def test_a_point_outside_its_extent_can_be_made_and_shown_but_has_no_coordinates(rank: int) -> None:
    point = Point(rank, GRID)
    assert str(rank) in repr(point)
    with pytest.raises(ValueError, match=rf"rank {rank} is outside \{{hosts: 2, gpus: 3\}}"):
        point["gpus"]


def test_a_point_cannot_be_changed() -> None:
    point = Point(1, GRID)
    with pytest.raises(AttributeError):
        point.rank = 2  # type: ignore[misc]  # the point of the test
    with pytest.raises(AttributeError):
        point.other = 2  # type: ignore[attr-defined]  # the point of the test


@pytest.mark.parametrize("value", [GRID, NONE, Point(4, GRID), Point(0, NONE), Point(99, GRID)])
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_extents_and_points_survive_pickling(value: object, protocol: int) -> None:
    assert pickle.loads(pickle.dumps(value, protocol)) == value


@given(some_sizes)
def test_coordinates_of_points_are_those_of_numpy(sizes: list[int]) -> None:
    extent = extent_of(sizes)
    for rank, coordinates in enumerate(np.ndindex(*sizes)):
        assert tuple(Point(rank, extent).values()) == coordinates
    assert extent.nelements == rank + 1
