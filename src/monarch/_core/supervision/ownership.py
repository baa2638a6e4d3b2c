"""The meshes that one actor owns, in order of creation, and their failed ranks.

Events go in, instructions come out; the caller carries them out. The rules:

* A rank fails once per incarnation: the owner hears of the first thing that ended it, be that its
  own code, its process or its host. Actors tell more than the procs they ran on, so a lost process
  is told as the failure of the actors on it, and as one of the proc mesh only where none was there.
* What belongs to a restart group starts again; what does not, or no longer can, as its host is gone
  for example, is judged by the owner's `__supervise__`.
* A mesh that its owner has stopped meanwhile, itself or its procs, is no longer judged.
* What the owner does not handle is its own failure, which its own owner hears of.
* An owner that ends stops its meshes, youngest first: a mesh may use those created before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from ..._namedtuple import NamedTuple
from .failure import HOST, UNSTARTED, Failure
from .restart import GiveUp, Rank, RestartGroup, RestartPlan, Strategy


class OwnedMesh:
    """A mesh as its owner knows it.

    Args:
        uid: Its id.
        name: As the user gave it.
        processes: The process of each rank, by rank.
        are_processes: Whether the ranks are those processes themselves, rather than actors on them.
        describe: Path of an actor, or name of a process, by rank.
        group: What starts its ranks again, if anything does.

    Attributes:
        path: As `describe`.
    """

    def __init__(
        self,
        uid: int | str,
        name: str,
        processes: Sequence[object],
        are_processes: bool,
        describe: Callable[[int], str],
        group: RestartGroup | None = None,
    ) -> None:
        self.uid = uid
        self.name = name
        self.processes = processes
        self.are_processes = are_processes
        self.group = group
        self.let_go = False
        self.path = describe
        self._ranks = {process: rank for rank, process in enumerate(processes)}
        self._failed: set[int] = set()
        self._incarnations: dict[int, int] = {}

    def rank_on(self, process: object) -> int | None:
        return self._ranks.get(process)

    def incarnation(self, rank: int) -> int:
        """How often a rank has been started again."""
        return self._incarnations.get(rank, 0)

    def start_again(self, ranks: Sequence[int]) -> None:
        """Begin a new incarnation of these ranks: they may fail anew, the old one is void."""
        for rank in ranks:
            self._incarnations[rank] = self.incarnation(rank) + 1
            self._failed.discard(rank)

    def has_failed(self, rank: int) -> bool:
        """Return whether a rank has failed, and does not run again."""
        return rank in self._failed

    def fail(self, rank: int) -> bool:
        """Note that a rank has failed; whether it was news."""
        news = rank not in self._failed
        self._failed.add(rank)
        return news

    def failed_processes(self) -> list[object]:
        return [self.processes[rank] for rank in self._failed]

    def failure_of(self, rank: int, process_failure: Failure) -> Failure:
        """Return the failure of a rank that follows from the end of its process."""
        what = self.path(rank)
        if self.are_processes:
            return process_failure._replace(mesh=self.name, mesh_uid=self.uid, rank=rank, proc=what)
        own = process_failure.of(what, self.name, self.uid, rank)
        restarts = self.group is not None and process_failure.cause != HOST
        return own._replace(incarnation=self.incarnation(rank), restarts=restarts)


class AskSupervisor(NamedTuple):
    """Ask the owner's ``__supervise__`` about a failure of this mesh."""

    failure: Failure
    mesh: OwnedMesh


class Restart(NamedTuple):
    """Carry out a plan, then tell `Ownership.restarted`."""

    group: RestartGroup
    plan: RestartPlan


class Abandon(NamedTuple):
    """Tell those who wait for these ranks that they will not start again."""

    ranks: dict[int | str, list[int]]


class Fail(NamedTuple):
    """The owner ends with a failure of its own, because of this one."""

    failure: Failure


M = TypeVar("M", bound=OwnedMesh)
Instruction = AskSupervisor | Restart | Abandon | Fail


