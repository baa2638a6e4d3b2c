"""The rows of a program that a failure is about to end, for clients beside it.

What ends the program's wait: each host has answered, or `_BOUND` seconds are over. A client beside
it that has gone costs no time.
"""

from __future__ import annotations

from .._core.plane import ControlRequest, ControlService, before_the_end, handles
from .._namedtuple import NamedTuple
from ..programs import agents_here
from .gather import gather, question

_PATIENCE = 0.5  # seconds in which a process answers its agent
_BOUND = 1.5  # seconds in which a host answers


class AwaitFault(NamedTuple):
    """Wait for the failure that ends the program.

    A client beside it ──▶ the client. Answer: the rows of some tables, as `Collected`, once an
    unhandled failure was reported. The client has ended: by another cause.

    Attributes:
        tables: Their names.
    """

    tables: tuple[str, ...]


_waiting: list[tuple[ControlService, ControlRequest, AwaitFault]] = []


@handles(AwaitFault)
def _await_fault(service: ControlService, request: ControlRequest, record: AwaitFault) -> None:
    if _answer_all not in before_the_end:
        before_the_end.append(_answer_all)
    _waiting[:] = [*_who_waits(), (service, request, record)]


def _who_waits() -> list[tuple[ControlService, ControlRequest, AwaitFault]]:
    return [each for each in _waiting if each[0].hub.process_fate(each[1].peer) is None]


def _answer_all() -> None:
    waiting = _who_waits()
    agents = agents_here().get(timeout=_BOUND) if waiting else []
    found = []
    for service, _, record in waiting:
        asked = question(record.tables)._replace(root=service.hub.root, patience=_PATIENCE)
        found.append(gather(service.hub, agents, asked, _BOUND))
    for (_, request, _), rows in zip(waiting, found, strict=True):
        request.answer(rows.get())


HANDLERS = (_await_fault,)
