"""The actor that owns the replicas of a service: it starts them, looks after them, replaces and stops them, and tells the processes that
call the service which replicas take calls.

Each place of the service has a task, `_keep`, which has one replica after the other in it. What ends its waits: a replica is ready, or
has failed, of which `__supervise__` tells; its health check takes too long; the service gets smaller, or ends. Then its calls are
waited for up to `drain` seconds: each process that calls answers `Members` when it has none there, and one that has ended has none.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from .._core.plane import SETTLE, Gather, ProcAddress, StopCall, current_hub, pickling, send_record
from .._lazy import lazy_logger
from ..actor import (
    Actor,
    Future,
    HostMesh,
    MeshFailure,
    ProcMesh,
    SupervisionError,
    concurrent_endpoint,
    context,
    endpoint,
)
from ..telemetry.metrics import get_meter
from .records import Members, ReplicaStatus, Spec

logger = lazy_logger("monarch.service")
_STEADY = 60.0  # seconds that a replica is ready, after which its failures so far are forgotten
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 30.0  # seconds before a place is filled again, from its second failure in a row on


class _Replica:
    """What is in a place.

    Attributes:
        over: Done when it takes no calls any more: why it has failed, or None where it was to end.
    """

    def __init__(self, place: int, host: int, procs: ProcMesh, actors: Any) -> None:
        self.place = place
        self.host = host
        self.procs = procs
        self.actors = actors
        self.ready = False
        self.over: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()

    @property
    def target(self) -> Any:
        return self.actors._target

    def end(self, why: str | None) -> None:
        if not self.over.done():
            self.over.set_result(why)


class _Place:
    """A place of the service: what keeps it filled, and how that goes."""

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        self.replica: _Replica | None = None
        self.state = "starting"
        self.restarts = 0
        self.last_failure = ""


class Keeper(Actor):
    """One for each service, in the process of who has made that."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._hosts: HostMesh = spec.hosts.flatten("host")
        self._lost: set[int] = set()  # hosts, whose loss is final
        self._places: dict[int, _Place] = {}
        self._callers: set[ProcAddress] = set()
        self._version = 0
        self._changed = asyncio.Condition()
        self._replaced = get_meter("monarch.service").create_counter("service.replacements", "", "replicas replaced")
        self._grow(spec.replicas)

    @endpoint(concurrency=1)
    async def scale(self, replicas: int, drain: float) -> Members:
        """Have so many replicas: done when those that are new are ready, or given up, and others have ended. Returns which there are."""
        self._grow(replicas)
        leaving = [place for place in self._places if place >= replicas]
        await self._drain(leaving, drain)
        async with self._changed:
            await self._changed.wait_for(
                lambda: all(each.state in ("ready", "given up") for each in self._places.values())
            )
        return self._members()

    @concurrent_endpoint
    async def close(self, drain: float) -> None:
        """Have none, and end."""
        await self.scale(0, drain)
        context().actor_instance.stop("the service was stopped")

    @concurrent_endpoint
    async def join(self, caller: ProcAddress) -> Members:
        """A process is about to call: it is told of all changes."""
        self._callers.add(caller)
        return self._members()

    @concurrent_endpoint
    async def status(self) -> list[ReplicaStatus]:
        return [
            ReplicaStatus(number, self._name(number), place.state, place.restarts, place.last_failure)
            for number, place in sorted(self._places.items())
        ]

    async def __supervise__(self, failure: MeshFailure) -> bool:
        for place in self._places.values():
            replica = place.replica
            if replica is not None and failure.mesh_name == self._name(replica.place):
                if failure.cause == "host":
                    self._lost.add(replica.host)
                replica.end(failure.report())
        return True  # whether the service goes on is said to its callers

    # places

    def _name(self, place: int) -> str:
        return f"{self._spec.name}-{place}"

    def _grow(self, replicas: int) -> None:
        for number in range(replicas):
            place = self._places.get(number)
            if place is None or place.state == "given up":  # who asks again wants another attempt
                self._places[number] = place = _Place()
                place.task = asyncio.create_task(self._keep(number, place))

    async def _keep(self, number: int, place: _Place) -> None:
        """One replica after the other, until one was to end, or too many have failed in a row."""
        failures = 0
        while True:
            begun = time.monotonic()
            why = await self._run(number, place)
            if why is None:
                return
            failures = 1 if place.state == "ready" and time.monotonic() - begun >= _STEADY else failures + 1
            place.last_failure = why
            if failures > self._spec.max_restarts:
                logger.warning("%s is given up, after %d failures in a row: %s", self._name(number), failures, why)
                await self._now(place, "given up")
                return
            await self._now(place, "waiting")
            if failures > 1:
                await asyncio.sleep(min(_FIRST_PAUSE * 2 ** (failures - 2), _LONGEST_PAUSE))
            logger.warning("replacing %s: %s", self._name(number), why)
            self._replaced.add(1, {"service": self._spec.name})
            place.restarts += 1
            await self._now(place, "starting")

    async def _run(self, number: int, place: _Place) -> str | None:
        """One replica, from its start to its end; why it has failed, or None where it was to end."""
        try:
            place.replica = replica = self._start(number)
        except Exception as error:  # its host has been shut down, for one
            return f"it could not be started: {error}"
        watching = asyncio.create_task(self._watch(place, replica))
        try:
            why = await replica.over
        finally:
            watching.cancel()
        was_ready, replica.ready = replica.ready, False
        place.replica = None
        if was_ready:
            self._publish()
        with suppress(Exception):  # its host is lost, for one: nothing is left to stop
            await replica.procs.stop(why or "the service has become smaller")
        return why

    def _start(self, number: int) -> _Replica:
        spec = self._spec
        taken = Counter(place.replica.host for place in self._places.values() if place.replica is not None)
        host = min(range(len(self._hosts)), key=lambda each: (each in self._lost, taken[each]))
        name = self._name(number)
        procs = self._hosts.slice(host=host).spawn_procs(spec.procs, bootstrap=spec.bootstrap, name=name)
        actors = procs.spawn(name, spec.actor, *spec.args, **spec.kwargs)
        return _Replica(number, host, procs, actors)

    async def _watch(self, place: _Place, replica: _Replica) -> None:
        """Wait until it handles messages, then ask now and then how it is."""
        try:
            await _settled(replica)
        except SupervisionError as error:
            replica.end(error.failure.report() if error.failure is not None else str(error))
            return
        if place.state == "draining":
            return
        replica.ready = True
        self._publish()
        await self._now(place, "ready")
        spec = self._spec
        while spec.health is not None:
            await asyncio.sleep(spec.health_interval)
            asked = getattr(replica.actors, spec.health).call()
            try:
                answers = await asyncio.wait_for(asked.as_asyncio(), spec.health_timeout)
                unwell = next((value for value in answers.values() if value is False), None)
                why = "said that it is not well" if unwell is False else None
            except asyncio.TimeoutError:
                why = f"did not answer within {spec.health_timeout:g}s"
            except Exception as error:
                why = f"failed: {error}"
            if why is not None:
                replica.end(f"its health check {spec.health} {why}")
                replica.procs.kill(
                    f"its health check {spec.health} {why}"
                )  # its callers need not wait for it to clean up

    async def _now(self, place: _Place, state: str) -> None:
        place.state = state
        if state == "given up":
            self._publish()
        async with self._changed:
            self._changed.notify_all()

    async def _drain(self, numbers: Sequence[int], limit: float) -> None:
        """Let these places take no more calls, wait for those that they have, and empty them."""
        leaving = {number: self._places[number] for number in numbers}
        for place in leaving.values():
            place.state = "draining"
            if place.replica is not None:
                place.replica.ready = False
        if leaving:
            await asyncio.wait([self._publish().as_asyncio()], timeout=limit)
        for place in leaving.values():
            if place.replica is not None:
                place.replica.end(None)
            elif place.task is not None:  # between two replicas
                place.task.cancel()
        await asyncio.gather(
            *(place.task for place in leaving.values() if place.task is not None), return_exceptions=True
        )
        for number in leaving:
            self._places.pop(number, None)

    # callers

    def _members(self) -> Members:
        ready = [place.replica for place in self._places.values() if place.replica is not None and place.replica.ready]
        hopeless = ""
        if not ready and all(place.state == "given up" for place in self._places.values()):
            reasons = [place.last_failure for place in self._places.values()]
            hopeless = (
                f"{len(reasons)} replicas have failed too often, the last one so:\n{reasons[-1]}"
                if reasons
                else "it has been scaled to none"
            )
        return Members(self._spec.uid, self._version, tuple((each.place, each.target) for each in ready), hopeless)

    def _publish(self) -> Future[None]:
        """Tell all callers which replicas there are; done when none has a call outstanding at others."""
        hub: Any = current_hub()
        self._version += 1
        self._callers = {each for each in self._callers if hub.process_fate(each) is None}
        callers = list(self._callers)
        request = StopCall(f"{self._spec.name}: callers to have heard", callers)
        if callers:
            send_record(hub, callers, self._members(), request, context()._cell.uid)
        else:
            request.resolve(None)
        return request.future


def _settled(replica: _Replica) -> Future[Any]:
    """Done when all ranks have run ``__init__`` and handle messages."""
    target = replica.target
    request = Gather(f"{target.name} to be ready", target.uid, target.procs, target.extent)
    target.cast(SETTLE, pickling.dumps_call((), {}), request)
    return request.future
