"""The process as an actor: calls to the id `SYSTEM`. Handlers run on the poller's thread and must not block."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from ..._lazy import lazy_logger
from ..calls.remote_error import dump_error
from ..wire import pickling
from ..wire.address import SYSTEM
from ..wire.frame import ERROR, REPLY, VALUE, Frame
from .contracts import Origin
from .node import Node

logger = lazy_logger("monarch.runtime")


class System:
    """Dispatches ``method`` to ``on_method(origin, frame, *args)``."""

    handlers: ClassVar[dict[str, Callable[..., None]]] = {}
    """Methods that layers above add: ``handler(system, origin, frame, *args)``."""

    def __init__(self, node: Node) -> None:
        self.node = node
        node.register(SYSTEM, self)

    def receive(self, origin: Origin, frame: Frame) -> None:
        method = frame.meta.decode(errors="backslashreplace")
        try:
            args, _ = pickling.loads(frame.payload, frame.buffers)
            if method in self.handlers:
                self.handlers[method](self, origin, frame, *args)
            else:
                getattr(self, f"on_{method}")(origin, frame, *args)
        except Exception as error:
            logger.exception("internal error in the system call %s", method)
            self.answer_error(origin, frame, error)

    @staticmethod
    def answer(origin: Origin, frame: Frame, value: Any = None, meta: bytes = b"") -> None:
        if frame.request:
            payload, buffers = pickling.dumps(value)
            origin.send(Frame(REPLY, VALUE, frame.rank, SYSTEM, frame.sender, frame.request, meta, payload, buffers))

    @staticmethod
    def answer_error(origin: Origin, frame: Frame, error: BaseException) -> None:
        if frame.request:
            payload = dump_error(error, f"System call {frame.meta.decode(errors='backslashreplace')} failed.")
            origin.send(Frame(REPLY, ERROR, frame.rank, SYSTEM, frame.sender, frame.request, b"", payload))
