from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monarch._core.shape import Extent, Point, Region, Shape, Slice

# Ranks 0..2 / 3..5.
GRID = Shape(["hosts", "gpus"], Slice.new_row_major([2, 3]))
# Ranks 1, 4.
COLUMN = Shape(["hosts"], Slice(offset=1, sizes=[2], strides=[3]))


def test_a_shape_gives_labels_ranks_and_extent() -> None:
    assert GRID.labels == ["hosts", "gpus"]
    assert GRID.ndslice == Slice.new_row_major([2, 3])
    assert GRID.extent == Extent(["hosts", "gpus"], [2, 3])
    assert (len(GRID), GRID.ranks()) == (6, [0, 1, 2, 3, 4, 5])
    assert COLUMN.ranks() == [1, 4]


def test_a_shape_takes_its_arguments_by_name_and_shows_itself() -> None:
    assert Shape(labels=["hosts"], slice=COLUMN.ndslice) == COLUMN
    assert str(Shape(["a", "b"], Slice.new_row_major([2, 3]))) == "{a=2,b=3}"
    assert repr(COLUMN) == "Shape(labels=['hosts'], slice=Slice(offset=1, sizes=[2], strides=[3]))"


def test_the_unity_shape_has_no_dimensions_and_one_element() -> None:
    unity = Shape.unity()
    assert (unity.labels, unity.ranks(), len(unity), str(unity)) == ([], [0], 1, "{}")
    assert unity.index() == 0 and unity.coordinates(0) == {}


def test_a_shape_from_an_extent_is_row_major() -> None:
    assert Shape.from_extent(GRID.extent) == GRID
    assert Shape.from_extent(Extent([], [])) == Shape.unity()


def test_at_picks_an_index_and_drops_the_dimension() -> None:
    assert GRID.at("gpus", 1) == COLUMN
    assert GRID.at("gpus", 1).at("hosts", 1).ranks() == [4]


def test_select_restricts_a_dimension_and_keeps_it() -> None:
    assert GRID.select("gpus", slice(1, 2)) == Shape(
        ["hosts", "gpus"], Slice(offset=1, sizes=[2, 1], strides=[3, 1])
    )
    assert GRID.select("gpus", slice(None, None, 2)).ranks() == [0, 2, 3, 5]


def test_coordinates_lead_to_a_rank_and_back() -> None:
    assert GRID.index(gpus=2, hosts=1) == 5
    assert GRID.coordinates(5) == {"hosts": 1, "gpus": 2}
    assert COLUMN.index(hosts=1) == 4
    assert COLUMN.coordinates(4) == {"hosts": 1}


def test_shapes_are_equal_and_hash_by_labels_and_ranks() -> None:
    assert Shape(("hosts",), COLUMN.ndslice) == COLUMN
    assert hash(Shape(("hosts",), COLUMN.ndslice)) == hash(COLUMN)
    for other in (Shape(["x"], COLUMN.ndslice), Shape(["hosts"], Slice.new_row_major([2]))):
        assert other != COLUMN and hash(other) != hash(COLUMN)
    assert (COLUMN.region == COLUMN) is False


def test_a_region_is_a_shape_seen_as_a_part_of_a_larger_space() -> None:
    region = Region(["hosts"], COLUMN.ndslice)
    assert COLUMN.region == region
    assert region.as_shape() == COLUMN
    assert (region.labels, region.slice(), len(region), str(region)) == (
        ["hosts"],
        COLUMN.ndslice,
        2,
        "{hosts=2}",
    )
    assert repr(region).startswith("Region(")
    assert region.point_of_base_rank(4) == Point(1, Extent(["hosts"], [2]))


