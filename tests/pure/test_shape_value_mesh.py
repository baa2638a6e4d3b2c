from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monarch._core.shape import Extent, MeshTrait, Point, Shape, Slice, ValueMesh
from monarch._core.shape.table import as_text

GRID = Extent(["hosts", "gpus"], [2, 3])


def letters() -> ValueMesh[str]:
    return ValueMesh(Shape.from_extent(GRID), list("abcdef"))


def line(values: list[Any]) -> ValueMesh[Any]:
    return ValueMesh(Shape.from_extent(Extent(["gpus"], [len(values)])), values)


class Unreadable:
    """A value that cannot be shown."""

    def __repr__(self) -> NoReturn:
        raise RuntimeError("no repr today")


def fail() -> NoReturn:
    raise ModuleNotFoundError("no module named gone")


def test_a_value_mesh_is_a_mesh_of_values() -> None:
    values = letters()
    assert isinstance(values, MeshTrait)
    assert (values.extent, len(values), values.sizes) == (GRID, 6, {"hosts": 2, "gpus": 3})
    assert values.values() == list("abcdef")


def test_iterating_and_items_give_points_with_values() -> None:
    expected = [(Point(rank, GRID), letter) for rank, letter in enumerate("abcdef")]
    assert list(letters()) == list(letters().items()) == expected


def test_points_of_a_slice_count_from_zero() -> None:
    part = letters().slice(hosts=1)
    assert [(point.rank, point["gpus"], value) for point, value in part] == [
        (0, 0, "d"),
        (1, 1, "e"),
        (2, 2, "f"),
    ]


def test_item_gives_the_value_at_coordinates() -> None:
    assert letters().item(gpus=1, hosts=1) == "e"
    assert letters().item(**Point(4, GRID)) == "e"
    assert letters().slice(hosts=0, gpus=2).item() == "c"


def test_get_and_an_index_give_the_value_at_a_linear_rank() -> None:
    assert letters().get(4) == letters()[4] == "e"
    assert letters().slice(gpus=1)[1] == "e"
    assert letters().slice(gpus=1, hosts=1)[0] == "e"


def test_a_mapping_or_a_tuple_in_brackets_gives_a_value_if_it_names_one() -> None:
    values = letters()
    assert values[{"hosts": 1, "gpus": 0}] == values[1, 0] == values[Point(3, GRID)] == "d"
    assert values.slice(hosts=0, gpus=0)[()] == values.slice(hosts=0, gpus=0)[{}] == "a"


def test_a_mapping_or_a_tuple_in_brackets_gives_a_mesh_if_dimensions_are_left() -> None:
    values = letters()
    assert values[{"gpus": 1}].values() == ["b", "e"]
    assert values[:, 1:].values() == ["b", "c", "e", "f"]
    assert values[:, 1:].sizes == {"hosts": 2, "gpus": 2}
    assert values[1, slice(0, 1)].sizes == {"gpus": 1}
    assert line([0, 1, 2, 3])[1:3].values() == [1, 2]


def test_a_shape_with_gaps_takes_values_in_the_order_of_its_elements() -> None:
    values = ValueMesh(
        Shape(["gpus", "z"], Slice(offset=7, sizes=[2, 2], strides=[10, 2])), list("abcd")
    )
    assert values.slice(z=1).values() == ["b", "d"]
    assert values.slice(gpus=1).slice(z=0).item() == "c"
    assert values.item(gpus=1, z=1) == values[3] == "d"


def test_split_rename_and_flatten_keep_values_in_place() -> None:
    assert letters().flatten("rank").item(rank=4) == "e"
    assert letters().rename(gpus="tp").item(hosts=1, tp=1) == "e"
    assert letters().split(gpus=("a", "b"), a=3).item(hosts=1, a=1, b=0) == "e"


def test_a_mesh_does_not_share_the_list_it_was_made_from_or_gives_out() -> None:
    given_values = [1, 2]
    values = line(given_values)
    given_values.append(3)
    values.values().append(3)
    assert values.values() == [1, 2]


def test_equal_values_stay_separate_objects() -> None:
    values = line([[1], [1]])
    values.get(0).append(2)
    assert values.values() == [[1, 2], [1]]
    copied = pickle.loads(pickle.dumps(line([[1], [1]])))
    assert copied.get(0) is not copied.get(1)


def test_a_slice_gives_the_same_objects_as_the_mesh() -> None:
    values = line([[1], [2]])
    assert values.slice(gpus=1).item() is values.get(1)


