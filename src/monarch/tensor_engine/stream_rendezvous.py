"""Values on their way from one stream of a worker to another.

Streams run side by side; where one needs what another has, it waits for it here. Both ends of a
handoff are instructions with the same *ticket*, and what is given was issued before what takes it.
So the wait ends: with the other stream's instruction, or with the worker. On a GPU a stream of the
device waits as well, for what the other one was told before.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch


class Rendezvous:
    """Values given and not taken yet, by ticket; of one ticket first in, first out.

    Args:
        queue: Makes what a stream waits at for one ticket.
    """

    def __init__(self, queue: Callable[[], Any]) -> None:
        self._lock = threading.Lock()
        self._given: defaultdict[int, Any] = defaultdict(queue)  # None: the worker has ended
        self._closed = False

    def give(self, ticket: int, value: Any) -> None:
        """Leave a value as it is after all that this stream has done."""
        done = None
        if isinstance(value, torch.Tensor) and value.is_cuda:
            done = torch.cuda.Event()
            done.record()
        with self._lock:
            self._given[ticket].put((value, done))

    def take(self, ticket: int) -> Any:
        """Wait for a value.

        Raises:
            RuntimeError: The worker has ended.
        """
        with self._lock:
            waiting = self._given[ticket]
            if self._closed:
                waiting.put(None)
        found = waiting.get()
        if found is None:
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
            given = list(self._given.values())
            self._given.clear()
        for waiting in given:
            waiting.put(None)
