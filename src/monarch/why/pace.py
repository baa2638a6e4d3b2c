"""How long the last steps of each rank have taken.

Processes that have answered a first look are asked.

A step is what `monarch.telemetry.step` marks. Where an actor marks none, it is a call of an
endpoint, if messages are remembered. A process that has imported neither has nothing to say. Each
of a thousand imports this module at the first look: it imports nothing else.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from .._core.plane import ControlRequest, ControlService, handles, register
from .._lazy import whole
from .._namedtuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST = 32
"""Steps of a rank that are looked at."""


class Pace(NamedTuple):
    """The last steps of an actor.

    Attributes:
        actor_id: Of it, the same on all ranks.
        endpoint: Whose calls these are; empty for marked steps.
        took: Each one's time, in microseconds, the latest last.
        ago: Microseconds since the last one ended.
    """

    actor_id: int
    endpoint: str
    took: Sequence[int]
    ago: int


class GetPace(NamedTuple):
    """How long have your last steps taken?

    A client, of the program or beside it ──▶ procs. Answer: a list of `Pace`.
    """


@handles(GetPace)
def _get_pace(service: ControlService, request: ControlRequest, record: GetPace) -> None:
    now = time.time_ns() // 1000
    spans, messages = whole("monarch.telemetry.spans"), whole("monarch.telemetry.messages")
    marked = spans.recent_steps(MOST) if spans is not None else {}
    called = messages.recent_calls(MOST) if messages is not None else {}
    found = [Pace(uid, "", tuple(took), now - last) for uid, (took, last) in marked.items()]
    found += [
        Pace(uid, name, tuple(took), now - last) for (uid, name), (took, last) in called.items()
    ]
    request.answer(found)


register(_get_pace)
