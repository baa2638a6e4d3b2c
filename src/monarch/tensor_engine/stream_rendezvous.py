"""Values on their way from one stream of a worker to another.

Streams run side by side; where one needs what another has, it waits for it here. Both ends of a handoff are instructions with
the same *ticket*, and what is given was issued before what takes it. So the wait ends: with the other stream's instruction, or
with the worker. On a GPU a stream of the device waits as well, for what the other one was told before.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any

import torch

from .instructions import Poison

if TYPE_CHECKING:
    from .runner import Runner


class Rendezvous:
    """What was given and not taken yet, by ticket; of one ticket first in, first out."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._given: dict[int, deque[tuple[Any, Any]]] = {}
        self._closed = False

    def give(self, ticket: int, value: Any) -> None:
        """Leave a value as it is after all that this stream has done."""
        done = None
        if isinstance(value, torch.Tensor) and value.is_cuda:
            done = torch.cuda.Event()
            done.record()
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
        if done is not None:
            done.wait()  # the stream of the device, not this thread
        return value

    def close(self) -> None:
        """Let everybody go who waits."""
        with self._changed:
            self._closed = True
            self._given.clear()
            self._changed.notify_all()


# borrows: the instructions of `borrows`


def offer(worker: Runner, site: int, ticket: int, value: int) -> None:
    """The origin's stream: from here on the borrower may use a value."""
    worker.shared.rendezvous.give(ticket, worker.slots[value])


def accept(worker: Runner, site: int, ticket: int, value: int) -> None:
    """The borrower's stream, before it uses the value for the first time. It is kept under the ticket, too, for the way back."""
    taken = worker.shared.rendezvous.take(ticket)
    worker.poisoned |= type(taken) is Poison
    worker.slots[ticket] = worker.slots[value] = taken


def give_back(worker: Runner, site: int, ticket: int, value: int) -> None:
    """The borrower's stream, after it has used the value for the last time; the second time it does nothing."""
    worker.slots.pop(value, None)
    if ticket in worker.slots:
        worker.shared.rendezvous.give(-ticket, worker.slots.pop(ticket))


def take_back(worker: Runner, site: int, ticket: int, value: int, used: bool) -> None:
    """The origin's stream: it may use the value again, once the borrower does not; a failure of a write comes with it.

    Args:
        used: Whether the borrower has ever used it.
    """
    returned = worker.shared.rendezvous.take(-ticket if used else ticket)
    if type(returned) is Poison:
        worker.poisoned = True
        worker.poison_aliases([value], returned)


FUNCTIONS = (offer, accept, give_back, take_back)
