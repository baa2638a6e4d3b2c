"""Which ranks start again after a failure, and when that is given up.

The terms are those of Erlang's supervisors (https://www.erlang.org/doc/system/sup_princ.html),
where a child is a process; here it is a rank of a mesh.

A `RestartGroup` holds the meshes of one strategy in the order of their creation, and carries out
one plan at a time::

    state       event             then
    ----------  ----------------  -------------------------------------------------------------------------
    idle        failed            plan: restarting; or give up, where it restarted too often: idle
    restarting  failed            kept for later (ranks that are being stopped do not fail)
    restarting  finished          idle, or the plan for what failed, or was spawned on its old processes, meanwhile
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Protocol

from ..._namedtuple import NamedTuple
from .failure import Failure

Rank = tuple[int | str, int]
"""Id of a mesh, and a rank of it."""


class Member(Protocol):
    """A mesh with ranks that may be started again."""

    uid: int | str
    processes: Sequence[object]
    are_processes: bool


class Strategy:
    """The rule by which a group of meshes restarts, for ``spawn_procs(..., restart=strategy)``.

    The procs, and the actor meshes that their owner spawns on them, form a group. All proc meshes
    that are given the same strategy object are in one group.

    Args:
        max_restarts: The most restarts within `within`. Ranks that fail during a restart start
            again in one more, together.
        within: Seconds. A failure beyond `max_restarts` counts as without a strategy: it goes to
            the owner's ``__supervise__``, and up the tree if that does not handle it. So does the
            loss of a host, at once, since its ranks have nowhere to start again.

    Raises:
        ValueError: `max_restarts` is negative, or `within` is not a positive number.
    """

    def __init__(self, max_restarts: int = 3, within: float = 60.0) -> None:
        if not isinstance(max_restarts, int) or max_restarts < 0:
            raise ValueError(f"max_restarts must be a whole number >= 0, got {max_restarts!r}")
        if not isinstance(within, (int, float)) or not within > 0:
            raise ValueError(f"within must be a positive number of seconds, got {within!r}")
        self.max_restarts = max_restarts
        self.within = within

    def affected(self, members: Sequence[Member], failed: set[Rank]) -> set[Rank]:
        """The ranks to start again when `failed` have failed.

        Args:
            members: In the order of their creation.
            failed: The ranks that have failed.
        """
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}(max_restarts={self.max_restarts}, within={self.within:g})"


class OneForOne(Strategy):
    """A restart of what failed alone: a dead process with its actors, or a failed actor."""

    def affected(self, members: Sequence[Member], failed: set[Rank]) -> set[Rank]:
        return failed


class AllForOne(Strategy):
    """A restart of everything, processes too: for ranks that share state, as in a process group."""

    def affected(self, members: Sequence[Member], failed: set[Rank]) -> set[Rank]:
        return {rank for member in members for rank in ranks_of(member)}


class RestForOne(Strategy):
    """A restart of the failed mesh and of every mesh spawned after it, which may depend on it."""

    def affected(self, members: Sequence[Member], failed: set[Rank]) -> set[Rank]:
        uids = [member.uid for member in members]
        first = min(uids.index(uid) for uid, _ in failed)
        return failed | {rank for member in members[first + 1 :] for rank in ranks_of(member)}


def ranks_of(member: Member) -> list[Rank]:
    return [(member.uid, rank) for rank in range(len(member.processes))]


class RestartPlan(NamedTuple):
    """Ranks to stop where they run, and to start, mesh by mesh in the order of their creation.

    Attributes:
        ranks: By mesh.
        failures: What made it necessary.
        attempt: Which restart this is, within the time of the strategy.
    """

    ranks: dict[int | str, list[int]]
    failures: tuple[Failure, ...]
    attempt: int


class GiveUp(NamedTuple):
    """Too many failures: these ranks stay down, and the owner hears of the failures.

    Attributes:
        ranks: By mesh.
        failures: As the owner shall hear of them.
    """

    ranks: dict[int | str, list[int]]
    failures: tuple[Failure, ...]


class RestartGroup:
    """The meshes of one owner and one strategy."""

    def __init__(self, strategy: Strategy) -> None:
        self.strategy = strategy
        self.members: dict[int | str, Member] = {}
        self._restarts: deque[float] = deque()
        self._plan: RestartPlan | None = None
        self._waiting: list[tuple[set[Rank], tuple[Failure, ...]]] = []
        self._replaced: set[Rank] = set()
        self._late: set[Rank] = set()
        self._gone: set[Rank] = set()

    @property
    def busy(self) -> bool:
        """True if a plan is being carried out."""
        return self._plan is not None

    def adopt(self, member: Member) -> None:
        self.members[member.uid] = member
        # the old processes may have taken its spawn; without a plan no member is looked at
        if self._plan is not None and not member.are_processes:
            self._late |= self._with_their_actors(self._planned(self._plan) - self._replaced) & set(
                ranks_of(member)
            )

    def replaced(self, ranks: Iterable[Rank]) -> None:
        """Nothing reaches the old processes of these ranks any more: the next ones start actors
        that are spawned there from now on.
        """
        self._replaced |= set(ranks)

    def forget(self, uid: int | str) -> None:
        """A mesh was stopped on purpose."""
        self.members.pop(uid, None)

    def lose(self, ranks: set[Rank]) -> set[Rank]:
        """These ranks have nowhere to start again: their host is gone.

        Returns:
            Those of them that had failed before, which has not been decided on yet, and will not
            be.
        """
        self._gone |= ranks
        return {rank for some, _ in self._waiting for rank in some} & ranks

    def failed(
        self, ranks: Iterable[Rank], failures: Sequence[Failure], now: float
    ) -> RestartPlan | GiveUp | None:
        """Return the plan for ranks that failed of one cause; None if another is in progress."""
        incident = set(ranks), tuple(failures)
        if self._plan is not None:
            # one plan at a time: ranks that are being stopped fail, too
            self._waiting.append(incident)
            return None
        return self._decide(*incident, now)

    def finished(self, now: float) -> RestartPlan | GiveUp | None:
        """The plan has been carried out; what comes next, if anything failed meanwhile."""
        self._plan = None
        self._replaced.clear()
        waiting, self._waiting = self._waiting, []
        late, self._late = self._late, set()
        if waiting:
            failed = {rank for some, _ in waiting for rank in some}
            return self._decide(
                failed | late, tuple(failure for _, some in waiting for failure in some), now
            )
        late = {rank for rank in late - self._gone if rank[0] in self.members}
        if late:  # nothing has failed, so it does not count
            self._plan = RestartPlan(self._by_mesh(late), (), len(self._restarts))
        return self._plan

    def _decide(
        self, failed: set[Rank], failures: tuple[Failure, ...], now: float
    ) -> RestartPlan | GiveUp | None:
        failed = {rank for rank in failed - self._gone if rank[0] in self.members}
        if not failed:  # stopped meanwhile, or lost
            return None
        failures = tuple(
            failure for failure in failures if (failure.mesh_uid, failure.rank) in failed
        )
        while self._restarts and now - self._restarts[0] >= self.strategy.within:
            self._restarts.popleft()
        if len(self._restarts) >= self.strategy.max_restarts:
            note = (
                f"{len(self._restarts)} restarts within {self.strategy.within:g}s were not enough:"
                f" {self.strategy!r}"
            )
            explained = tuple(
                f._replace(reason=f"{f.reason}\n{note}", restarts=False) for f in failures
            )
            return GiveUp(self._by_mesh(self._with_their_actors(failed)), explained)
        self._restarts.append(now)
        affected = self.strategy.affected(list(self.members.values()), failed)
        ranks = self._with_their_actors(affected) - self._gone
        self._plan = RestartPlan(self._by_mesh(ranks), failures, len(self._restarts))
        return self._plan

    def _planned(self, plan: RestartPlan) -> set[Rank]:
        ranks = plan.ranks.items()
        return {(uid, rank) for uid, some in ranks if uid in self.members for rank in some}

    def _with_their_actors(self, ranks: set[Rank]) -> set[Rank]:
        """A process that starts again takes every actor on it along."""
        processes = {
            self.members[uid].processes[rank]
            for uid, rank in ranks
            if self.members[uid].are_processes
        }
        return ranks | {
            (member.uid, rank)
            for member in self.members.values()
            for rank, process in enumerate(member.processes)
            if process in processes
        }

    def _by_mesh(self, ranks: set[Rank]) -> dict[int | str, list[int]]:
        return {
            member.uid: sorted(rank for uid, rank in ranks if uid == member.uid)
            for member in self.members.values()
            if any(uid == member.uid for uid, _ in ranks)
        }
