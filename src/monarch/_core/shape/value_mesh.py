"""ValueMesh: one value per rank, such as the replies to a call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import index
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from monarch._core.shape import table
from monarch._core.shape.checks import OutOfRangeError, check_coordinates
from monarch._core.shape.mesh_trait import MeshTrait
from monarch._core.shape.ndslice import Slice
from monarch._core.shape.shape import Extent, Point, Shape

if TYPE_CHECKING:
    from typing_extensions import Self

V = TypeVar("V")


class ValueMesh(MeshTrait, Generic[V]):
    """One value per rank: what `call` gives. It slices, splits, renames and flattens like any mesh.

    Iteration yields `(Point, value)` pairs in row-major order; the rank of a point counts from 0 in
    this mesh. `len` is the number of values. The mesh itself does not change; its values are the
    objects that were put in, one per rank.

    Args:
        shape: the arrangement.
        values: one value per element of `shape`, in row-major order.

    Raises:
        ValueError: there is not one value per element.
        TypeError: `shape` is not a Shape.
    """

    __slots__ = ("_shape", "_values")

    def __init__(self, shape: Shape, values: Iterable[V]) -> None:
        if not isinstance(shape, Shape):
            raise TypeError(
                f"ValueMesh needs a Shape, got {shape!r}; for an extent, Shape.from_extent(extent)"
            )
        self._shape = shape
        self._values = list(values)
        if len(self._values) != len(shape):
            raise ValueError(
                f"ValueMesh of shape {shape} needs {len(shape)} values, got {len(self._values)}"
            )

    @classmethod
    def from_indexed(cls, shape: Shape, indexed: Iterable[tuple[int, V]]) -> Self:
        """A mesh from `(rank, value)` pairs in any order.

        Args:
            shape: the arrangement.
            indexed: the pairs; a rank is a row-major position, 0 to `len(shape) - 1`. For a rank
                that comes twice, the last value counts.

        Raises:
            ValueError: a rank is missing, negative or too large (then it is an IndexError too).
        """
        values: dict[int, V] = {}
        for rank, value in indexed:
            values[_check_rank(rank, len(shape))] = value
        missing = [rank for rank in range(len(shape)) if rank not in values]
        if missing:
            more = ", ..." if len(missing) > 10 else ""
            raise ValueError(
                f"ValueMesh of shape {shape} has no value for {len(missing)} ranks:"
                f" {missing[:10]}{more}"
            )
        return cls(shape, (values[rank] for rank in range(len(shape))))

    @property
    def _ndslice(self) -> Slice:
        return self._shape._ndslice

    @property
    def _labels(self) -> tuple[str, ...]:
        return self._shape._labels

    def _new_with_shape(self, shape: Shape) -> Self:
        mine, ranks = self._ndslice, shape.ndslice.ranks()
        if mine.is_contiguous:
            picked = [self._values[rank - mine._offset] for rank in ranks]
        else:
            by_rank = dict(zip(mine.ranks(), self._values, strict=True))
            picked = [by_rank[rank] for rank in ranks]
        return type(self)(shape, picked)

    def _new_with_elements(self, positions: Sequence[int], extent: Extent) -> Self:
        return type(self)(
            Shape.from_extent(extent), [self._values[position] for position in positions]
        )

    def items(self) -> Iterator[tuple[Point, V]]:
        """Return `(Point, value)` pairs in row-major order.

        The rank of a point counts from 0 in this mesh.
        """
        extent = self.extent
        for rank, value in enumerate(self._values):
            yield Point(rank, extent), value

    def __iter__(self) -> Iterator[tuple[Point, V]]:
        return self.items()

    def values(self) -> list[V]:
        """Return a new list of the values in row-major order."""
        return list(self._values)

    def get(self, rank: int) -> V:
        """The value at a row-major position of this mesh, from 0.

        Args:
            rank: The position.

        Raises:
            ValueError: the rank is negative or not below `len` (it is an IndexError too).
            TypeError: the rank is not a whole number.
        """
        return self._values[_check_rank(rank, len(self._values))]

    def item(self, /, **coords: int) -> V:
        """The value at some coordinates: `mesh.item(hosts=0, gpus=1)`, `mesh.item(**point)`.

        Args:
            coords: an index, from 0, for every dimension; none for a mesh without dimensions.

        Raises:
            KeyError: a dimension is missing, or there is no such dimension.
            IndexError: an index is negative or not below the size of its dimension.
            TypeError: an index is not a whole number.
        """
        sizes = self._ndslice._sizes
        rank = 0
        for i, size in zip(check_coordinates(self._labels, sizes, coords), sizes, strict=True):
            rank = rank * size + i
        return self._values[rank]

    @overload
    def __getitem__(self, key: int) -> V: ...
    @overload
    def __getitem__(
        self, key: slice | tuple[int | slice, ...] | Mapping[str, int | slice]
    ) -> Any: ...
    def __getitem__(
        self, key: int | slice | tuple[int | slice, ...] | Mapping[str, int | slice]
    ) -> Any:
        """Return a value, or a part of the mesh.

        As `mesh[2]`, `mesh[{"gpus": 1}]`, `mesh[point]`, `mesh[0, 1:3]`.

        Args:
            key: one of

                * a whole number: the value at that row-major position, as `get`, with any
                  dimensions;
                * a mapping from label to index or Python slice, such as a Point: as `slice`;
                * a tuple with one index or Python slice for each dimension, outermost first: as
                  `slice`;
                * a Python slice, if there is one dimension: the same as the tuple that holds only
                  it.

        Returns:
            The value if no dimension is left, otherwise a ValueMesh.

        Raises:
            IndexError: a position is out of range, or there is not one tuple entry for each
                dimension.
            TypeError, ValueError: as `slice`.
        """
        if isinstance(key, Mapping):
            selection = dict(key)
        elif isinstance(key, (tuple, slice)):
            selection = self._by_position(key if isinstance(key, tuple) else (key,))
        else:
            return self.get(key)
        part = self.slice(**selection)
        return part if part._labels else part._values[0]

    def _by_position(self, key: tuple[int | slice, ...]) -> dict[str, int | slice]:
        if len(key) != len(self._labels):
            raise IndexError(
                f"need one index or slice for each of the {len(self._labels)} dimensions"
                f" {list(self._labels)}, got {len(key)}: {key!r}; name them to give only some, as"
                " in mesh[{label: index}]"
            )
        return dict(zip(self._labels, key, strict=True))

    def __repr__(self) -> str:
        """Return a text table of the coordinates and shortened values.

        Of at most `table.MAX_ROWS` ranks.
        """
        return table.as_text(f"ValueMesh({self.extent}):", self.extent, self._values.__getitem__)

    def _repr_html_(self) -> str:
        """Return the table for notebooks, with everything escaped."""
        return table.as_html(f"ValueMesh({self.extent})", self.extent, self._values.__getitem__)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self._shape, self._values)


def _check_rank(rank: object, count: int) -> int:
    try:
        checked = index(rank)  # type: ignore[arg-type]  # what cannot be an index is reported below
    except TypeError:
        raise TypeError(f"a rank of a ValueMesh must be a whole number, got {rank!r}") from None
    if not 0 <= checked < count:
        raise OutOfRangeError(
            f"index {checked} is out of range for a ValueMesh of {count} values, 0 to {count - 1}"
        )
    return checked
