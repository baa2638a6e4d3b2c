"""The instructions of `borrows`, on a worker."""

from __future__ import annotations

from ..instructions import Poison
from .stream_state import StreamState


def offer(worker: StreamState, site: int, ticket: int, value: int) -> None:
    """The origin's stream: from here on the borrower may use a value."""
    worker.shared.rendezvous.give(ticket, worker.slots[value])


def accept(worker: StreamState, site: int, ticket: int, value: int) -> None:
    """The borrower's stream, before it uses the value for the first time.

    It is kept under the ticket, too, for the way back.
    """
    taken = worker.shared.rendezvous.take(ticket)
    worker.poisoned |= type(taken) is Poison
    worker.slots[ticket] = worker.slots[value] = taken


def give_back(worker: StreamState, site: int, ticket: int, value: int) -> None:
    """End the borrower's use of the value, on its stream.

    A second call does nothing.
    """
    worker.slots.pop(value, None)
    if ticket in worker.slots:
        worker.shared.rendezvous.give(-ticket, worker.slots.pop(ticket))


def take_back(worker: StreamState, site: int, ticket: int, value: int, used: bool) -> None:
    """Give the value back to the origin's stream, after the borrower has used it.

    A failure of a write comes with it.

    Args:
        worker: State of the stream.
        site: Where the program has issued this.
        ticket: Number of the borrow.
        value: Id of the value.
        used: Whether the borrower has ever used it.
    """
    returned = worker.shared.rendezvous.take(-ticket if used else ticket)
    if type(returned) is Poison:
        worker.poisoned = True
        worker.poison_aliases([value], returned)


FUNCTIONS = (offer, accept, give_back, take_back)
