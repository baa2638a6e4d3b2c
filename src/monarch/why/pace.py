"""How long the last steps of each rank have taken.

Processes that have answered a first look are asked.

A step is what `monarch.telemetry.step` marks. Of the time to the next one that counts in which the
actor has handled something: where the program calls all ranks for each step, all of them wait for
the slowest, and are called again at once. Where an actor marks none, it is a call of an endpoint, if
messages are remembered. A process that has imported neither has nothing to say. Each
of a thousand imports this module at the first look: it imports nothing else.
"""

from __future__ import annotations

import time
from collections import defaultdict
from typing import TYPE_CHECKING

from .._core.plane import ControlRequest, ControlService, handles
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
        endpoint: The endpoint with these calls as steps; empty for marked steps.
        took: The time of each in which the actor was busy, in microseconds, the latest last.
        ago: Microseconds since the last one ended.
        longest: Microseconds from one to the next, at most.
    """

    actor_id: int
    endpoint: str
    took: Sequence[int]
    ago: int
    longest: int


class GetPace(NamedTuple):
    """How long have your last steps taken?

    A client, of the program or beside it ──▶ procs. Answer: a list of `Pace`; how many calls of
    each service the process waits for.
    """


@handles(GetPace)
def _get_pace(service: ControlService, request: ControlRequest, record: GetPace) -> None:
    now = time.time_ns() // 1000
    steps, messages = whole("monarch.telemetry.steps"), whole("monarch.telemetry.messages")
    called: defaultdict[tuple[int, str], list[tuple[int, int, int]]] = defaultdict(list)
    for uid, name, begin, end in messages.handled() if messages is not None else ():
        called[uid, name].append((end, end - begin, end - begin))
    for uid, marked in steps.recent_steps(MOST).items() if steps is not None else ():
        called[uid, ""] = marked
    found = []
    for (uid, name), calls in called.items():
        ends, whole_ones, took = zip(*calls[-MOST:], strict=True)
        found.append(Pace(uid, name, took, now - ends[-1], max(whole_ones)))
    router = whole("monarch.service.router")
    request.answer((found, router.held() if router is not None else {}))


HANDLERS = (_get_pace,)
