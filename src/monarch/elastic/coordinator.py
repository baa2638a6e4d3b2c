"""The coordinator: the members of the next world, and its begin.

One actor, beside the program, which owns all ranks.

A world lives from `Member.run` to the end of that call on all its ranks. A rank that dies ends the
call with an error, within milliseconds; the others are told to leave, and are out of their
collectives at once. When every call has ended, no rank is in a collective, and the next world is
formed: those that have come less far take the state of one that has come farthest, so that no step
is lost that a rank has done. A new rank comes in when it is ready to train; until then the others
go on without it.

What ends each wait: the rank's answer, or its end, which supervision tells.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

from .._core.plane import notice, subscribe
from .._lazy import lazy_logger
from ..actor import (
    Actor,
    ActorError,
    Future,
    HostMesh,
    MeshFailure,
    Port,
    ProcMesh,
    SupervisionError,
    concurrent_endpoint,
)
from ..errors import ElasticError
from . import checkpoint
from .member import End, Member, NotFormedError, Progress
from .state import Lent, covering
from .world import Report, WorldPlace

logger = lazy_logger("monarch.elastic")


class GroupOptions(NamedTuple):
    """The arguments of `ElasticGroup`."""

    hosts: HostMesh
    make: Callable[[], Any]
    ranks: int
    min_ranks: int
    max_losses: int
    timeout: float
    checkpoint: Path | None
    checkpoint_every: int
    checkpoint_keep: int


class _Rank:
    """One that lives: which of which host, its proc, its `Member`; whether that can train."""

    def __init__(self, slot: tuple[int, int], procs: ProcMesh, actor: Any) -> None:
        self.slot = slot
        self.procs = procs
        self.actor = actor
        self.ready = False

    def __str__(self) -> str:
        return f"rank {self.slot[1]} of host {self.slot[0]}"


class _Lost(Exception):
    """A rank has died meanwhile."""


class Coordinator(Actor):
    """The actor that forms worlds.

    Args:
        plan: The options of the group.
    """

    def __init__(self, plan: GroupOptions) -> None:
        self._plan = plan
        self._hosts = plan.hosts.flatten("host")
        self._per_host = -(-plan.ranks // len(self._hosts))
        self._wanted = plan.ranks
        self._ranks: list[_Rank] = []
        self._lost_hosts: set[int] = set()
        self._losses = 0  # since a step was done
        self._why: BaseException | None = None  # the last one
        self._error: BaseException | None = None  # before the first world: no bad luck
        self._best = Progress(-1)  # with which a world has begun
        self._number = 0  # of the world
        self._members: Sequence[_Rank] = ()  # of the last world
        self._start = 0  # its first step
        # of checkpoints that are being written
        self._parts: dict[tuple[int, int], dict[int, checkpoint.CheckpointPart]] = {}
        # why it was: what others raise later comes of that
        self._broken_off: Exception | None = None
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    def __supervise__(self, failure: MeshFailure) -> bool:
        return True  # the waits for the rank end with this error as well

    @concurrent_endpoint
    async def run(self, myself: Any, reports: Port[Report | None]) -> None:
        """Train to the end.

        Args:
            myself: This actor, as ranks reach it.
            reports: Where their reports go; None comes when all are done.

        Raises:
            ElasticError: Too few ranks are left, and no more are to be had; or another program
                writes its checkpoints to the same folder.
        """
        self._reports = reports
        folder = self._plan.checkpoint
        with checkpoint.claimed(folder) if folder is not None else nullcontext():
            if folder is not None:
                checkpoint.clear(folder, math.inf)
            self._hire()
            try:
                while not await self._train(await self._assembled(), myself):
                    pass
            finally:
                # ranks that are not ready yet end with this actor: they are not lost
                for task in self._tasks:
                    task.cancel()
        reports.send(None)

    @concurrent_endpoint
    async def report(self, report: Report) -> None:
        """Pass on what a rank says."""
        self._reports.send(report)

    @concurrent_endpoint
    async def begun(self, number: int) -> None:
        """Let go of the state of other ranks, now that each rank of this world has its own."""
        if number == self._number:
            self._best = Progress(self._start)
            for rank in set(self._ranks).difference(self._members, self._chosen()):
                self._dismiss(rank)

    @concurrent_endpoint
    async def written(
        self, step: int, number: int, rank: int, size: int, part: checkpoint.CheckpointPart | str
    ) -> None:
        """A rank has written its part of a checkpoint, or could not.

        With the last part the checkpoint counts.
        """
        plan = self._plan
        assert plan.checkpoint is not None
        if isinstance(part, str):
            logger.warning("no checkpoint before step %d: rank %d: %s", step, rank, part)
            return
        parts = self._parts.setdefault((step, number), {})
        parts[rank] = part
        if len(parts) < size:
            return
        self._parts = {key: parts for key, parts in self._parts.items() if key[0] > step}
        ordered = [part for _, part in sorted(parts.items())]
        try:
            await asyncio.to_thread(
                checkpoint.commit, plan.checkpoint, step, number, ordered, plan.checkpoint_keep
            )
        except Exception as error:
            logger.warning("no checkpoint before step %d: %s", step, error)
            return
        self._losses = 0  # steps from here on are not lost any more
        self._hire()

    @concurrent_endpoint
    async def resize(self, ranks: int) -> None:
        """Aim at another number of ranks; returns at once."""
        self._wanted = ranks
        self._per_host = max(self._per_host, -(-ranks // len(self._hosts)))
        self._hire()
        self._changed.set()

    # ranks come and go

    def _hire(self) -> None:
        """Start as many ranks as are missing, where there is room."""
        plan = self._plan
        while len(self._ranks) < self._wanted and self._losses <= plan.max_losses:
            taken = {rank.slot for rank in self._ranks}
            free = [
                (local, host)
                for host in range(len(self._hosts))
                if host not in self._lost_hosts
                for local in range(self._per_host)
                if (host, local) not in taken
            ]
            if not free:
                return
            local, host = min(free)
            try:
                procs = self._hosts.slice(host=host).spawn_procs(name="elastic")
                saving = (
                    None if plan.checkpoint is None else (plan.checkpoint, plan.checkpoint_every)
                )
                actor = procs.spawn("rank", Member, plan.make, local, plan.timeout, saving)
            except Exception as error:
                self._lost_hosts.add(host)  # as good as lost, where nothing can be started
                self._note(error)
                continue
            self._ranks.append(_Rank((host, local), procs, actor))
            self._begin(self._prepare(self._ranks[-1]))

    async def _prepare(self, rank: _Rank) -> None:
        error = await _answer(rank.actor.make.call_one())
        if error is not None:  # its end, or what the constructor has raised
            self._lose(rank, error)
            return
        rank.ready = True
        self._changed.set()

    def _lose(self, rank: _Rank, error: BaseException) -> None:
        if rank not in self._ranks:
            return
        logger.warning("%s is lost: %s", rank, _reason(error))
        self._losses += 1
        self._note(error)
        failure = getattr(error, "failure", None)
        if failure is not None and failure.cause == "host":
            self._lost_hosts.add(rank.slot[0])
        self._dismiss(rank)
        self._hire()

    def _note(self, error: BaseException) -> None:
        self._why = error
        if not self._number and not _is_end(error):
            self._error = error
        self._changed.set()

    def _dismiss(self, rank: _Rank) -> None:
        self._ranks.remove(rank)
        self._begin(_stopped(rank.procs))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _chosen(self) -> list[_Rank]:
        """The ranks of a world once all are ready, in order."""
        return sorted(self._ranks, key=lambda rank: rank.slot)[: self._wanted]

    async def _assembled(self) -> list[_Rank]:
        """The ranks of the next world, once there are enough; for the first one that is all."""
        while True:
            if self._error is not None:
                raise self._error
            chosen = self._chosen()
            fewest = min(self._plan.min_ranks if self._number else self._wanted, self._wanted)
            if len(chosen) < fewest:
                raise ElasticError(
                    f"{len(chosen)} ranks are left, {fewest} are needed, and no more are started:"
                    f" {self._losses} were lost with no step done in between, of"
                    f" {self._plan.max_losses} that may; {len(self._lost_hosts)} of"
                    f" {len(self._hosts)} hosts are lost; the last:"
                    f" {_reason(self._why) if self._why else 'none'}"
                ) from self._why
            ready = [rank for rank in chosen if rank.ready]
            if len(ready) >= fewest:
                return ready
            self._changed.clear()
            await self._changed.wait()

    # a world

    async def _train(self, ranks: Sequence[_Rank], myself: Any) -> bool:
        """Train in a world of these ranks; whether the training is over."""
        self._number += 1
        self._broken_off = None
        try:
            places = await self._formed(ranks)
        except _Lost:
            return False
        # in front of the admission, so that a rank which is in no world then has been in this one
        runs = [
            asyncio.ensure_future(self._run(rank, place, ranks, myself))
            for rank, place in zip(ranks, places, strict=True)
        ]
        admission = asyncio.ensure_future(self._admit(ranks, self._number))
        try:
            ends = await asyncio.gather(*runs)
        finally:
            admission.cancel()
        if any(map(_is_end, ends)):  # what others have raised comes of that
            return False
        if self._losses < self._plan.max_losses and any(
            isinstance(end, NotFormedError) for end in ends
        ):
            self._losses += 1
            return False
        if self._broken_off is not None:
            raise self._broken_off
        return all(end is End.DONE for end in ends)

    async def _formed(self, ranks: Sequence[_Rank]) -> list[WorldPlace]:
        """The ranks know where their state is, and of each other.

        Raises:
            _Lost: One has died.
        """
        # those that are to go, too: what they have may be needed
        living = [rank for rank in self._ranks if rank.ready]
        found: list[Progress] = await self._ask(living, lambda actor: actor.progress.call_one())
        top = max(found)
        if top > self._best:
            self._losses = 0
            self._hire()
        waiting = [
            rank
            for rank, its in zip(living, found, strict=True)
            if its.prepared and its.done == top.done - 1
        ]
        await self._ask(waiting, lambda actor: actor.finish.call_one())
        progress = dict(zip(living, found, strict=True)) | {
            rank: Progress(top.done - 1, True) for rank in waiting
        }
        holders = sorted(
            (rank for rank in living if progress[rank].done == top.done), key=progress.__getitem__
        )[::-1]
        sources = await self._sources(holders) if top.done >= max(self._best.steps, 0) else []
        folder = None
        self._start = top.done
        if not sources:
            self._start, folder = self._begin_again()
        one_host = len({rank.slot[0] for rank in ranks}) == 1
        [store] = await self._ask(ranks[:1], lambda actor: actor.open_store.call_one())
        self._members = ranks
        logger.info("world %d: %d ranks, at step %d", self._number, len(ranks), self._start)
        return [
            WorldPlace(
                self._number, number, len(ranks), store, one_host, self._start, sources, folder,
                current=progress.get(rank) == top and (not top.applied or rank is holders[0]),
            )
            for number, rank in enumerate(ranks)
        ]  # fmt: skip

    async def _sources(self, holders: Sequence[_Rank]) -> list[Lent]:
        """The state of those, if they have all of it between them: one of them, if it has."""
        found: list[Lent] = []
        for some in (holders[:1], holders[1:]):
            for lent in await self._ask(some, lambda actor: actor.lend.call_one()):
                found += lent
            if sources := covering(found):
                return sources
        return []

    def _begin_again(self) -> tuple[int, str | None]:
        """The step to go on from if no rank has the state.

        It names the step, and the checkpoint to read.
        """
        if self._plan.checkpoint is not None:
            return checkpoint.newest(self._plan.checkpoint)
        if self._best.steps < 0:
            return 0, None
        raise ElasticError(
            f"the ranks that are left do not have all of the state of step {self._best.steps} or a"
            " later one between them, and there are no checkpoints; the last that was lost:"
            f" {_reason(self._why) if self._why else 'none'}"
        ) from self._why

    async def _ask(self, ranks: Sequence[_Rank], call: Callable[[Any], Future[Any]]) -> list[Any]:
        """The answers of all."""
        answers = await asyncio.gather(*(_answer(call(rank.actor)) for rank in ranks))
        errors = [
            (rank, each)
            for rank, each in zip(ranks, answers, strict=True)
            if isinstance(each, Exception)
        ]
        lost = [(rank, error) for rank, error in errors if _is_end(error)]
        for rank, loss in lost:
            self._lose(rank, loss)
        if lost:
            raise _Lost
        for _, error in errors:
            raise error
        return answers

    async def _run(
        self, rank: _Rank, place: WorldPlace, ranks: Sequence[_Rank], myself: Any
    ) -> End | Exception:
        end: End | Exception = await _answer(rank.actor.run.call_one(place, myself))
        if _is_end(end):
            self._lose(rank, end)
        if isinstance(end, Exception) and self._broken_off is None:
            self._broken_off = end
            for each in ranks:
                _tell(each.actor.leave, place.number)
        return end

    async def _admit(self, ranks: Sequence[_Rank], number: int) -> None:
        """End a world between two steps, the same ones on all ranks.

        This happens once others are ready to take part, or some are to go.
        """
        while (chosen := self._chosen()) == list(ranks) or not all(rank.ready for rank in chosen):
            self._changed.clear()
            await self._changed.wait()
        steps = await asyncio.gather(*(_answer(rank.actor.hold.call_one(number)) for rank in ranks))
        if any(isinstance(step, Exception) for step in steps):
            return  # one has died: the others leave
        # a rank that is done with its training waits for no other
        end = None if None in steps else max(steps)
        for rank in ranks:
            _tell(rank.actor.end_before, number, end)


def _is_end(answer: object) -> TypeGuard[SupervisionError]:
    """Return whether a rank has died, rather than raised what it heard of another's death."""
    return isinstance(answer, SupervisionError) and not isinstance(answer, ActorError)


def _reason(error: BaseException) -> str:
    failure = getattr(error, "failure", None)
    if failure is None:
        return str(error).partition("\n")[0]
    return f"{failure.cause}, signal {failure.signal}" if failure.signal else str(failure.cause)


async def _answer(call: Future[Any]) -> Any:
    # if the program ends the training, the answer is not read any more
    subscribe(call, lambda: notice(call))
    try:
        return await call
    except Exception as error:
        return error


async def _stopped(procs: ProcMesh) -> None:
    await _answer(procs.stop("the rank is not needed"))


def _tell(endpoint: Any, *args: Any) -> None:
    with suppress(SupervisionError):  # who waits for it is told
        endpoint.broadcast(*args)
