"""An item on its way through a process that does not open it."""

from __future__ import annotations

from collections.abc import Sequence
from pickle import PickleBuffer
from typing import Any

from .._core.plane import pickling

Buffer = bytes | bytearray | memoryview


class Sealed:
    """A pickled object.

    The process that keeps it needs neither its class nor what that imports, and copies no large
    buffer.

    Args:
        payload: The pickle.
        buffers: The large buffers, which are beside it.
    """

    __slots__ = ("buffers", "payload")

    def __init__(self, payload: Buffer, buffers: Sequence[Any]) -> None:
        self.payload = payload
        self.buffers = buffers

    @classmethod
    def of(cls, item: object) -> Sealed:
        return cls(*pickling.dumps(item))

    def open(self) -> Any:
        return pickling.loads(self.payload, self.buffers)

    @property
    def size(self) -> int:
        """The size in bytes."""
        return sum(memoryview(part).nbytes for part in (self.payload, *self.buffers))

    def __reduce_ex__(self, protocol: Any) -> Any:
        return Sealed, (self.payload, [PickleBuffer(each) for each in self.buffers])