class Ownership(Generic[M]):
    """The owned meshes of one actor."""

    def __init__(self) -> None:
        self._owned: dict[int | str, M] = {}
        self._closed = False

    def __getitem__(self, uid: int | str) -> M:
        return self._owned[uid]

    def __contains__(self, uid: object) -> bool:
        return uid in self._owned

    def get(self, uid: int | str) -> M | None:
        return self._owned.get(uid)

    def cares_for(self, mesh: OwnedMesh) -> bool:
        """Return whether a failure of the mesh still needs a decision: stopping it was one."""
        return mesh.uid in self._owned and not mesh.let_go

    def meshes(self) -> list[M]:
        """The owned meshes, the oldest first."""
        return list(self._owned.values())

    def processes(self) -> set[Any]:
        """Every process that runs a rank of an owned mesh."""
        return {process for mesh in list(self._owned.values()) for process in mesh.processes}

    def group(self, strategy: Strategy) -> RestartGroup:
        """The group of a strategy; a new one where nothing that is owned belongs to it."""
        groups = (mesh.group for mesh in self._owned.values() if mesh.group is not None)
        return next(
            (group for group in groups if group.strategy is strategy), None
        ) or RestartGroup(strategy)

    # events

    def created(self, mesh: M) -> None:
        """Own one more mesh.

        Raises:
            RuntimeError: The owner is ending, and could not stop what it makes now.
        """
        if self._closed:
            raise RuntimeError("this actor is ending; it can create nothing more")
        self._owned[mesh.uid] = mesh
        if mesh.group is not None:
            mesh.group.adopt(mesh)

    def stopped(self, uid: int | str) -> None:
        """A mesh is being stopped on purpose."""
        mesh = self._owned.pop(uid, None)
        if mesh is None:
            return
        self._let_go(mesh)
        if mesh.are_processes:  # and what runs on them
            for other in self._owned.values():
                if any(mesh.rank_on(process) is not None for process in other.processes):
                    self._let_go(other)

    @staticmethod
    def _let_go(mesh: M) -> None:
        mesh.let_go = True
        if mesh.group is not None:
            mesh.group.forget(mesh.uid)

    def rank_failed(self, failure: Failure, now: float) -> list[Instruction]:
        """An actor tells of its own failure, or of its own stop, which needs no handling."""
        mesh = self._owned.get(failure.mesh_uid)
        rank = failure.rank or 0
        if mesh is None or failure.incarnation != mesh.incarnation(rank) or not mesh.fail(rank):
            return []
        # it counted as failed first: a rank that has stopped itself may not fail any more
        if failure.is_stop:
            return []
        if mesh.group is None:
            return [AskSupervisor(failure, mesh)]
        return self._restart(mesh.group, [(mesh.uid, rank)], [failure], now)

    def process_ended(self, process: object, failure: Failure, now: float) -> list[Instruction]:
        """A process is gone, and with it every rank that it ran."""
        lost = [
            (mesh, rank)
            for mesh in self._owned.values()
            if (rank := mesh.rank_on(process)) is not None
        ]
        if failure.cause == HOST:
            return self._host_lost(lost, failure)
        if failure.pid and any(
            m.are_processes and failure.incarnation != m.incarnation(rank) for m, rank in lost
        ):
            return []  # late news of a process that has been replaced
        fresh = [(mesh, rank) for mesh, rank in lost if mesh.fail(rank)]
        told = _to_tell(fresh)
        instructions: list[Instruction] = [
            AskSupervisor(mesh.failure_of(rank, failure), mesh)
            for mesh, rank in told
            if mesh.group is None
        ]
        for group in {
            id(mesh.group): mesh.group for mesh, _ in fresh if mesh.group is not None
        }.values():
            ranks = [(mesh.uid, rank) for mesh, rank in fresh if mesh.group is group]
            failures = [
                mesh.failure_of(rank, failure) for mesh, rank in told if mesh.group is group
            ]
            instructions += self._restart(group, ranks, failures, now)
        return instructions

    def _host_lost(self, lost: list[tuple[M, int]], failure: Failure) -> list[Instruction]:
        """Rule out restarts on a lost host, for every strategy."""
        undecided: set[Rank] = set()
        for mesh, rank in lost:
            if mesh.group is not None:
                undecided |= mesh.group.lose({(mesh.uid, rank)})
        fresh = [
            (mesh, rank) for mesh, rank in lost if mesh.fail(rank) or (mesh.uid, rank) in undecided
        ]
        return [
            AskSupervisor(mesh.failure_of(rank, failure), mesh) for mesh, rank in _to_tell(fresh)
        ]

    def startable(self, uid: int | str, ranks: Sequence[int]) -> list[int]:
        """The startable ones of the ranks that a plan is about to start.

        Where the process of an actor has failed meanwhile, the next plan starts both: to wait for
        that here would be to wait for oneself.
        """
        mesh = self._owned.get(uid)
        if mesh is None:  # stopped meanwhile
            return []
        down = {
            process
            for other in self._owned.values()
            if other.are_processes
            for process in other.failed_processes()
        }
        return [rank for rank in ranks if mesh.processes[rank] not in down]

    def restarted(
        self, group: RestartGroup, plan: RestartPlan, now: float, error: str = ""
    ) -> list[Instruction]:
        """A plan was carried out, or failed with `error`, which counts as one more failure."""
        if self._closed:
            return []
        if error:
            unstarted = Failure(UNSTARTED, f"it could not be started again: {error}", restarts=True)
            planned = [
                (self._owned[uid], rank)
                for uid, ranks in plan.ranks.items()
                if uid in self._owned
                for rank in ranks
            ]
            fresh = [(mesh, rank) for mesh, rank in planned if mesh.fail(rank)]
            failures = [mesh.failure_of(rank, unstarted) for mesh, rank in _to_tell(fresh)]
            group.failed([(mesh.uid, rank) for mesh, rank in planned], failures, now)
        return self._instructions(group, group.finished(now))

    def judged(self, failure: Failure, handled: bool) -> list[Instruction]:
        """The owner's ``__supervise__`` has answered."""
        return [] if handled else [Fail(failure)]

    def ended(self) -> list[M]:
        """The owner ends: it can create nothing more. What to stop, in that order."""
        self._closed = True
        return list(reversed(self._owned.values()))

    def _restart(
        self, group: RestartGroup, ranks: list[Rank], failures: list[Failure], now: float
    ) -> list[Instruction]:
        return [] if self._closed else self._instructions(group, group.failed(ranks, failures, now))

    def _instructions(
        self, group: RestartGroup, decision: RestartPlan | GiveUp | None
    ) -> list[Instruction]:
        if isinstance(decision, RestartPlan):
            for uid, ranks in decision.ranks.items():
                self._owned[uid].start_again(ranks)
            return [Restart(group, decision)]
        if isinstance(decision, GiveUp):
            judged = [
                AskSupervisor(f, self._owned[f.mesh_uid])
                for f in decision.failures
                if f.mesh_uid in self._owned
            ]
            return [Abandon(decision.ranks), *judged]
        return []


def _to_tell(failed: list[tuple[M, int]]) -> list[tuple[M, int]]:
    """Return the failed ranks to tell of: processes only where none of their actors failed."""
    told = {mesh.processes[rank] for mesh, rank in failed if not mesh.are_processes}
    return [
        (mesh, rank)
        for mesh, rank in failed
        if not mesh.are_processes or mesh.processes[rank] not in told
    ]
