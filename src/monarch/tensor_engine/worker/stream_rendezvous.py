"""Values on their way from one stream of a worker to another.

Streams run side by side; where one needs what another has, it waits for it here. Both ends of a
handoff are instructions with the same *ticket*, and the giving one is issued before the taking one.
So the wait ends: with the other stream's instruction, or with the worker. On a GPU a stream of the
device waits as well, for what the other one was told before.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

import torch


def queued(value: Any) -> Any:
    """An event of a GPU after all that this thread's stream has been told; None for the CPU."""
    if not (isinstance(value, torch.Tensor) and value.is_cuda):
        return None
    with torch.cuda.device(value.device):  # events are of one device
        done = torch.cuda.Event()
    done.record(torch.cuda.current_stream(value.device))
    return done


def wait_behind(value: Any, done: Any) -> None:
    """Let this thread's stream of the GPU wait for an event of `queued`; the thread goes on."""
    if done is not None:
        stream = torch.cuda.current_stream(value.device)
        done.wait(stream)
        value.record_stream(stream)  # memory that the other one frees is not its own yet


class Rendezvous:
    """Values given and not taken yet, by ticket; of one ticket first in, first out."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._given: dict[int, deque[tuple[Any, Any]]] = {}
        self._closed = False

    def give(self, ticket: int, value: Any) -> None:
        """Leave a value as it is after all that this stream has done."""
        # the taker's work must come after all that this stream has queued on the device, not only
        # after its Python code
        done = queued(value)
        with self._changed:
            self._given.setdefault(ticket, deque()).append((value, done))
            self._changed.notify_all()

    def take(self, ticket: int) -> Any:
        """Wait for a value.

        Raises:
            RuntimeError: The worker has ended.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._closed or ticket in self._given)
            if self._closed:
                raise RuntimeError("the tensor engine has ended")
            waiting = self._given[ticket]
            value, done = waiting.popleft()
            if not waiting:
                del self._given[ticket]
        wait_behind(value, done)
        return value

    def close(self) -> None:
        """Let everybody go who waits."""
        with self._changed:
            self._closed = True
            self._given.clear()
            self._changed.notify_all()
