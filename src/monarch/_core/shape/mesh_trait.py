"""MeshTrait: the methods of every mesh that concern its geometry, not its elements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from operator import index
from typing import TYPE_CHECKING, Any

from monarch._core.shape.checks import (
    as_labels,
    check_distinct,
    describe_labels,
    format_sizes,
    pick_index,
    pick_range,
    unknown_label,
)
from monarch._core.shape.ndslice import Slice, make_slice, row_major_strides
from monarch._core.shape.picking import LISTS, as_positions, as_steps, regular_picks
from monarch._core.shape.shape import Extent, Point, Shape, make_extent, make_shape

if TYPE_CHECKING:
    from typing import TypeAlias

    from typing_extensions import Self

# Inside the class, `slice` is the method.
_PySlice: TypeAlias = slice
_WHOLE = slice(None)


class MeshTrait:
    """Base of every mesh: an n-dimensional, labelled, row-major arrangement of elements.

    A method that returns a mesh returns a new one of the same kind, over the same elements. It
    sends, moves and copies nothing. A slice of a slice addresses the original elements.

    Subclasses provide `_ndslice`, `_labels`, `_new_with_shape` and `_new_with_elements`. The trait
    has no state, constructor, metaclass or equality, since the users' `Actor` classes derive from
    it to satisfy type checkers.
    """

    __slots__ = ()

    @property
    def _ndslice(self) -> Slice:
        """The ranks of the elements."""
        raise _not_a_mesh(self)

    @property
    def _labels(self) -> tuple[str, ...]:
        """The dimension labels, outermost first, one per dimension of `_ndslice`."""
        raise _not_a_mesh(self)

    def _new_with_shape(self, shape: Shape) -> Self:
        """Return a mesh of this kind over the elements of this mesh with ranks in `shape`."""
        raise _not_a_mesh(self)

    def _new_with_elements(self, positions: Sequence[int], extent: Extent) -> Self:
        """Return a mesh of this kind over elements at row-major positions of this mesh.

        They are arranged as `extent`. A mesh is strided ranks of a list of elements; where
        a choice of them has no strides, the new mesh has a list of its own.
        """
        raise ValueError(
            f"a {type(self).__name__} holds ranks at regular steps only, and {list(positions)}"
            " are not"
        )

    def slice(self, /, **selection: int | _PySlice | Sequence[int]) -> Self:
        """Return the part of the mesh at some indices.

        For example `mesh.slice(hosts=0, gpus=slice(2, 4))`, `mesh.slice(**point)`.

        Args:
            selection: by dimension label. A whole number (a bool counts as one) picks an index,
                from 0, and removes the dimension. A Python slice restricts the dimension and keeps
                it, even at size 1; its bounds may count from the end and may exceed the size. A
                list, tuple or range of distinct indices keeps those, in that order. Dimensions that
                are not named stay whole.

        Raises:
            TypeError: there is no such dimension, or the selection is neither a whole number nor a
                slice of them.
            IndexError: an index is negative or not below the size of its dimension.
            ValueError: a slice or list selects nothing, a list has an index twice, or a step is
                below 1.
        """
        for key in selection.values():
            if isinstance(key, LISTS):
                return self._slice_by_lists(selection)
        return self._new_with_shape(slice_shape(self._labels, self._ndslice, selection))

    def _slice_by_lists(self, selection: Mapping[str, int | _PySlice | Sequence[int]]) -> Self:
        regular, irregular = regular_picks(self.sizes, selection)
        mesh = self._new_with_shape(slice_shape(self._labels, self._ndslice, regular))
        if not irregular:
            return mesh
        positions = [0]
        for label, size in mesh.sizes.items():
            indices = irregular.get(label, range(size))
            positions = [position * size + i for position in positions for i in indices]
        sizes = [len(irregular.get(label, range(size))) for label, size in mesh.sizes.items()]
        return mesh._new_with_elements(positions, make_extent(mesh._labels, tuple(sizes)))

    def select(self, ranks: Iterable[int | Point]) -> Self:
        """Return some elements, in the order given, along one dimension.

        A mesh of one dimension keeps its label; otherwise the label is `"rank"`.

        Args:
            ranks: row-major positions in this mesh, or its points.

        Raises:
            ValueError: nothing is selected, a rank comes twice, or a point is of a mesh with
                another extent.
            IndexError: a rank is negative or not below `len`.
            TypeError: a rank is neither a whole number nor a point.
        """
        return self._line(as_positions(ranks, self.extent))

    def without(self, ranks: Iterable[int | Point]) -> Self:
        """Return all elements but some, along one dimension as from `select`.

        For example `mesh.without(error.by_rank)`.

        Args:
            ranks: Ranks or points to leave out.

        Raises:
            ValueError: Nothing is left; other errors as for `select`.
        """
        left_out = set(as_positions(set(ranks), self.extent, may_be_none=True))
        left = [position for position in range(len(self)) if position not in left_out]
        if not left:
            raise ValueError(
                f"nothing is left of {self.extent} without all of its {len(self)} ranks"
            )
        return self._line(left)

    def _line(self, positions: Sequence[int]) -> Self:
        label = self._labels[0] if len(self._labels) == 1 else "rank"
        all_ranks = self._ndslice.ranks()
        ranks = [all_ranks[position] for position in positions]
        steps = as_steps(ranks)
        if steps is None:
            return self._new_with_elements(positions, make_extent((label,), (len(positions),)))
        return self._new_with_shape(
            make_shape((label,), make_slice(ranks[0], (len(ranks),), (steps.step,)))
        )

    def split(self, /, **dims: Sequence[str] | int) -> Self:
        """Return the mesh with dimensions split in several: `mesh.split(hosts=("dp", "pp"), pp=16)`.

        Args:
            dims: for a dimension of this mesh, the sequence of labels that replace it; the last
                varies fastest. For a new label, its size. Of the sizes of one split, one may be
                left out: it follows from the others.

        Raises:
            ValueError: the sizes do not multiply to that of the dimension, more than one is left
                out, a size belongs to no new label, a label would appear twice, or a value is of
                the wrong kind.
        """
        return self._new_with_shape(split_shape(self._labels, self._ndslice, dims))

    def rename(self, /, **labels: str) -> Self:
        """Return the same elements, with dimensions under new labels: `mesh.rename(gpus="tp")`.

        Args:
            **labels: For a dimension of this mesh, its new label.

        Raises:
            ValueError: there is no such dimension, or a label would appear twice.
            TypeError: a new label is not a string.
        """
        for old in labels:
            if old not in self._labels:
                raise unknown_label(old, self._labels)
        renamed = as_labels(labels.get(label, label) for label in self._labels)
        return self._new_with_shape(make_shape(renamed, self._ndslice))

    def flatten(self, name: str) -> Self:
        """Return all elements, in row-major order, along one dimension.

        `mesh.flatten("rank").slice(rank=0)` is always rank 0.

        Args:
            name: the label of that dimension.

        Raises:
            ValueError: the elements are not next to each other, as after slicing an inner
                dimension.
            TypeError: `name` is not a string.
        """
        (label,) = as_labels((name,))
        ndslice = self._ndslice
        if not ndslice.is_contiguous:
            raise ValueError(
                f"cannot flatten the sparse mesh {format_sizes(self._labels, ndslice._sizes)}: its"
                f" ranks {ndslice!r} are not next to each other; flatten before slicing, or rename"
                " the dimension if there is only one"
            )
        return self._new_with_shape(
            make_shape((label,), make_slice(ndslice._offset, (len(ndslice),), (1,)))
        )

    def size(self, dim: str | Iterable[str] | None = None) -> int:
        """Return the number of elements in all, or along some dimensions.

        Args:
            dim: a label, several labels (their sizes are multiplied), or None for all elements.

        Raises:
            KeyError: there is no such dimension (it is a ValueError too).
            TypeError: `dim` is none of these.
        """
        if dim is None:
            return len(self._ndslice)
        if not isinstance(dim, Iterable):
            raise TypeError(f"size() takes a label, several labels, or nothing, got {dim!r}")
        extent = self.extent
        return extent[dim] if isinstance(dim, str) else prod(extent[label] for label in dim)

    @property
    def sizes(self) -> dict[str, int]:
        """The size of each dimension by label, outermost first, as a new dict."""
        return dict(zip(self._labels, self._ndslice._sizes, strict=True))

    @property
    def extent(self) -> Extent:
        """Labels and sizes."""
        return make_extent(self._labels, self._ndslice._sizes)

    def __len__(self) -> int:
        """The number of elements, not of dimensions."""
        return len(self._ndslice)

    def __bool__(self) -> bool:
        # A mesh has at least one element. Without this, `if actor:` inside an actor class would ask
        # for its length.
        return True


def slice_shape(labels: tuple[str, ...], ndslice: Slice, selection: Mapping[str, Any]) -> Shape:
    """The shape that `MeshTrait.slice` describes."""
    for label in selection:
        if label not in labels:
            raise TypeError(
                f"cannot slice by {label!r}: no such dimension; there {describe_labels(labels)}"
            )
    offset = ndslice._offset
    kept: list[str] = []
    sizes: list[int] = []
    strides: list[int] = []
    for label, size, stride in zip(labels, ndslice._sizes, ndslice._strides, strict=True):
        key = selection.get(label, _WHOLE)
        if not isinstance(key, slice):
            offset += pick_index(label, size, key) * stride
            continue
        if key is not _WHOLE:
            picked = pick_range(label, size, key)
            offset, size, stride = offset + picked.start * stride, len(picked), stride * picked.step
        kept.append(label)
        sizes.append(size)
        strides.append(stride)
    return make_shape(tuple(kept), make_slice(offset, tuple(sizes), tuple(strides)))


def split_shape(
    labels: tuple[str, ...], ndslice: Slice, dims: Mapping[str, Sequence[str] | int]
) -> Shape:
    """The shape that `MeshTrait.split` describes."""
    splits = {label: _new_labels(label, dims[label]) for label in labels if label in dims}
    given = {
        label: _new_size(label, value, labels)
        for label, value in dims.items()
        if label not in labels
    }
    new_labels: list[str] = []
    sizes: list[int] = []
    strides: list[int] = []
    for label, size, stride in zip(labels, ndslice._sizes, ndslice._strides, strict=True):
        parts = splits.get(label, (label,))
        part_sizes = _factor(label, size, parts, given)
        new_labels.extend(parts)
        sizes.extend(part_sizes)
        strides.extend(row_major_strides(part_sizes, stride))
    unused = [label for label in given if label not in new_labels]
    if unused:
        raise ValueError(
            f"unused sizes {unused}: no split makes such a label; there {describe_labels(labels)}"
        )
    check_distinct(tuple(new_labels))
    return make_shape(tuple(new_labels), make_slice(ndslice._offset, tuple(sizes), tuple(strides)))


def _new_labels(label: str, value: object) -> tuple[str, ...]:
    parts = tuple(value) if isinstance(value, Iterable) and not isinstance(value, str) else ()
    if not parts or not all(isinstance(part, str) for part in parts):
        raise ValueError(
            f"dimension {label!r} is split into a sequence of labels such as ('a', 'b'), got"
            f" {value!r}"
        )
    check_distinct(parts)
    return parts


def _new_size(label: str, value: object, labels: tuple[str, ...]) -> int:
    try:
        size = index(value)  # type: ignore[arg-type]  # what cannot be a size is reported below
    except TypeError:
        raise ValueError(
            f"{label!r} is no dimension of this mesh (there {describe_labels(labels)}), so its"
            f" value must be the size of a new label, a whole number; got {value!r}"
        ) from None
    if size < 1:
        raise ValueError(f"the size of {label!r} must be at least 1, got {size}")
    return size


def _factor(
    label: str, size: int, parts: tuple[str, ...], given: Mapping[str, int]
) -> tuple[int, ...]:
    """The sizes of the labels that replace one dimension of that size."""
    unknown = [part for part in parts if part not in given]
    if len(unknown) > 1:
        raise ValueError(
            f"cannot infer the sizes of {unknown} in a split of {label!r} (size {size}): give all"
            " but one"
        )
    known = prod(given[part] for part in parts if part in given)
    inferred, rest = divmod(size, known)
    if rest or (not unknown and inferred != 1):
        sizes = ", ".join(f"{part}={given.get(part, '?')}" for part in parts)
        raise ValueError(f"dimension {label!r} of size {size} is not evenly divisible into {sizes}")
    return tuple(given.get(part, inferred) for part in parts)


def _not_a_mesh(subject: object) -> NotImplementedError:
    name = type(subject).__name__
    return NotImplementedError(
        f"{name} is not a mesh: slice, size and the like belong to the mesh that spawn() returns,"
        " not to the actor"
    )
