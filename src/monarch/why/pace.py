"""How long the last steps of each rank have taken.

Processes that have answered a first look are asked.

A step is what `monarch.telemetry.step` marks. Of the time to the next one that counts in which the
actor has handled something, if messages are remembered: where the program calls all ranks for each
step, all of them wait for the slowest, and are called again at once. Where an actor marks none, it is a call of an
endpoint, if messages are remembered. A process that has imported neither has nothing to say. Each
of a thousand imports this module at the first look: it imports nothing else.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import defaultdict
from itertools import accumulate
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
    handled: defaultdict[int, list[tuple[int, int, int]]] = defaultdict(list)
    called: defaultdict[tuple[int, str], list[tuple[int, int]]] = defaultdict(list)
    for uid, name, begin, end, weight in messages.handled() if messages is not None else ():
        handled[uid].append((begin, now if end is None else end, weight))
        if end is not None:
            called[uid, name].append((end - begin, end))
    found = [
        Pace(uid, "", tuple(busy(took, last, handled[uid])), now - last)
        for uid, (took, last) in marked.items()
    ]
    for (uid, name), calls in called.items():
        found.append(Pace(uid, name, tuple(took for took, _ in calls[-MOST:]), now - calls[-1][1]))
    request.answer(found)


def busy(took: Sequence[int], last: int, handled: Sequence[tuple[int, int, int]]) -> Sequence[int]:
    """How long an actor was busy in each of its steps; the whole step where that is not known.

    Args:
        took: How long they took.
        last: When the last one ended.
        handled: Begin, end and weight of each message.
    """
    edges = list(accumulate(took, initial=last - sum(took)))
    own = [0] * len(took)
    for begin, end, weight in handled:
        at = max(0, bisect_right(edges, begin) - 1)
        while at < len(own) and edges[at] < end:
            own[at] += weight * (min(end, edges[at + 1]) - max(begin, edges[at]))
            at += 1
    return [min(step, part) if part > 0 else step for step, part in zip(took, own, strict=True)]


HANDLERS = (_get_pace,)
