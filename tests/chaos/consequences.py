"""What follows from a failure or a stop: who ends with it, and who must hear of what. Pure.

The rules are those of the guide. An owner hears once of each failed rank of what it owns: of the
actor, or of the proc if it owned no living actor there. An owner that does not settle it fails as
well, and all that it owns is stopped. Stops are heard by nobody. Where two ends race each other,
what is heard is *possible*, not certain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from chaos.model import ALIVE, CLIENT, GOING, GONE, Actors, Instance, Proc, Procs

EXCEPTION, ABORTED, KILLED, EXITED, UNHANDLED, HOST = (
    "exception",
    "aborted",
    "killed",
    "exited",
    "unhandled",
    "host",
)
ANY = "any"  # where the way in which it ends does not matter


class Death(NamedTuple):
    """How a process ended."""

    cause: str
    signal: int | None = None
    exit_code: int | None = None

    def fits(self, cause: str, number: int | None, exit_code: int | None) -> bool:
        """Whether this is what was heard of; numbers count only where it was the process that
        ended.
        """
        exact = self.cause not in (KILLED, EXITED) or (self.signal, self.exit_code) == (
            number,
            exit_code,
        )
        return self.cause in (ANY, cause) and exact


Key = tuple[str, int, str, int]
"""Name and rank of who hears, name and rank of what failed."""


@dataclass
class Hearing:
    hearer: Instance | None
    subject: Instance | Proc
    deaths: set[Death]
    certain: bool = True

    @property
    def key(self) -> Key:
        hearer = (CLIENT, 0) if self.hearer is None else (self.hearer.mesh.name, self.hearer.rank)
        return (*hearer, self.subject.mesh.name, self.subject.rank)


@dataclass
class Event:
    """Something ended, and all that follows from it.

    Fill it with `kill`, `fail`, `stop`; then `finish`.
    """

    killed: dict[Proc, Death] = field(default_factory=dict)
    stopped_procs: set[Proc] = field(default_factory=set)
    lost: set[Instance] = field(default_factory=set)
    """Actors whose process was killed."""
    failed: set[Instance] = field(default_factory=set)
    stopped: set[Instance] = field(default_factory=set)
    may_fail_first: set[Instance] = field(default_factory=set)
    """Lost actors that may have failed before their process was killed."""
    hearings: dict[Key, Hearing] = field(default_factory=dict)

    def kill(self, deaths: Mapping[Proc, Death]) -> None:
        self.killed.update(deaths)
        victims = [
            instance for proc in deaths for instance in proc.instances if instance.state == ALIVE
        ]
        self.lost.update(victims)
        for victim in victims:
            self._end_owned(victim)
        for proc, death in deaths.items():
            owners = set()
            for instance in proc.instances:
                if instance.state == ALIVE:
                    self._tell(instance.mesh.owner, instance, death)
                    owners.add(instance.mesh.owner)
            if proc.mesh.owner not in owners:
                self._tell(proc.mesh.owner, proc, death)
            elif len(deaths) > 1:  # an actor there may have failed of another death first
                self._tell(proc.mesh.owner, proc, death, certain=False)

    def spawn(self, mesh: Actors) -> None:
        """A mesh is spawned where some processes are dead already: those ranks fail at once."""
        for instance in mesh.instances:
            if instance.proc.killed is not None:
                self._tell(mesh.owner, instance, instance.proc.killed)

    def fail(self, instance: Instance, cause: str) -> None:
        """An actor fails, and its process stays."""
        if instance not in self.failed:
            self.failed.add(instance)
            self._tell(instance.mesh.owner, instance, Death(cause))
            self._end_owned(instance)

    def stop(self, mesh: Procs | Actors) -> None:
        if isinstance(mesh, Actors):
            for instance in mesh.instances:
                self.stop_one(instance)
            return
        for proc in mesh.procs:
            if proc.state == ALIVE and proc not in self.stopped_procs:
                self.stopped_procs.add(proc)
                for instance in proc.instances:
                    self.stop_one(instance)

    def stop_one(self, instance: Instance) -> None:
        if instance.state == ALIVE and instance not in self.stopped:
            self.stopped.add(instance)
            self._end_owned(instance)

    def may_be_heard(self, instance: Instance, death: Death) -> None:
        """The owner may hear of this, though nothing in the event has to tell it."""
        hearing = Hearing(instance.mesh.owner, instance, {death}, certain=False)
        self.hearings.setdefault(hearing.key, hearing)

    def _end_owned(self, owner: Instance) -> None:
        for mesh in owner.owned:
            self.stop(mesh)

    def _tell(
        self, hearer: Instance | None, subject: Instance | Proc, death: Death, certain: bool = True
    ) -> None:
        if hearer is not None and hearer.state != ALIVE:
            return
        hearing = Hearing(hearer, subject, {death}, certain)
        known = self.hearings.setdefault(hearing.key, hearing)
        known.deaths.add(death)
        if hearer is not None and not hearer.handles_failures:
            self._leave_unhandled(hearer)

    def _leave_unhandled(self, hearer: Instance) -> None:
        if hearer not in self.lost:
            self.fail(hearer, UNHANDLED)
        elif len(self.killed) > 1:  # of another death than its own, before that came
            self.may_fail_first.add(hearer)

    @property
    def ended(self) -> set[Instance]:
        return self.lost | self.failed | self.stopped

    @property
    def ambiguous(self) -> bool:
        """Whether chance decides what ends: an owner may fail of what may have been stopped before
        it failed.
        """
        return any(
            hearing.hearer is not None
            and not hearing.hearer.handles_failures
            and (hearing.subject in self.stopped or hearing.subject in self.stopped_procs)
            for hearing in self.hearings.values()
        )

    def finish(self) -> Event:
        """Mark what is ending, and which hearings are only possible."""
        for hearing in self.hearings.values():
            subject_stopped = (
                hearing.subject in self.stopped or hearing.subject in self.stopped_procs
            )
            hearer_ended = hearing.hearer is not None and hearing.hearer in self.ended
            mute = hearing.hearer is not None and hearing.hearer.mesh.policy == "absent"
            if subject_stopped or hearer_ended or mute:
                hearing.certain = False
            if hearing.subject in self.may_fail_first:
                hearing.deaths.add(Death(UNHANDLED))
        self._mark(GOING)
        return self

    def settled(self) -> None:
        """All of it has come about, as far as can be seen: of an actor that was stopped before it
        began, nothing can.
        """
        self._mark(GONE)
        for instance in self.unseen:
            instance.state = GOING

    @property
    def unseen(self) -> set[Instance]:
        return {
            instance for instance in self.stopped - self.failed - self.lost if not instance.seen
        }

    def _mark(self, state: str) -> None:
        for instance in self.ended:
            instance.state = state
        for proc in (*self.killed, *self.stopped_procs):
            proc.state = state
        for proc, death in self.killed.items():
            proc.killed = death