@pytest.mark.parametrize(
    ("use", "error", "named"),
    [
        (lambda: Shape(["a"], GRID.ndslice), ValueError, "1 labels ['a'] for 2 dimensions"),
        (lambda: Region(["a"], GRID.ndslice), ValueError, "Region needs one label"),
        (lambda: Shape(["a", "a"], GRID.ndslice), ValueError, "'a' twice"),
        (lambda: Shape("ab", GRID.ndslice), TypeError, "'ab'"),
        # the point of the test
        (lambda: Shape(["a", 3], GRID.ndslice), TypeError, "3"),  # type: ignore[list-item]
        # the point of the test
        (lambda: Shape(["a"], [2]), TypeError, "[2]"),  # type: ignore[arg-type]
        (lambda: GRID.at("x", 0), ValueError, "'x'; there are 'hosts', 'gpus'"),
        (
            lambda: GRID.at("gpus", 3),
            ValueError,
            "index 3 is out of range for dimension 'gpus' of size 3",
        ),
        (
            lambda: GRID.at("gpus", -1),
            OverflowError,
            "index -1 is out of range for dimension 'gpus'",
        ),
        (lambda: GRID.at("gpus", -1), ValueError, "index -1 is out of range for dimension 'gpus'"),
        # the point of the test
        (lambda: GRID.at("gpus", "a"), TypeError, "'a'"),  # type: ignore[arg-type]
        (lambda: GRID.select("x", slice(1)), ValueError, "'x'"),
        (lambda: GRID.select("gpus", slice(2, 2)), ValueError, "2:2"),
        (lambda: GRID.select("gpus", slice(3, 0, -1)), ValueError, "3:0:-1"),
        (lambda: GRID.select("gpus", slice(0, 1, 0)), ValueError, "0:1:0"),
        (lambda: GRID.select("gpus", slice("a")), TypeError, ":a:"),
        (lambda: GRID.select("gpus", slice(0, 2, 1.5)), TypeError, "0:2:1.5"),
        # the point of the test
        (lambda: GRID.select("gpus", 1), TypeError, "got 1"),  # type: ignore[arg-type]
        (lambda: GRID.index(gpus=1), KeyError, "missing ['hosts']"),
        (lambda: GRID.index(gpus=1, hosts=0, z=0), KeyError, "extra dimensions ['z']"),
        (lambda: GRID.index(gpus=3, hosts=0), IndexError, "index 3"),
        (lambda: GRID.index(gpus=-1, hosts=0), IndexError, "index -1"),
        (lambda: GRID.coordinates(6), ValueError, "rank 6"),
        (lambda: COLUMN.coordinates(2), ValueError, "rank 2"),
        (lambda: COLUMN.region.point_of_base_rank(2), ValueError, "rank 2"),
    ],
)
def test_a_wrong_use_of_a_shape_is_refused_with_what_is_wrong(
    use: Callable[[], object], error: type[Exception], named: str
) -> None:
    with pytest.raises(error) as caught:
        use()
    assert named in str(caught.value)


def test_only_a_negative_index_overflows() -> None:
    with pytest.raises(ValueError) as caught:
        GRID.at("gpus", 3)
    assert not isinstance(caught.value, OverflowError)


@pytest.mark.parametrize("value", [GRID, COLUMN, Shape.unity(), COLUMN.region])
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_shapes_and_regions_survive_pickling(value: object, protocol: int) -> None:
    assert pickle.loads(pickle.dumps(value, protocol)) == value


def test_a_shape_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        GRID.ndslice = COLUMN.ndslice  # type: ignore[misc]  # the point of the test
    with pytest.raises(AttributeError):
        GRID.other = 1  # type: ignore[attr-defined]  # the point of the test
    GRID.labels.append("x")
    assert GRID.labels == ["hosts", "gpus"]


@given(st.lists(st.integers(1, 4), min_size=1, max_size=3), st.data())
def test_at_and_select_pick_what_numpy_picks(sizes: list[int], data: st.DataObject) -> None:
    labels = [f"d{i}" for i in range(len(sizes))]
    shape = Shape(labels, Slice.new_row_major(sizes))
    array: Any = np.arange(len(shape)).reshape(sizes)
    dim = data.draw(st.integers(0, len(sizes) - 1))
    i = data.draw(st.integers(0, sizes[dim] - 1))
    assert shape.at(labels[dim], i).ranks() == array.take(i, axis=dim).ravel().tolist()
    start, step = data.draw(st.integers(0, sizes[dim] - 1)), data.draw(st.integers(1, 3))
    picked = array[(slice(None),) * dim + (slice(start, None, step),)]
    selected = shape.select(labels[dim], slice(start, None, step))
    assert selected.ranks() == picked.ravel().tolist()
    assert selected.extent.sizes == list(picked.shape)
    for coordinates in np.ndindex(*picked.shape):
        rank = int(picked[coordinates])
        assert selected.index(**dict(zip(labels, coordinates, strict=True))) == rank
        assert tuple(selected.coordinates(rank).values()) == coordinates
