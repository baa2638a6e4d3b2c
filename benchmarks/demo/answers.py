"""The answers of the simulated program's processes.

They are the same values, to the same records, as real ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from monarch import config
from monarch._core.plane import DescribeHost, KillProcs, ProcAddress
from monarch.control import OwnedMesh
from monarch.stacks.host import GetHostStacks
from monarch.stacks.py_spy import RunPySpy
from monarch.telemetry.collect import Collect
from monarch.telemetry.watch import Watching
from monarch.why.pace import MOST, Pace

from . import event_rows, stacks, state_rows
from .hub import NoAnswer
from .question import collected
from .world import DemoWorld

TABLES = (event_rows, state_rows)
"""The modules that fill tables."""


class Processes:
    """Answers for all processes of a world.

    Args:
        clock: Gives the time, in seconds since 1970.
    """

    def __init__(self, world: DemoWorld, clock: Callable[[], float] = time.time) -> None:
        self._world = world
        self._clock = clock
        self._procs = {proc.address: proc for host in world.hosts for proc in host.procs}
        self._answers: dict[str, Callable[..., Any]] = {
            "DescribeHost": self._describe, "GetHostStacks": self._stacks, "Collect": self._collect, "GetPace": self._pace,
            "Watch": self._watch, "GetSettings": self._settings, "GetJob": self._job, "RunPySpy": self._py_spy, "OwnedMesh": self._owned,
            "KillProcs": self._kill,
        }  # fmt: skip

    def answer(self, address: ProcAddress, record: str, fields: tuple[Any, ...]) -> Any:
        """See `hub.Answer`.

        Raises:
            NoAnswer: That host does not answer.
            LookupError: It knows no such record.
        """
        now = self._clock()
        host = self._world.by_agent[address.agent]
        if self._world.is_silent(host, now):
            raise NoAnswer
        if record not in self._answers:
            raise LookupError(f"the demo has no answer to {record}")
        return self._answers[record](address, now, *fields)

    def _describe(self, agent: ProcAddress, now: float, *fields: Any) -> Any:
        return self._world.describe(self._world.by_agent[agent], now, DescribeHost(*fields).ended)

    def _stacks(self, agent: ProcAddress, now: float, *fields: Any) -> Any:
        host = self._world.by_agent[agent]
        return list(stacks.of_host(self._world, host, GetHostStacks(*fields), now))

    def _collect(self, agent: ProcAddress, now: float, *fields: Any) -> Any:
        return collected(self._world, self._world.by_agent[agent], Collect(*fields), now)

    def _pace(self, address: ProcAddress, now: float) -> tuple[list[Pace], dict[str, int]]:
        world, proc = self._world, self._procs.get(address)
        if proc is None or proc.mesh is not world.trainers:
            return [], {}
        odd = world.is_odd(proc)
        done = int(world.steps(now, odd))
        took = tuple(int(1e6 * world.took(proc, step)) for step in range(max(0, done - MOST), done))
        ago = int(1e6 * (now - world.begin_of(done, odd)))
        return [Pace(proc.mesh.actor_uid, "", took, ago, max(took, default=0))], {}

    def _watch(self, address: ProcAddress, now: float, *fields: Any) -> Watching:
        return Watching(int(now * 1e9), True)

    def _settings(self, address: ProcAddress, now: float) -> Any:
        return config.settings()

    def _job(self, address: ProcAddress, now: float) -> str:
        return self._world.job

    def _py_spy(self, agent: ProcAddress, now: float, *fields: Any) -> Any:
        searched = [f"process {RunPySpy(*fields).address} is simulated"]
        return {"BinaryNotFound": {"searched": searched}}

    def _owned(self, address: ProcAddress, now: float, *fields: Any) -> bool | None:
        wanted = OwnedMesh(*fields)
        mesh = self._world.find(wanted.uid) if address == self._world.client else None
        if mesh is not None and wanted.stop:
            self._world.stopped[mesh.uid] = wanted.stop
        return mesh and mesh.restarts

    def _kill(self, agent: ProcAddress, now: float, *fields: Any) -> None:
        self._world.restarted[KillProcs(*fields).mesh] = now
