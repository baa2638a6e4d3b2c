from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monarch._core.shape import Extent, MeshTrait, Point, Shape, Slice


class Ranks(MeshTrait):
    """The least mesh: its elements are the ranks of its shape."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape

    @property
    def _ndslice(self) -> Slice:
        return self.shape.ndslice

    @property
    def _labels(self) -> tuple[str, ...]:
        return tuple(self.shape.labels)

    def _new_with_shape(self, shape: Shape) -> Ranks:
        return Ranks(shape)

    def ranks(self) -> list[int]:
        return self.shape.ranks()


def mesh(**sizes: int) -> Ranks:
    return Ranks(Shape.from_extent(Extent(sizes, sizes.values())))


GRID = mesh(hosts=2, gpus=4)


def test_a_mesh_knows_its_sizes() -> None:
    assert GRID.sizes == {"hosts": 2, "gpus": 4}
    assert GRID.extent == Extent(["hosts", "gpus"], [2, 4])
    assert (
        len(GRID),
        GRID.size(),
        GRID.size("gpus"),
        GRID.size(["hosts", "gpus"]),
        GRID.size([]),
    ) == (8, 8, 4, 8, 1)


def test_a_mesh_without_dimensions_has_one_element() -> None:
    assert (len(mesh()), mesh().sizes, mesh().ranks(), mesh().slice().ranks()) == (1, {}, [0], [0])


def test_a_mesh_is_always_true() -> None:
    assert bool(GRID) and bool(mesh())


def test_slicing_by_an_index_removes_the_dimension() -> None:
    assert GRID.slice(hosts=1).sizes == {"gpus": 4}
    assert GRID.slice(hosts=1).ranks() == [4, 5, 6, 7]
    assert GRID.slice(gpus=1, hosts=1).sizes == {}
    assert GRID.slice(gpus=1, hosts=1).ranks() == [5]


def test_slicing_by_a_python_slice_keeps_the_dimension_even_at_size_one() -> None:
    assert GRID.slice(gpus=slice(1, 2)).sizes == {"hosts": 2, "gpus": 1}
    assert GRID.slice(gpus=slice(None, None, 2)).ranks() == [0, 2, 4, 6]


def test_bounds_of_a_python_slice_may_count_from_the_end_or_exceed_the_size() -> None:
    assert GRID.slice(gpus=slice(-2, None), hosts=0).ranks() == [2, 3]
    assert GRID.slice(gpus=slice(-99, 99), hosts=0).ranks() == [0, 1, 2, 3]


def test_slicing_by_nothing_gives_a_new_mesh_with_all_elements() -> None:
    assert GRID.slice() is not GRID
    assert GRID.slice().shape == GRID.shape


def test_a_slice_of_a_slice_addresses_the_original_elements() -> None:
    assert GRID.slice(gpus=slice(1, 4)).slice(gpus=slice(1, 3)).slice(hosts=1).ranks() == [6, 7]


def test_a_point_selects_its_element() -> None:
    assert GRID.slice(**Point(6, GRID.extent)).ranks() == [6]


def test_booleans_and_numpy_integers_count_as_indices() -> None:
    assert GRID.slice(hosts=True).ranks() == [4, 5, 6, 7]
    assert GRID.slice(hosts=np.int64(1)).ranks() == [4, 5, 6, 7]


def test_dimensions_may_have_the_names_of_methods_and_parameters() -> None:
    odd = mesh(self=2, slice=3)
    assert odd.slice(self=1, slice=2).ranks() == [5]
    assert odd.rename(self="other").split(slice=("a", "b"), b=3).sizes == {
        "other": 2,
        "a": 1,
        "b": 3,
    }


def test_split_replaces_a_dimension_in_place_and_its_last_label_varies_fastest() -> None:
    split = mesh(host=32, gpu=2).split(host=("dp", "pp"), pp=16)
    assert split.sizes == {"dp": 2, "pp": 16, "gpu": 2}
    assert split.slice(dp=1, gpu=0).ranks() == list(range(32, 64, 2))


def test_split_can_be_told_all_sizes_and_can_split_several_dimensions() -> None:
    split = GRID.split(hosts=["a", "b"], a=2, b=1, gpus=["c", "d"], c=2)
    assert split.sizes == {"a": 2, "b": 1, "c": 2, "d": 2}
    assert split.ranks() == list(range(8))


def test_split_may_keep_the_label_for_one_of_the_parts() -> None:
    assert GRID.split(gpus=("gpus", "lanes"), lanes=2).sizes == {"hosts": 2, "gpus": 2, "lanes": 2}


def test_split_works_on_a_sparse_mesh() -> None:
    assert GRID.slice(gpus=slice(0, 4, 2)).split(gpus=("a", "b"), a=2).slice(b=0, a=1).ranks() == [
        2,
        6,
    ]


def test_rename_keeps_position_and_elements() -> None:
    renamed = GRID.rename(hosts="dp")
    assert renamed.sizes == {"dp": 2, "gpus": 4}
    assert renamed.ranks() == GRID.ranks()
    assert GRID.rename(hosts="gpus", gpus="hosts").sizes == {"gpus": 2, "hosts": 4}


def test_flatten_gives_one_dimension_with_all_elements() -> None:
    assert GRID.flatten("rank").sizes == {"rank": 8}
    assert GRID.flatten("rank").slice(rank=5).ranks() == [5]
    assert mesh().flatten("rank").sizes == {"rank": 1}
    assert GRID.slice(hosts=1).flatten("rank").ranks() == [4, 5, 6, 7]


def test_flatten_ignores_the_stride_of_dimensions_of_size_one() -> None:
    assert GRID.slice(hosts=slice(0, 2, 2)).flatten("rank").ranks() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("use", "error", "named"),
    [
        (
            lambda m: m.slice(foo=0),
            TypeError,
            "'foo': no such dimension; there are 'hosts', 'gpus'",
        ),
        (lambda m: mesh(gpus=2).slice(foo=0), TypeError, "there is only 'gpus'"),
        (lambda m: mesh().slice(foo=slice(0, 1)), TypeError, "there are no dimensions"),
        (
            lambda m: m.slice(gpus=4),
            IndexError,
            "index 4 is out of range for dimension 'gpus' of size 4, 0 to 3",
        ),
        (lambda m: m.slice(gpus=-1), IndexError, "index -1"),
        (lambda m: m.slice(gpus=slice(1, 1, 1)), ValueError, "1:1:1"),
        (lambda m: m.slice(gpus=slice(9, None)), ValueError, "9::"),
        (lambda m: m.slice(gpus=slice(None, None, -1)), ValueError, "::-1"),
        (lambda m: m.slice(gpus=slice(None, None, 0)), ValueError, "::0"),
        (lambda m: m.slice(gpus=slice("a", None)), TypeError, "a::"),
        (
            lambda m: m.slice(gpus="1"),
            TypeError,
            "dimension 'gpus' is selected by an int or a Python slice, got '1'",
        ),
        (lambda m: m.slice(gpus=1.0), TypeError, "got 1.0"),
        (lambda m: m.slice(gpus={0, 2}), TypeError, "got {0, 2}"),
        (lambda m: m.slice(gpus=None), TypeError, "got None"),
        (
            lambda m: m.split(gpus=("a", "b"), a=3),
            ValueError,
            "'gpus' of size 4 is not evenly divisible into a=3, b=?",
        ),
        (lambda m: m.split(gpus=("a", "b"), a=2, b=4), ValueError, "a=2, b=4"),
        (lambda m: m.split(gpus=("a", "b"), a=8), ValueError, "a=8"),
        (lambda m: m.split(gpus=("a",), a=2), ValueError, "a=2"),
        (lambda m: m.split(gpus=("a", "b")), ValueError, "cannot infer the sizes of ['a', 'b']"),
        (lambda m: m.split(gpus=("a", "b"), a=2, z=2), ValueError, "unused sizes ['z']"),
        (lambda m: m.split(z=2), ValueError, "unused sizes ['z']"),
        (lambda m: m.split(gpus=("a", "hosts"), a=2), ValueError, "'hosts' twice"),
        (lambda m: m.split(gpus=("a", "a"), a=2), ValueError, "'a' twice"),
        (lambda m: m.split(gpus=("a", "a")), ValueError, "'a' twice"),
        (lambda m: m.split(gpus=("a", "b"), hosts=("a", "c"), a=2), ValueError, "'a' twice"),
        (lambda m: m.split(foo=("a", "b"), a=2), ValueError, "'foo' is no dimension of this mesh"),
        (lambda m: m.split(gpus=("a", "b"), a="2"), ValueError, "'2'"),
        (
            lambda m: m.split(gpus=("a", "b"), a=0),
            ValueError,
            "size of 'a' must be at least 1, got 0",
        ),
        (lambda m: m.split(gpus=("a", "b"), a=-2), ValueError, "got -2"),
        (lambda m: m.split(gpus="ab"), ValueError, "got 'ab'"),
        (lambda m: m.split(gpus=2), ValueError, "got 2"),
        (lambda m: m.split(gpus=()), ValueError, "got ()"),
        (lambda m: m.split(gpus=("a", 2)), ValueError, "got ('a', 2)"),
        (lambda m: m.rename(foo="a"), ValueError, "'foo'"),
        (lambda m: m.rename(gpus="hosts"), ValueError, "'hosts' twice"),
        (lambda m: m.rename(gpus=("tp",)), TypeError, "('tp',)"),
        (lambda m: m.flatten(3), TypeError, "3"),
        (lambda m: m.slice(gpus=0).flatten("rank"), ValueError, "sparse mesh {hosts: 2}"),
        (lambda m: m.slice(gpus=slice(0, 2)).flatten("rank"), ValueError, "strides=[4, 1]"),
        (lambda m: m.size("foo"), KeyError, "'foo'"),
        (lambda m: m.size(["gpus", "foo"]), KeyError, "'foo'"),
        (lambda m: m.size(3), TypeError, "3"),
    ],
)
def test_a_wrong_request_to_a_mesh_is_refused_with_what_is_wrong(
    use: Callable[[Any], object], error: type[Exception], named: str
) -> None:
    with pytest.raises(error) as caught:
        use(GRID)
    assert named in str(caught.value)


def test_a_subclass_of_the_trait_that_is_no_mesh_says_so_on_use() -> None:
    class MyActor(MeshTrait):
        pass

    actor = MyActor()
    assert actor
    assert type(MyActor) is type and vars(actor) == {}
    uses: list[Callable[[], object]] = [
        lambda: actor.slice(a=0),
        lambda: actor.size(),
        lambda: actor.sizes,
        lambda: actor.rename(a="b"),
        lambda: len(actor),
        lambda: actor._new_with_shape(Shape.unity()),
    ]
    for use in uses:
        with pytest.raises(NotImplementedError, match="MyActor is not a mesh"):
            use()


def test_meshes_compare_by_identity_unless_they_say_otherwise() -> None:
    assert GRID.slice() != GRID
    assert len({GRID, GRID.slice()}) == 2


@st.composite
def meshes_and_arrays(draw: st.DrawFn) -> tuple[Ranks, Any]:
    """A mesh sliced once or twice, split and renamed, and the same done to an array of its
    ranks.
    """
    sizes = draw(st.lists(st.sampled_from([1, 2, 3, 4, 6]), max_size=4))
    current = mesh(**{f"d{i}": size for i, size in enumerate(sizes)})
    array: Any = np.arange(len(current)).reshape(sizes)
    for _ in range(draw(st.integers(0, 2))):
        keys = [draw(selections(size)) for size in array.shape]
        array = array[tuple(keys)]
        current = current.slice(**dict(zip(current.sizes, keys, strict=True)))
    return current, array


@st.composite
def selections(draw: st.DrawFn, size: int) -> int | slice:
    if draw(st.booleans()):
        return draw(st.integers(0, size - 1))
    bounds = st.none() | st.integers(-size - 1, size + 1)
    step = st.none() | st.integers(1, 3)
    some = st.builds(slice, bounds, bounds, step).filter(
        lambda key: key.indices(size)[0] < key.indices(size)[1]
    )
    return draw(some)


@given(meshes_and_arrays())
def test_slices_hold_the_elements_that_numpy_picks(both: tuple[Ranks, Any]) -> None:
    current, array = both
    assert current.ranks() == array.ravel().tolist()
    assert list(current.sizes.values()) == list(array.shape)
    assert len(current) == array.size


@given(meshes_and_arrays(), st.data())
def test_splits_arrange_the_elements_as_numpy_does(
    both: tuple[Ranks, Any], data: st.DataObject
) -> None:
    current, array = both
    if not array.ndim:
        return
    dim = data.draw(st.integers(0, array.ndim - 1))
    size = array.shape[dim]
    inner = data.draw(st.sampled_from([n for n in range(1, size + 1) if size % n == 0]))
    request: dict[str, Any] = {list(current.sizes)[dim]: ("outer", "inner"), "inner": inner}
    split = current.split(**request)
    expected = array.reshape(*array.shape[:dim], size // inner, inner, *array.shape[dim + 1 :])
    assert list(split.sizes.values()) == list(expected.shape)
    i = data.draw(st.integers(0, inner - 1))
    assert split.slice(inner=i).ranks() == expected.take(i, axis=dim + 1).ravel().tolist()


@given(meshes_and_arrays())
def test_flatten_works_exactly_where_ranks_follow_each_other(both: tuple[Ranks, Any]) -> None:
    current, array = both
    ranks = array.ravel().tolist()
    if ranks == list(range(ranks[0], ranks[0] + len(ranks))):
        assert current.flatten("rank").ranks() == ranks
        assert current.flatten("rank").sizes == {"rank": len(ranks)}
    else:
        with pytest.raises(ValueError, match="sparse"):
            current.flatten("rank")