def test_values_can_come_with_their_ranks_in_any_order_and_the_last_counts() -> None:
    values = ValueMesh.from_indexed(
        Shape.from_extent(GRID), [(rank, rank) for rank in (5, 4, 3, 2, 1, 0)]
    )
    assert values.values() == [0, 1, 2, 3, 4, 5]
    shape = Shape(["gpus"], Slice(offset=7, sizes=[2], strides=[3]))
    assert ValueMesh.from_indexed(shape, [(1, "x"), (0, "y"), (1, "z")]).values() == ["y", "z"]


@pytest.mark.parametrize(
    ("use", "error", "named"),
    [
        (
            lambda v: ValueMesh(Shape.from_extent(GRID), [1]),
            ValueError,
            "{hosts=2,gpus=3} needs 6 values, got 1",
        ),
        (lambda v: ValueMesh(Shape.unity(), []), ValueError, "needs 1 values, got 0"),
        (lambda v: ValueMesh(v.extent, [1]), TypeError, "Shape.from_extent"),
        (
            lambda v: ValueMesh.from_indexed(v._shape, [(0, 1), (5, 1)]),
            ValueError,
            "4 ranks: [1, 2, 3, 4]",
        ),
        (lambda v: ValueMesh.from_indexed(v._shape, [(6, 1)]), ValueError, "index 6"),
        (lambda v: ValueMesh.from_indexed(v._shape, [(-1, 1)]), ValueError, "index -1"),
        (lambda v: ValueMesh.from_indexed(v._shape, [(v.get(0), 1)]), TypeError, "'a'"),
        (
            lambda v: v.get(6),
            ValueError,
            "index 6 is out of range for a ValueMesh of 6 values, 0 to 5",
        ),
        (lambda v: v.get(-1), ValueError, "index -1"),
        (lambda v: v.get("a"), TypeError, "'a'"),
        (lambda v: v.item(hosts=1), KeyError, "missing ['gpus']"),
        (lambda v: v.item(hosts=1, gpus=0, z=3), KeyError, "extra dimensions ['z']"),
        (
            lambda v: v.item(hosts=0, gpus=3),
            IndexError,
            "index 3 is out of range for dimension 'gpus' of size 3",
        ),
        (lambda v: v.item(hosts=-1, gpus=0), IndexError, "index -1"),
        (lambda v: v.item(hosts=slice(0, 1), gpus=0), TypeError, "slice(0, 1, None)"),
        (lambda v: v[6], IndexError, "index 6"),
        (lambda v: v[-1], IndexError, "index -1"),
        (lambda v: v["gpus"], TypeError, "'gpus'"),
        (lambda v: v[1.0], TypeError, "1.0"),
        (lambda v: v[{"z": 1}], TypeError, "'z'"),
        (lambda v: v[{"gpus": 3}], IndexError, "index 3"),
        (lambda v: v[0, 3], IndexError, "index 3"),
        (lambda v: v[0, "x"], TypeError, "'x'"),
        (lambda v: v[0:1], IndexError, "2 dimensions ['hosts', 'gpus'], got 1"),
        (lambda v: v[0, 0, 0], IndexError, "got 3: (0, 0, 0)"),
        (lambda v: v[:, 2:2], ValueError, "2:2"),
        (lambda v: v[:, ::-1], ValueError, "::-1"),
        (lambda v: v.slice(gpus=0).flatten("x"), ValueError, "sparse"),
    ],
)
def test_a_wrong_use_of_a_value_mesh_is_refused_with_what_is_wrong(
    use: Callable[[Any], object], error: type[Exception], named: str
) -> None:
    with pytest.raises(error) as caught:
        use(letters())
    assert named in str(caught.value)


@pytest.mark.parametrize(
    ("count", "named"),
    [
        (11, "10 ranks: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]"),
        (12, "11 ranks: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10], ..."),
    ],
)
def test_at_most_ten_ranks_without_a_value_are_named(count: int, named: str) -> None:
    shape = Shape.from_extent(Extent(["gpus"], [count]))
    with pytest.raises(ValueError) as caught:
        ValueMesh.from_indexed(shape, [(0, "x")])
    assert str(caught.value).endswith(f"has no value for {named}")


def test_a_value_that_cannot_be_read_does_not_spoil_a_table() -> None:
    shown = as_text("values", Extent(["gpus"], [2]), lambda rank: "fine" if rank == 0 else fail())
    assert shown.splitlines()[2:] == [
        "     0  'fine'",
        "     1  <cannot be shown: ModuleNotFoundError('no module named gone')>",
    ]


def test_a_value_mesh_is_shown_as_an_aligned_table() -> None:
    shown = repr(ValueMesh(Shape.from_extent(Extent(["hosts", "z"], [1, 11])), range(11)))
    assert shown.splitlines() == [
        "ValueMesh({hosts: 1, z: 11}):",
        "  hosts   z  value",
        *(f"      0  {z:2}  {z}" for z in range(11)),
    ]


