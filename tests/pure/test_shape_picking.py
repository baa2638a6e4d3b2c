"""Choosing elements by lists: `slice` with a list, `select`, `without`."""

from __future__ import annotations

import pickle
import re
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monarch._core.shape import Extent, Point, Shape, ValueMesh
from monarch._core.shape.mesh_trait import MeshTrait


def mesh(**sizes: int) -> ValueMesh[int]:
    shape = Shape.from_extent(Extent(list(sizes), list(sizes.values())))
    return ValueMesh(shape, range(len(shape)))


class Strided(MeshTrait):
    """A kind of mesh that has nothing but strides."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape

    @property
    def _ndslice(self) -> Any:
        return self.shape.ndslice

    @property
    def _labels(self) -> tuple[str, ...]:
        return tuple(self.shape.labels)

    def _new_with_shape(self, shape: Shape) -> Strided:
        return Strided(shape)


@given(st.data())
def test_a_slice_by_lists_has_the_elements_that_a_loop_over_the_lists_has(
    data: st.DataObject,
) -> None:
    sizes = data.draw(
        st.fixed_dictionaries(
            {"a": st.integers(1, 4), "b": st.integers(1, 4), "c": st.integers(1, 4)}
        )
    )
    lists = {
        label: data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=size, unique=True))
        for label, size in sizes.items()
    }
    whole = mesh(**sizes)
    picked = whole.slice(**lists)
    assert picked.sizes == {label: len(indices) for label, indices in lists.items()}
    assert picked.values() == [
        whole.item(**dict(zip(lists, at, strict=True))) for at in product(*lists.values())
    ]


@given(st.integers(1, 4), st.integers(1, 5), st.data())
def test_select_and_without_share_the_elements_between_them(
    rows: int, columns: int, data: st.DataObject
) -> None:
    whole = mesh(a=rows, b=columns)
    chosen = data.draw(st.lists(st.integers(0, len(whole) - 1), min_size=1, unique=True))
    assert whole.select(chosen).values() == chosen
    assert whole.select(chosen).sizes == {"rank": len(chosen)}
    rest = sorted(set(range(len(whole))) - set(chosen))
    if rest:
        assert whole.without(chosen).values() == rest
    else:
        with pytest.raises(ValueError, match="nothing is left"):
            whole.without(chosen)


def test_one_dimension_keeps_its_label_and_others_stay_whole() -> None:
    assert mesh(gpus=4).without([1]).sizes == {"gpus": 3}
    assert mesh(gpus=4).select([3, 0]).values() == [3, 0]
    assert mesh(hosts=3, gpus=2).slice(hosts=[0, 2]).values() == [0, 1, 4, 5]
    assert mesh(hosts=3, gpus=4).slice(hosts=1, gpus=[0, 1, 3]).values() == [4, 5, 7]


def test_what_was_picked_can_be_picked_from_and_sent() -> None:
    picked = mesh(hosts=4, gpus=4).slice(hosts=[0, 1, 3], gpus=[0, 2, 3])
    assert picked.slice(hosts=2).values() == [12, 14, 15]
    assert picked.slice(gpus=slice(1, None)).values() == [2, 3, 6, 7, 14, 15]
    assert picked.without([0, 8]).select([0, 2, 5]).values() == [2, 4, 12]
    assert picked.flatten("all").split(all=("x", "y"), x=3).slice(y=0).values() == [0, 4, 12]
    assert pickle.loads(pickle.dumps(picked)).values() == picked.values()


def test_points_of_the_mesh_are_ranks_of_it() -> None:
    whole = mesh(hosts=2, gpus=3)
    assert whole.without({Point(4, whole.extent): "why"}).values() == [0, 1, 2, 3, 5]
    with pytest.raises(ValueError, match="point of a mesh"):
        whole.without([Point(1, Extent(["gpus"], [3]))])


@pytest.mark.parametrize("chosen", [[1], [0, 1, 2, 3], [1, 3], (0, 2), range(1, 4)])
def test_a_choice_at_regular_steps_stays_a_strided_slice(chosen: Any) -> None:
    strided = Strided(Shape.from_extent(Extent(["a", "b"], [2, 4])))
    assert list(strided.slice(a=1, b=chosen).shape.ranks()) == [4 + index for index in chosen]
    assert strided.select([1, 3, 5, 7]).shape.ndslice.strides == [2]
    assert strided.without([0]).shape.ndslice.strides == [1]
    with pytest.raises(ValueError, match="regular steps"):
        strided.slice(b=[0, 1, 3])


@pytest.mark.parametrize(
    ("selection", "error"),
    [
        ({"b": []}, ValueError),
        ({"b": [0, 0, 1]}, ValueError),
        ({"b": [0, 4]}, IndexError),
        ({"b": [-1, 0]}, IndexError),
        ({"b": ["0"]}, TypeError),
        ({"nope": [0]}, TypeError),
    ],
)
def test_a_list_that_cannot_be_is_refused(selection: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        mesh(a=2, b=4).slice(**selection)


def test_ranks_that_cannot_be_are_refused() -> None:
    whole = mesh(a=2, b=2)
    outside = "is outside of {a: 2, b: 2}, which has ranks 0 to 3"
    for ranks, error, why in (
        ([], ValueError, "the ranks: nothing is selected"),
        ([0, 0], ValueError, "the ranks: an element can be in a mesh once, and [0, 0] has"),
        ([4], IndexError, f"rank 4 {outside}"),
        ([-1], IndexError, f"rank -1 {outside}"),
    ):
        with pytest.raises(error, match=re.escape(why)):
            whole.select(ranks)
    wrong: Any = ["x"]
    with pytest.raises(TypeError):
        whole.select(wrong)
    with pytest.raises(IndexError):
        whole.without([4])
    assert whole.without([]).values() == [0, 1, 2, 3]
