"""The state behind a handle.

It has a value kept by the ranks, the memory that views share, and the reason why either can't be
used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from .streams import Stream, stream_of

if TYPE_CHECKING:
    from ..controller.engine import Ranks
    from ..planning.fakes import Meta
    from .rank_mesh import RankMesh


class Bar(NamedTuple):
    """Why something can't be used, or not be written to.

    Attributes:
        label: One of `operand_checks.LABELS`.
        stack: Where that was brought about.
    """

    label: str
    stack: str


class Storage:
    """The shared storage of views.

    Attributes:
        known: The value, as a local tensor of one element, where the controller knows it: what it
            put in itself, and what follows from that.
        barred: Why it can't be used: a `Bar`, or something that must `begin()` first; None if it
            can.
        frozen: Why it can't be written to.
    """

    __slots__ = ("__weakref__", "barred", "frozen", "known")

    def __init__(self, known: torch.Tensor | None = None) -> None:
        self.known = known
        self.barred: Any = None
        self.frozen: Bar | None = None


class Value:
    """A value that the ranks of a mesh keep under one number.

    It is freed there when nothing refers to this object any more.

    Attributes:
        lane: The ranks, and the stream.
        stream: The stream, which lives as long as this; None for the main one, which always does.
    """

    __slots__ = ("__weakref__", "id", "lane", "mesh", "meta", "storage", "stream")

    def __init__(self, id: int, mesh: RankMesh, lane: Ranks, meta: Meta, storage: Storage) -> None:  # noqa: A002
        self.id = id
        self.mesh = mesh
        self.lane = lane
        self.meta = meta
        self.storage = storage
        self.stream = stream_of(lane.stream) if lane.stream else None

    def __del__(self) -> None:
        self.lane.freed.append(self.id)


class TensorBase(torch.Tensor):
    """A handle of a value. `tensor.Tensor` adds what torch's operations do with it."""

    _value: Value

    # filled by `tensor_methods`, which is built on these
    drop: Callable[[TensorBase], None]
    reduce: Callable[..., TensorBase]
    reduce_: Callable[..., TensorBase]
    slice_mesh: Callable[..., Any]
    to_mesh: Callable[..., TensorBase]

    @property
    def mesh(self) -> RankMesh:
        return self._value.mesh

    @property
    def stream(self) -> Stream:
        return stream_of(self._value.lane.stream)

    @property
    def dropped(self) -> bool:
        """True after `drop` of the value, or of one that shares its memory.

        It is True after the end of its borrowing as well.
        """
        barred = self._value.storage.barred
        return type(barred) is Bar and barred.label == "DROPPED"