def test_a_value_mesh_without_dimensions_is_shown_too() -> None:
    assert repr(ValueMesh(Shape.unity(), ["x"])).splitlines() == [
        "ValueMesh({}):",
        "  value",
        "  'x'",
    ]


def test_the_middle_of_a_long_mesh_is_left_out() -> None:
    lines = repr(line(list(range(1000)))).splitlines()
    assert len(lines) == 23
    assert lines[1:3] == ["  gpus  value", "     0  0"]
    assert lines[-1] == "   999  999"
    assert "... 980 more" in lines[12]
    assert len(repr(line(list(range(20)))).splitlines()) == 22


@pytest.mark.parametrize(
    "value", ["x" * 10_000, b"x" * 10_000, list(range(10_000)), 10**1000, "a\nb" * 500]
)
def test_a_wide_value_is_cut_to_one_short_line(value: object) -> None:
    shown = repr(line([value]))
    assert len(shown.splitlines()) == 3
    assert max(map(len, shown.splitlines())) < 100


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("x" * 78, f"'{'x' * 78}'"),
        (b"x" * 70, f"b'{'x' * 70}'"),
        (b"x" * 80, f"b'{'x' * 75}..."),
        (b"x" * 81, "b'xxxxxxxxxxxxxxxx'... (81 bytes)"),
        (bytearray(b"x" * 81), "bytearray(b'xxxxxxxxxxxxxxxx')... (81 bytes)"),
        (["x" * 70] * 2, f"['{'x' * 70}', 'x..."),
        (list(range(13)), "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, ...]"),
        ([[[[1]]]], "[[[[...]]]]"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_is_shown_in_at_most_80_characters(value: object, shown: str) -> None:
    assert repr(line([value])).splitlines()[2] == f"     0  {shown}"


def test_a_value_of_several_lines_is_shown_on_one() -> None:
    assert repr(line([np.zeros((2, 2))])).splitlines()[2] == "     0  array([[0., 0.], [0., 0.]])"


def test_a_value_that_cannot_be_shown_does_not_spoil_the_table() -> None:
    assert "Unreadable" in repr(line([Unreadable(), "fine"]))
    assert "'fine'" in repr(line([Unreadable(), "fine"]))


def test_notebooks_get_an_escaped_html_table() -> None:
    values = ValueMesh(Shape.from_extent(Extent(["<b>"], [2])), ["<script>", "&"])
    assert values._repr_html_() == (
        "<table><caption>ValueMesh({&lt;b&gt;: 2})</caption>"
        "<thead><tr><th>&lt;b&gt;</th><th>value</th></tr></thead>"
        "<tbody><tr><td>0</td><td>&#x27;&lt;script&gt;&#x27;</td></tr>"
        "<tr><td>1</td><td>&#x27;&amp;&#x27;</td></tr></tbody></table>"
    )
    long = line(list(range(1000)))._repr_html_()
    assert long.count("<tr>") == 22 and "<td>...</td><td>... 980 more</td>" in long


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_value_mesh_survives_pickling_and_a_slice_sends_only_its_own_values(
    protocol: int,
) -> None:
    values = letters()
    copied = pickle.loads(pickle.dumps(values.slice(gpus=2), protocol))
    assert type(copied) is ValueMesh
    assert (copied.values(), copied.extent) == (["c", "f"], Extent(["hosts"], [2]))
    part = line([b"x" * 10_000, b"y"]).slice(gpus=1)
    assert len(pickle.dumps(part, protocol)) < 1000


def test_a_value_mesh_can_be_subscripted_with_a_type() -> None:
    assert ValueMesh[int](Shape.unity(), [1]).item() == 1


@given(st.lists(st.integers(1, 4), min_size=1, max_size=3), st.data())
def test_brackets_pick_what_numpy_picks(sizes: list[int], data: st.DataObject) -> None:
    labels = [f"d{i}" for i in range(len(sizes))]
    array: Any = np.arange(100, 100 + np.prod(sizes, dtype=int)).reshape(sizes)
    values = ValueMesh(Shape.from_extent(Extent(labels, sizes)), array.ravel().tolist())
    starts = [st.integers(0, size - 1) for size in sizes]
    key = tuple(
        data.draw(start | st.builds(slice, start, st.none(), st.integers(1, 2))) for start in starts
    )
    picked, expected = values[key], array[key]
    if isinstance(picked, ValueMesh):
        assert picked.values() == expected.ravel().tolist()
        assert list(picked.sizes.values()) == list(expected.shape)
        for rank, coordinates in enumerate(np.ndindex(*expected.shape)):
            assert picked.item(**dict(zip(picked.sizes, coordinates, strict=True))) == picked[rank]
            assert picked[coordinates] == expected[coordinates]
    else:
        assert picked == expected
