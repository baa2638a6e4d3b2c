"""Two looks at a program.

What ends the wait: each host has answered, is lost, or has not answered within `_LIMIT`; those are
named, and part of the verdict.
"""

from __future__ import annotations

import time
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from .._core.plane import Hub, ProcAddress, current_hub, pickling
from ..actor import HostMesh
from ..programs import PATIENCE, Connection, Gathering, agents_here, agents_of
from ..stacks.gather import gather
from ..stacks.host import GetHostStacks
from ..stacks.report import Stacks
from .judge import judge
from .model import Verdict
from .nodes import told_apart
from .pace import GetPace, Pace
from .steps import stragglers

# seconds for a host: at the first look each of a thousand processes imports what answers, on a
# machine that is busy
_LIMIT = 8.0
_PACE_LIMIT = 2.0  # seconds for the steps of ranks: slower ranks have other troubles
_PATIENCE = 0.25  # seconds without an answer of any process of a host


def why(hosts: HostMesh | None = None, seconds: float = 1.0) -> Verdict:
    """Say why this program does not go on, or that it does: for a watchdog.

    It takes little more than `seconds`.

    Args:
        hosts: Where to look; by default on all hosts of the program.
        seconds: Between two looks, which tell hung ranks from slow ones.

    Raises:
        ValueError: `seconds` is not positive.
    """
    hub = current_hub()
    if hosts is not None:
        return _look_twice(hub, agents_of(hosts._hosts), hub.root, seconds)
    return _look_twice(hub, agents_here().get(timeout=PATIENCE), hub.root, seconds)


def of_program(connection: Connection, seconds: float = 1.0) -> Verdict:
    """As `why`, of a program that runs elsewhere; all that runs on the host of a worker."""
    return _look_twice(connection.hub, connection.agents, connection.owner, seconds)


def _look_twice(
    hub: Hub, agents: Sequence[ProcAddress], root: ProcAddress | None, seconds: float
) -> Verdict:
    if not seconds > 0:
        raise ValueError(f"`seconds` between two looks is more than 0, not {seconds!r}")
    wanted = GetHostStacks(root, patience=_PATIENCE, py_spy=False, ended=True)
    begun = time.monotonic()
    first = gather(hub, agents, wanted, seconds + _LIMIT).get()
    answered = [
        proc.address for proc in first.procs if proc.address is not None and proc.how == "itself"
    ]
    asked = _Paces(answered, "the last steps of all ranks")
    paces = asked.ask(hub, GetPace(), _PACE_LIMIT) if answered else None
    # not needed for the comparison, and with ten thousand ranks as large as the stacks
    first.procs = tuple(proc._replace(coordinates={}, mailboxes=()) for proc in first.procs)
    time.sleep(max(0.0, begun + seconds - time.monotonic()))
    between = time.monotonic() - begun
    # hosts that were silent are not waited for again
    answer = [agent for agent in agents if agent.host not in first.silent]
    second = gather(hub, answer, wanted, 2 * _LIMIT).get() if answer else Stacks([], {})
    first, second = told_apart(first, Stacks(second.procs, {**first.silent, **second.silent}))
    found, held = paces.get() if paces is not None else ({}, Counter[str]())
    marks = ((each, pace) for each in found for pace in found[each] if not pace.endpoint)
    stepped: dict[Any, float] = {each: between + pace.ago / 1e6 for each, pace in marks}
    late, unclear = stragglers(second.procs, found)
    second.procs = tuple(each._replace(stepped=stepped.get(each.address)) for each in second.procs)
    return judge(first, second, between, late, held.most_common(), unclear)


_Found: TypeAlias = "tuple[Mapping[ProcAddress, list[Pace]], Counter[str]]"


class _Paces(Gathering[_Found]):
    """The paces of some processes, and calls of services. Those that do not answer have none."""

    def read(self, frames: Sequence[Any]) -> _Found:
        paces, held = {}, Counter[str]()
        for frame in frames:
            own, calls = pickling.loads(frame.payload, frame.buffers)
            # a quarter of the memory of a tuple, of ten thousand ranks
            took = [pace._replace(took=array("q", pace.took)) for pace in own]
            paces[self._agents[frame.rank]] = took
            held.update(calls)
        return paces, held
