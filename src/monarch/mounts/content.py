"""Content of files on its way: in messages, or by RDMA where a device leads from side to side.

On one machine, and between machines without such devices, a message is faster: it brings a block
with the answer, and its memory need not be registered.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from importlib import import_module
from typing import Any

from .._core.plane import map_future, notice, subscribe
from ..actor import Future
from .folder import Attributes

LARGE = 2 << 20
"""Bytes that are asked for at once from which on they go by RDMA."""

_DEVICES = "nixl"  # the path of `monarch.rdma` by which they lead
_LOOKS = 6  # of 10 s each: a process that has never taken this path loads its library first


class Content:
    """The content of a folder on another side.

    Args:
        actor: The `FolderSource` there.
    """

    def __init__(self, actor: Any) -> None:
        self._actor = actor
        self._looking: threading.Thread | None = None
        self._rdma: Any = None  # the package, once it is known that a device leads there
        self._lock = threading.Lock()

    def read(
        self, path: str, offset: int, size: int, length: int = 0, digest: bytes = b""
    ) -> Future[Any]:
        """See `Folder.read`; the answer is a value, or the number of an error."""
        if size >= LARGE and not length:
            self._begin_to_look()
            if self._rdma is not None:
                return self._read_by_rdma(path, offset, size)
        answer: Future[Any] = self._actor.read.call_one(path, offset, size, length, digest)
        return answer

    def _begin_to_look(self) -> None:
        """Begin to look for a device that leads there, without waiting for it."""
        with self._lock:
            if self._looking is None:
                self._looking = threading.Thread(
                    target=self._look, name="monarch-rdma", daemon=True
                )
                self._looking.start()

    def _look(self) -> None:
        rdma = import_module("monarch.rdma")  # which few mounts need
        with suppress(RuntimeError, rdma.RDMAError):  # it is not allowed; the other side is gone
            buffer = rdma.RDMABuffer(bytearray(1))
            for _ in range(_LOOKS):
                with suppress(TimeoutError):
                    if buffer.explain(self._actor).taken == _DEVICES:
                        self._rdma = rdma
                    break
            notice(buffer.drop())

    def _read_by_rdma(self, path: str, offset: int, size: int) -> Future[Any]:
        memory = bytearray(size)
        buffer = self._rdma.RDMABuffer(memory)
        answer: Future[Any] = self._actor.put.call_one(path, offset, size, buffer)
        subscribe(answer, lambda: notice(buffer.drop()))

        def received(
            told: tuple[Attributes, bool, Any] | int,
        ) -> tuple[Attributes, bool, Any] | int:
            if isinstance(told, int):
                return told
            attributes, same, data = told
            return attributes, same, memoryview(memory)[:data] if isinstance(data, int) else data

        return map_future(answer, received)
