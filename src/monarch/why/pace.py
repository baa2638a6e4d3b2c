"""How long the last steps of each rank have taken: asked of processes that have answered a first look.

A step is what `monarch.telemetry.step` marks. Where an actor marks none, it is a call of an endpoint, if messages are remembered. A process
that has imported neither has nothing to say, and imports nothing for it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from .._core.plane import ControlRequest, ControlService, Hub, ProcAddress, handles, pickling, register
from .._namedtuple import NamedTuple
from ..actor import Future
from ..programs import Gathering
from .steps import MOST, Pace

_LIMIT = 2.0  # seconds: who takes longer has other troubles


class GetPace(NamedTuple):
    """How long have your last steps taken? A client, of the program or beside it ──▶ procs. Answer: a list of `Pace`."""


@handles(GetPace)
def _get_pace(service: ControlService, request: ControlRequest, record: GetPace) -> None:
    now = time.time_ns() // 1000
    spans: Any = sys.modules.get("monarch.telemetry.spans")
    messages: Any = sys.modules.get("monarch.telemetry.messages")
    marked = spans.recent_steps(MOST) if spans is not None else {}
    called = messages.recent_calls(MOST) if messages is not None else {}
    found = [Pace(uid, "", tuple(took), now - last) for uid, (took, last) in marked.items()]
    found += [Pace(uid, name, tuple(took), now - last) for (uid, name), (took, last) in called.items()]
    request.answer(found)


def gather(hub: Hub, procs: Sequence[ProcAddress]) -> Future[Mapping[ProcAddress, list[Pace]]]:
    """The paces of some processes; those that do not answer have none."""
    return _Gathering(procs, "the last steps of all ranks").ask(hub, GetPace(), _LIMIT)


class _Gathering(Gathering[Mapping[ProcAddress, list[Pace]]]):
    def read(self, frames: Sequence[Any]) -> Mapping[ProcAddress, list[Pace]]:
        return {self._agents[frame.rank]: pickling.loads(frame.payload, frame.buffers) for frame in frames}


register(_get_pace)
