"""Where a call within one process came from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..wire.frame import Frame

if TYPE_CHECKING:
    from .node import Node


class LocalOrigin:
    """The way back to a caller in the same process."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.peer = node.address

    def send(self, frame: Frame) -> bool:
        self._node.dispatch(self, own_copy(frame))
        return True


def own_copy(frame: Frame) -> Frame:
    """A frame whose buffers are the receiver's own, as if they had crossed a socket."""
    return frame if not frame.buffers else frame._replace(buffers=[bytearray(buffer) for buffer in frame.buffers])
