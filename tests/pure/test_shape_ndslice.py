from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monarch._core.shape import NDSlice, Slice

# Ranks 3 5 7 / 13 15 17.
STRIDED = Slice(offset=3, sizes=[2, 3], strides=[10, 2])


@st.composite
def slices_and_arrays(draw: st.DrawFn) -> tuple[Slice, Any]:
    """A slice with gaps, an offset and dimensions in any order, and the same ranks made by
    numpy.
    """
    dims = draw(
        st.lists(st.tuples(st.integers(1, 4), st.integers(0, 2), st.integers(1, 3)), max_size=4)
    )
    full = np.arange(np.prod([before + size * step for size, before, step in dims], dtype=int))
    array = full.reshape([before + size * step for size, before, step in dims])
    array = array[tuple(slice(before, before + size * step, step) for size, before, step in dims)]
    array = array.transpose(draw(st.permutations(range(len(dims)))))
    strides = [stride // array.itemsize for stride in array.strides]
    return Slice(offset=int(array.flat[0]), sizes=list(array.shape), strides=strides), array


def test_ndslice_is_another_name_of_slice() -> None:
    assert NDSlice is Slice


def test_a_slice_gives_its_parts() -> None:
    assert (STRIDED.offset, STRIDED.sizes, STRIDED.strides, STRIDED.ndim) == (3, [2, 3], [10, 2], 2)


def test_a_slice_iterates_over_its_ranks_in_row_major_order() -> None:
    assert list(STRIDED) == [3, 5, 7, 13, 15, 17]
    assert len(STRIDED) == 6


def test_a_row_major_slice_counts_from_zero() -> None:
    assert Slice.new_row_major([2, 3]) == Slice(offset=0, sizes=[2, 3], strides=[3, 1])
    assert list(Slice.new_row_major([2, 3])) == [0, 1, 2, 3, 4, 5]


def test_a_slice_without_dimensions_has_one_rank() -> None:
    unity = Slice.new_row_major([])
    assert (list(unity), len(unity), unity.coordinates(0), unity.nditem([])) == ([0], 1, [], 0)


def test_indexing_gives_a_rank_and_slicing_a_tuple_of_ranks() -> None:
    assert (STRIDED[0], STRIDED[5], STRIDED.get(3)) == (3, 17, 13)
    assert STRIDED[1:4] == (5, 7, 13)
    assert STRIDED[-2:] == (15, 17)
    assert STRIDED[9:] == ()


def test_a_rank_leads_back_to_its_position_and_coordinates() -> None:
    assert STRIDED.index(13) == 3
    assert STRIDED.coordinates(15) == [1, 1]
    assert STRIDED.nditem([1, 1]) == 15
    assert 15 in STRIDED and 14 not in STRIDED and "15" not in STRIDED


def test_a_dimension_of_size_one_may_have_any_stride() -> None:
    for stride in (0, 1, 7):
        flat = Slice(offset=5, sizes=[2, 1], strides=[1, stride])
        assert list(flat) == [5, 6]
        assert flat.coordinates(6) == [1, 0]


def test_only_dense_row_major_slices_are_contiguous() -> None:
    assert Slice.new_row_major([2, 3]).is_contiguous
    assert Slice(offset=7, sizes=[2, 3], strides=[3, 1]).is_contiguous
    assert Slice(offset=0, sizes=[1, 3], strides=[50, 1]).is_contiguous
    assert Slice.new_row_major([]).is_contiguous
    assert not STRIDED.is_contiguous
    assert not Slice(offset=0, sizes=[2, 3], strides=[1, 2]).is_contiguous


def test_slices_are_equal_and_hash_by_their_parts() -> None:
    same = Slice(offset=3, sizes=(2, 3), strides=(10, 2))
    assert same == STRIDED and hash(same) == hash(STRIDED)
    for offset, sizes, strides in (
        (4, [2, 3], [10, 2]),
        (3, [2, 2], [10, 2]),
        (3, [2, 3], [10, 3]),
    ):
        other = Slice(offset=offset, sizes=sizes, strides=strides)
        assert other != STRIDED and hash(other) != hash(STRIDED)
    assert (Slice.new_row_major([3]) == [0, 1, 2]) is False


def test_a_slice_shows_its_parts() -> None:
    assert repr(STRIDED) == "Slice(offset=3, sizes=[2, 3], strides=[10, 2])"


def test_a_slice_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        STRIDED.offset = 0  # type: ignore[misc]  # the point of the test
    STRIDED.sizes.append(1)
    STRIDED.strides.append(1)
    assert STRIDED.ndim == 2


@pytest.mark.parametrize(
    ("offset", "sizes", "strides", "error", "named"),
    [
        (0, [2], [1, 1], ValueError, "sizes [2] and strides [1, 1]"),
        (-1, [2], [1], ValueError, "-1"),
        (0, [0], [1], ValueError, "size 0"),
        (0, [2, -3], [1, 1], ValueError, "size -3"),
        (0, [2], [-1], ValueError, "-1 in [-1]"),
        (0, [1], [-1], ValueError, "-1 in [-1]"),
        (0, [2], [0], ValueError, "overlap: sizes [2] with strides [0]"),
        (0, [2, 3], [2, 1], ValueError, "overlap: sizes [2, 3] with strides [2, 1]"),
        (0, [2, 2, 2], [1, 2, 3], ValueError, "overlap"),
        (0.5, [2], [1], TypeError, "0.5"),
        (0, ["2"], [1], TypeError, "'2'"),
        (0, [2], [None], TypeError, "None"),
    ],
)
def test_a_wrong_slice_is_refused_with_what_is_wrong(
    offset: Any, sizes: Any, strides: Any, error: type[Exception], named: str
) -> None:
    with pytest.raises(error) as caught:
        Slice(offset=offset, sizes=sizes, strides=strides)
    assert named in str(caught.value)


@pytest.mark.parametrize(
    ("use", "error", "named"),
    [
        (lambda: STRIDED[6], IndexError, "position 6"),
        (lambda: STRIDED[-1], IndexError, "position -1"),
        (lambda: STRIDED.get(6), IndexError, "0 to 5"),
        # the point of the test
        (lambda: STRIDED.get("a"), TypeError, "'a'"),  # type: ignore[arg-type]
        # the point of the test
        (lambda: STRIDED.index("a"), TypeError, "'a'"),  # type: ignore[arg-type]
        (lambda: STRIDED.index(99), ValueError, "rank 99"),
        (lambda: STRIDED.index(4), ValueError, "rank 4"),
        (lambda: STRIDED.coordinates(0), ValueError, "rank 0"),
        (lambda: STRIDED.coordinates(9), ValueError, "rank 9"),
        (
            lambda: STRIDED.nditem([2, 0]),
            IndexError,
            "coordinate 2 is out of range for dimension 0 of size 2",
        ),
        (lambda: STRIDED.nditem([0, -1]), IndexError, "coordinate -1"),
        (lambda: STRIDED.nditem([0]), ValueError, "got [0]"),
        (lambda: STRIDED.nditem([0, 1, 2]), ValueError, "got [0, 1, 2]"),
        # the point of the test
        (lambda: STRIDED.nditem([0, 1.5]), TypeError, "1.5"),  # type: ignore[list-item]
        (lambda: Slice.new_row_major([2, 0]), ValueError, "size 0"),
        (lambda: Slice.from_list([3, -2]), ValueError, "-2"),
        # the point of the test
        (lambda: Slice.from_list(["a"]), TypeError, "'a'"),  # type: ignore[list-item]
    ],
)
def test_a_wrong_use_of_a_slice_is_refused_with_what_is_wrong(
    use: Callable[[], object], error: type[Exception], named: str
) -> None:
    with pytest.raises(error) as caught:
        use()
    assert named in str(caught.value)


@pytest.mark.parametrize("value", [STRIDED, Slice.new_row_major([])])
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_slices_survive_pickling(value: Slice, protocol: int) -> None:
    assert pickle.loads(pickle.dumps(value, protocol)) == value


@given(slices_and_arrays())
def test_ranks_positions_and_coordinates_are_those_of_numpy(both: tuple[Slice, Any]) -> None:
    ndslice, array = both
    ranks = array.ravel().tolist()
    assert list(ndslice) == ranks
    assert ndslice.is_contiguous == (ranks == list(range(ranks[0], ranks[0] + len(ranks))))
    for position, coordinates in enumerate(np.ndindex(*array.shape)):
        rank = int(array[coordinates])
        assert ndslice[position] == ndslice.nditem(coordinates) == rank
        assert ndslice.index(rank) == position
        assert ndslice.coordinates(rank) == list(coordinates)
    for other in set(range(max(ranks) + 2)) - set(ranks):
        assert other not in ndslice


def test_a_regular_list_of_ranks_becomes_one_slice() -> None:
    assert Slice.from_list([0, 1, 2, 3]) == [Slice.new_row_major([4])]
    assert Slice.from_list([1, 3, 5]) == [Slice(offset=1, sizes=[3], strides=[2])]
    assert Slice.from_list([0, 1, 8, 9, 16, 17]) == [Slice(offset=0, sizes=[3, 2], strides=[8, 1])]
    assert Slice.from_list([0, 2, 4, 10, 12, 14]) == [
        Slice(offset=0, sizes=[2, 3], strides=[10, 2])
    ]
    assert Slice.from_list([5]) == [Slice(offset=5, sizes=[1], strides=[1])]
    assert Slice.from_list([]) == []


@given(st.lists(st.integers(0, 60)))
def test_slices_from_a_list_hold_each_of_its_ranks_once(ranks: list[int]) -> None:
    cover = Slice.from_list(ranks)
    assert sorted(rank for piece in cover for rank in piece) == sorted(set(ranks))
    assert [piece.offset for piece in cover] == sorted(piece.offset for piece in cover)
    for piece in cover:
        assert piece == Slice(offset=piece.offset, sizes=piece.sizes, strides=piece.strides)
