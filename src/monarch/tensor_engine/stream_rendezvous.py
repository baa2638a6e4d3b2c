"""Values on their way from one stream of a worker to another.

Streams run side by side; where one needs what another has, it waits for it here. Both ends of a
handoff are instructions with the same *ticket*, and what is given was issued before what takes it.
So the wait ends: with the other stream's instruction, or with the worker. On a GPU a stream of the
device waits as well, for what the other one was told before.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

_CLOSED = object()


class Rendezvous:
    """Values given and not taken yet, by ticket; of one ticket first in, first out.

    Args:
        queue: Makes what a stream waits at for one ticket.
    """

    def __init__(self, queue: Callable[[], Any]) -> None:
        self._lock = threading.Lock()
        self._queue = queue
        self._given: dict[int, Any] = {}
        self._closed = False

    def _of(self, ticket: int) -> Any:
        if ticket not in self._given:
            self._given[ticket] = self._queue()
        return self._given[ticket]

    def give(self, ticket: int, value: Any) -> None:
        """Leave a value as it is after all that this stream has done."""
        done = None
        if isinstance(value, torch.Tensor) and value.is_cuda:
            done = torch.cuda.Event()
            done.record()
        with self._lock:
            self._of(ticket).put((value, done))

    def take(self, ticket: int) -> Any:
        """Wait for a value.

        Raises:
            RuntimeError: The worker has ended.
        """
        with self._lock:
            waiting = self._of(ticket)
            found: Any = _CLOSED if self._closed else None
        found = found or waiting.get()
        if found is _CLOSED:
            raise RuntimeError("the tensor engine has ended")
        value, done = found
        with self._lock:
            if waiting.empty():
                self._given.pop(ticket, None)
        if done is not None:
            done.wait()  # the stream of the device, not this thread
        return value

    def close(self) -> None:
        """Let everybody go who waits."""
        with self._lock:
            self._closed = True
            given, self._given = self._given, {}
        for waiting in given.values():
            while not waiting.empty():
                waiting.get()
            waiting.put(_CLOSED)
