"""The actor that owns the replicas of a service.

It starts them, looks after them, replaces and stops them, and tells the processes that call the
service which replicas take calls.

Each place of the service has a task, `_keep`, which has one replica after the other in it. What
ends its waits: a replica is ready, or has failed, of which `__supervise__` tells; its health check
takes too long; the service gets smaller, or ends. Then its calls are waited for up to `drain`
seconds: each process that calls answers `Members` when it has none there, and one that has ended
has none.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import suppress
from typing import Any

from .. import actor
from .._core import plane
from .._lazy import lazy_logger
from ..telemetry.metrics import get_meter
from .records import Members, ReplicaStatus, Spec

logger = lazy_logger("monarch.service")
_STEADY = 60.0  # seconds that a replica is ready, after which its failures so far are forgotten
# seconds before a place is filled again, from its second failure in a row on
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 30.0


class _Replica:
    """The replica in a place.

    Attributes:
        over: Done when it takes no calls any more: why it has failed, or None where it was to end.
        bug: How its constructor has failed, where that may do so each time.
    """

    def __init__(self, place: int, host: int, procs: actor.ProcMesh, actors: Any) -> None:
        self.place = place
        self.host = host
        self.procs = procs
        self.actors = actors
        self.ready = False
        self.bug = ""
        self.over: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()

    @property
    def target(self) -> Any:
        return self.actors._target

    def fail(self, failure: actor.MeshFailure) -> None:
        # what the system has refused, such as a connection, may go well the next time
        in_constructor = not self.ready and failure.cause == "exception"
        if in_constructor and not isinstance(failure.exception, OSError):
            self.bug = failure.event.reason
        self.end(failure.report())

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
        self.bug = ""  # of the last replica


class Keeper(actor.Actor):
    """One for each service, in the process that has made the service."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._hosts: actor.HostMesh = spec.hosts.flatten("host")
        self._lost: set[int] = set()  # hosts; the loss of one is final
        self._places: dict[int, _Place] = {}
        self._callers: set[plane.ProcAddress] = set()
        self._version = 0
        self._changed = asyncio.Condition()
        self._replaced = get_meter("monarch.service").create_counter(
            "service.replacements", "", "replicas replaced"
        )
        self._wanted = spec.replicas  # 0 once the service is being stopped
        self._grow()

    @actor.concurrent_endpoint
    async def scale(self, replicas: int, drain: float) -> Members:
        """Scale to so many replicas.

        It is done when new ones are ready, or given up, and surplus ones have ended. It
        returns which there are.
        """
        if not self._wanted:
            raise RuntimeError(f"the service {self._spec.name} is being stopped")
        self._wanted = replicas
        self._grow()
        await self._drain(drain)
        async with self._changed:
            await self._changed.wait_for(
                lambda: all(each.state in ("ready", "given up") for each in self._places.values())
            )
        return self._members()

    @actor.concurrent_endpoint
    async def close(self, drain: float) -> None:
        """Have none, and end."""
        self._wanted = 0
        await self._drain(drain)
        actor.context().actor_instance.stop("the service was stopped")

    @actor.concurrent_endpoint
    async def join(self, caller: plane.ProcAddress) -> Members:
        """A process is about to call: it is told of all changes."""
        self._callers.add(caller)
        return self._members()

    @actor.concurrent_endpoint
    async def status(self) -> list[ReplicaStatus]:
        return [
            ReplicaStatus(
                number, self._name(number), place.state, place.restarts, place.last_failure
            )
            for number, place in sorted(self._places.items())
        ]

    async def __supervise__(self, failure: actor.MeshFailure) -> bool:
        for place in self._places.values():
            replica = place.replica
            if replica is not None and failure.mesh in (replica.procs, replica.actors):
                if failure.cause == "host":
                    self._lost.add(replica.host)
                replica.fail(failure)
        return True  # whether the service goes on is said to its callers

    async def __cleanup__(self, exc: Exception | None) -> None:
        self._publish(Members(self._spec.uid, self._version + 1, (), "it has ended", True))

    # places

    def _name(self, place: int) -> str:
        return f"{self._spec.name}-{place}"

    def _grow(self) -> None:
        for number in range(self._wanted):
            place = self._places.get(number)
            if place is None or place.state == "given up":  # who asks again wants another attempt
                self._places[number] = place = _Place()
                place.task = asyncio.create_task(self._keep(number, place))

    async def _keep(self, number: int, place: _Place) -> None:
        """One replica after the other, until one was to end, or too many have failed in a row."""
        failures = 0
        while place.state != "draining":
            begun, bug = time.monotonic(), place.bug
            try:
                why = await self._run(number, place)
            except Exception as error:
                why = f"its keeper failed: {error!r}"
            if why is None:
                return
            place.last_failure = why
            if place.state == "draining":
                return
            failures += 1
            if place.state == "ready" and time.monotonic() - begun >= _STEADY:
                failures = 1
            if failures > self._spec.max_restarts or (bug and place.bug == bug):
                logger.warning(
                    "%s is given up, after %d failures in a row: %s",
                    self._name(number),
                    failures,
                    why,
                )
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
        """Run one replica from its start to its end.

        The result is why it has failed, or None where it was to end.
        """
        try:
            place.replica = replica = self._start(number)
        except Exception as error:  # its host has been shut down, for one
            return f"it could not be started: {error}"
        watching = asyncio.create_task(self._watch(place, replica))
        why = await replica.over
        watching.cancel()
        was_ready, replica.ready, place.bug = replica.ready, False, replica.bug
        place.replica = None
        try:
            if was_ready:
                self._publish()
        finally:
            with suppress(Exception):  # its host is lost, for one: nothing is left to stop
                await replica.procs.stop(why or "the service has become smaller")
        return why

    def _start(self, number: int) -> _Replica:
        spec = self._spec
        taken = Counter(
            place.replica.host for place in self._places.values() if place.replica is not None
        )
        host = min(range(len(self._hosts)), key=lambda each: (each in self._lost, taken[each]))
        name = self._name(number)
        procs = self._hosts.slice(host=host).spawn_procs(
            spec.procs, bootstrap=spec.bootstrap, name=name
        )
        actors = procs.spawn(name, spec.actor, *spec.args, **spec.kwargs)
        return _Replica(number, host, procs, actors)

    async def _watch(self, place: _Place, replica: _Replica) -> None:
        """Wait until it handles messages, then ask now and then how it is.

        The end of this, unless by the keeper, ends the replica.
        """
        try:
            await _answers(replica, plane.SETTLE)
            if place.state == "draining":
                return
            replica.ready = True
            self._publish()
            await self._now(place, "ready")
            health = self._spec.health
            if health is not None:
                why = f"its health check {health} {await self._ailment(replica, health)}"
                replica.end(why)
                replica.procs.kill(why)  # its callers need not wait for it to clean up
        except actor.SupervisionError as error:
            if error.failure is not None:
                replica.fail(error.failure)
            replica.end(str(error))
        except Exception as error:
            replica.end(f"its keeper failed: {error!r}")

    async def _ailment(self, replica: _Replica, health: str) -> str:
        """Describe the fault of the replica, once there is one."""
        meta, limit = plane.encode_meta(health, replica.target.extent), self._spec.health_timeout
        while True:
            await asyncio.sleep(self._spec.health_interval)
            try:
                answers = await asyncio.wait_for(_answers(replica, meta).as_asyncio(), limit)
            except asyncio.TimeoutError:
                return f"did not answer within {limit:g}s"
            except Exception as error:
                return f"failed: {error}"
            if any(value is False for value in answers.values()):
                return "said that it is not well"

    async def _now(self, place: _Place, state: str) -> None:
        if place.state != "draining":  # that is its last
            place.state = state
        if state == "given up":
            self._publish()
        async with self._changed:
            self._changed.notify_all()

    async def _drain(self, limit: float) -> None:
        """Retire surplus places: no more calls, wait for those that they have, empty them."""
        leaving = {
            number: place for number, place in self._places.items() if number >= self._wanted
        }
        for place in leaving.values():
            if place.state == "waiting" and place.task is not None:  # between two replicas
                place.task.cancel()
            place.state = "draining"
            if place.replica is not None:
                place.replica.ready = False
        if leaving:
            await asyncio.wait([self._publish().as_asyncio()], timeout=limit)
        for place in leaving.values():
            if place.replica is not None:
                place.replica.end(None)
        await asyncio.gather(
            *(place.task for place in leaving.values() if place.task is not None),
            return_exceptions=True,
        )
        for number, place in leaving.items():
            if self._places.get(number) is place:
                del self._places[number]
        self._grow()  # where more are wanted by now
        async with self._changed:
            self._changed.notify_all()

    # callers

    def _members(self) -> Members:
        ready = [
            place.replica
            for place in self._places.values()
            if place.replica is not None and place.replica.ready
        ]
        hopeless = ""
        if not ready and all(place.state == "given up" for place in self._places.values()):
            reasons = [place.last_failure for place in self._places.values()]
            hopeless = "it has been scaled to none"
            if reasons:
                hopeless = f"{len(reasons)} replicas have failed too often, the last one so:\n{reasons[-1]}"
        return Members(
            self._spec.uid,
            self._version,
            tuple((each.place, each.target) for each in ready),
            hopeless,
        )

    def _publish(self, last: Members | None = None) -> actor.Future[None]:
        """Tell all callers which replicas there are.

        It is done when none has a call outstanding at others.
        """
        hub: Any = plane.current_hub()
        self._version += 1
        self._callers = {each for each in self._callers if hub.process_fate(each) is None}
        callers = list(self._callers)
        request = plane.StopCall(f"{self._spec.name}: callers to have heard", callers)
        if callers:
            members, sender = last or self._members(), actor.context()._cell.uid
            # on the thread that never waits for room, as a caller may read nothing
            hub.poller.call_soon(lambda: plane.send_record(hub, callers, members, request, sender))
        else:
            request.resolve(None)
        return request.future


def _answers(replica: _Replica, meta: bytes) -> actor.Future[Any]:
    """Ask all ranks; they answer once they have run ``__init__``.

    Sent on the poller's thread, which never waits for room in a mailbox.
    """
    target, hub, cell = replica.target, plane.current_hub(), actor.context()._cell
    request = plane.Gather(
        f"{target.name} to answer its keeper", target.uid, target.procs, target.extent
    )
    hub.poller.call_soon(
        lambda: target.cast(meta, plane.pickling.dumps_call((), {}), request, sender=cell)
    )
    return request.future
