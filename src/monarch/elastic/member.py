"""A rank: an actor that is always there to be asked, and a thread on which the user's code runs."""

from __future__ import annotations

import asyncio
import contextvars
import os
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch.distributed
import torch.distributed.distributed_c10d

from .._connections import Connections
from .._kept_store import KeptStore, keep
from .._polled_store import PolledStore
from ..actor import Actor, SupervisionError, concurrent_endpoint
from ..rdma import RDMAError
from . import checkpoint
from .state import Lent, any_sharded, lend, take
from .world import Report, World, WorldChanged, WorldPlace

dist: Any = torch.distributed  # which does not export all of its names for type checkers
T = TypeVar("T")

# seconds until all ranks have come to the store, once they are called to; `leave` ends it, too
_MEETING_TIMEOUT = 60.0
# seconds in which they then connect to each other, which takes milliseconds and can't be broken off
_CONNECT_TIMEOUT = 5.0
_LOOK_AGAIN = 0.1  # seconds until connections that were made meanwhile are shut down as well
_INTERFACE = "GLOO_SOCKET_IFNAME"


class Progress(NamedTuple):
    """How far the state of a rank has come; the larger, the farther.

    Attributes:
        steps: How many are done; -1: it has never had a state.
        applied: An optimizer has begun to change it in the next one, which was not completed.
        prepared: It could: all that it needs of others in that step has come.
    """

    steps: int
    applied: bool = False
    prepared: bool = False

    @property
    def done(self) -> int:
        """How many steps are done, or can't be done again."""
        return self.steps + self.applied


class End(Enum):
    """How a world has ended for a rank."""

    DONE = "train() has returned"
    AGREED = "all ranks stop before the same step"
    BROKEN_OFF = "the rank was told to leave"


class NotFormedError(Exception):
    """Ranks of a world could not connect, or one could not read its state from others."""


class Member(Actor):
    """The actor of a rank.

    Args:
        make: Makes the trainer.
        local_rank: Its number on its host, for the variable ``LOCAL_RANK``.
        timeout: Of a collective, in seconds.
        saving: Where checkpoints are written, and after how many steps each; None: nowhere.
    """

    def __init__(
        self,
        make: Callable[[], Any],
        local_rank: int,
        timeout: float,
        saving: tuple[Path, int] | None,
    ) -> None:
        os.environ["LOCAL_RANK"] = str(local_rank)
        self._make = make
        self._timeout = timedelta(seconds=timeout)
        self._saving = saving
        # one and the same: CUDA's current device is that of a thread
        self._thread = ThreadPoolExecutor(1, "elastic")
        self._writer = ThreadPoolExecutor(1, "checkpoint")
        self._writing: Future[None] | None = None
        self._trainer: Any = None
        # all as far as `_progress` says: of the world, and of the one before
        self._states: list[Mapping[str, Any]] = []
        self._hooks: list[Any] = []  # of the optimizers of the last one
        self._stepping: Any = None  # the optimizer that is prepared
        self._progress = Progress(-1)
        self._world: World | None = None
        self._coordinator: Any = None
        self._connections = Connections()
        self._note_groups()
        self._kept: Any = None  # the store, if this is rank 0
        self._store: Any = None  # as torch has it
        self._lent: list[Lent] = []

    def _note_groups(self) -> None:
        """Track each process group, whichever code makes it.

        Torch has one function for that, below all public ones.
        """
        module: Any = torch.distributed.distributed_c10d
        make_group = module._new_process_group_helper

        def noted(*args: Any, **options: Any) -> Any:
            options["timeout"] = timedelta(seconds=_CONNECT_TIMEOUT)
            with self._connections.made():
                made = make_group(*args, **options)
            # it is another thing where this rank is not in the group
            if isinstance(made[0], dist.ProcessGroup):
                made[0].set_timeout(self._timeout)
            return made

        module._new_process_group_helper = noted

    @concurrent_endpoint
    async def make(self) -> None:
        """Make the trainer."""
        await self._on_thread(self._make_trainer)

    def _make_trainer(self) -> None:
        self._trainer = self._make()

    @concurrent_endpoint
    async def progress(self) -> Progress:
        """Say how far it has come."""
        return self._progress

    @concurrent_endpoint
    async def finish(self) -> None:
        """Change the weights as others have done in the step that was broken off."""
        await self._on_thread(self._stepping.step)
        self._progress = self._progress._replace(applied=True)

    @concurrent_endpoint
    async def lend(self) -> list[Lent]:
        """Let others read its state, until all have restored theirs."""
        await self._on_thread(self._take_back)
        self._lent = await self._on_thread(lambda: [lend(state) for state in self._states])
        return self._lent

    def _take_back(self) -> None:
        lent, self._lent = self._lent, []
        for each in lent:
            if each.shared is not None:
                each.shared.drop()

    # called by the world, on the user's thread

    def restore(self, world: World, state: Mapping[str, Any]) -> None:
        """Make a state that with which the world begins, which all ranks have once this returns."""
        place = world.place
        has = self._states[-1:]
        same = (
            bool(has)
            and has[0].keys() == state.keys()
            and all(has[0][name] is state[name] for name in state)
        )
        if place.checkpoint is not None:
            checkpoint.load(place.checkpoint, state)
        elif place.sources and not (place.current and same):
            try:
                take(place.sources, state)
            except RDMAError as error:  # such as the end of a rank that had it
                raise NotFormedError(
                    f"rank {place.rank} of {place.size} could not read its state: {error}"
                ) from None
        others = (
            self._states if self._progress.done == place.step and place.sources and not same else []
        )
        self._states, self._progress = [*others, state], Progress(place.step)
        self._watch_optimizers(state)
        # a rank that comes here has all of its state, and needs no former state any more
        dist.barrier()
        self._states = [state]
        self._take_back()
        if world.rank == 0:
            self._coordinator.begun.call_one(world.number).get()

    def _watch_optimizers(self, state: Mapping[str, Any]) -> None:
        for hook in self._hooks:
            hook.remove()
        optimizers = [each for each in state.values() if hasattr(each, "register_step_post_hook")]
        self._hooks = [each.register_step_post_hook(self._note_applied) for each in optimizers]
        if any_sharded(state):
            self._hooks += [each.register_step_pre_hook(self._agree) for each in optimizers]

    def _agree(self, optimizer: Any, *_: object) -> None:
        """Change no weights before all ranks can.

        A partial step is of no use without the parts that others have.

        Where a rank dies within the barrier, some may have passed it and others not; those can
        still do the remaining work, which needs no other rank: `finish`.
        """
        world = self._world
        if world is not None and not world.prepared:
            self._stepping = optimizer
            world.prepared = True
            dist.barrier()

    def _note_applied(self, *_: object) -> None:
        if self._world is not None:
            self._world.applied = True

    def completed(self, world: World) -> None:
        """Begin to write a checkpoint, if it is time; the one before has been written by then."""
        if self._saving is None or world.step % self._saving[1]:
            return
        self._await_writing(world)
        if not world.over:
            state = checkpoint.snapshot(self._states[-1], world.rank)
            run = contextvars.copy_context().run
            self._writing = self._writer.submit(
                run, self._write, world, world.step, state, self._saving[0]
            )

    def _write(self, world: World, step: int, state: Any, folder: Path) -> None:
        part: checkpoint.CheckpointPart | str
        try:
            part = checkpoint.write(
                state, checkpoint.unfinished(folder, step, world.number), world.rank
            )
        except Exception as error:  # such as a full disk: no reason to end the training
            part = str(error)
        with suppress(SupervisionError):  # the program has ended
            self._coordinator.written.call_one(
                step, world.number, world.rank, world.size, part
            ).get()

    def _await_writing(self, world: World) -> None:
        while self._writing is not None and not self._writing.done() and not world.over:
            wait([self._writing], _LOOK_AGAIN)

    def send(self, report: Report) -> Any:
        """Give the program a report."""
        return self._coordinator.report.call_one(report)

    @concurrent_endpoint
    async def open_store(self) -> KeptStore:
        """Open the store of the next world, as its rank 0."""
        store, self._kept = keep()
        return store

    @concurrent_endpoint
    async def run(self, place: WorldPlace, coordinator: Any) -> End:
        """Train in a world, until it or the training ends.

        Errors of the user's code come through.
        """
        self._coordinator = coordinator
        world = self._world = World(place, self)
        try:
            return await self._on_thread(self._train, place, world)
        finally:
            if world.restored:
                self._progress = Progress(world.step, world.applied, world.prepared)
            self._world = None

    def _train(self, place: WorldPlace, world: World) -> End:
        try:
            self._enter(place)
        except Exception as error:
            # torch names groups by how many a process has made, those that failed included, until
            # it destroys the default one
            if not dist.is_initialized():
                dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
            dist.destroy_process_group()
            raise NotFormedError(
                f"rank {place.rank} of {place.size} could not connect: {error}"
            ) from None
        try:
            if self._states and not place.sources and place.checkpoint is None:
                self._make_trainer()  # from the beginning, again
            self._trainer.train(world)
            world.flush()
            self._await_writing(world)
            return End.DONE
        except WorldChanged:
            return End.BROKEN_OFF if world.over else End.AGREED
        except Exception:
            if world.over:  # a collective that was broken off
                return End.BROKEN_OFF
            raise

    def _enter(self, place: WorldPlace) -> None:
        os.environ.update(RANK=str(place.rank), WORLD_SIZE=str(place.size))
        # of the world before, not sooner: others may still wait for data sent over these
        self._connections.shut_down()
        if dist.is_initialized():
            dist.destroy_process_group()
        self._connections = Connections()
        if place.rank:
            self._kept = None  # of a world before, in which this was rank 0
        if place.one_host:
            os.environ.setdefault(_INTERFACE, "lo")
        elif os.environ.get(_INTERFACE) == "lo":
            del os.environ[_INTERFACE]
        limit = timedelta(seconds=_MEETING_TIMEOUT)
        self._store = store = PolledStore(place.store, self._check, limit)
        store.set(f"here/{place.rank}", "")
        store.wait([f"here/{rank}" for rank in range(place.size)], limit)
        dist.init_process_group("gloo", store=store, rank=place.rank, world_size=place.size)

    def _check(self) -> None:
        if self._world is not None and self._world.over:
            raise RuntimeError("a rank has been lost meanwhile")

    @concurrent_endpoint
    async def leave(self, number: int) -> None:
        """End a world, from within a collective, too.

        What ends the loop: the user's code, once it is out of that.
        """
        world = self._world
        if world is None or world.number != number:
            return
        world.leave()
        while self._world is world:
            self._connections.shut_down()
            await asyncio.sleep(_LOOK_AGAIN)

    @concurrent_endpoint
    async def hold(self, number: int) -> int | None:
        """Wait before the next step; which one that is. None: the rank is out of this world."""
        world = self._world
        return None if world is None or world.number != number else world.hold()

    @concurrent_endpoint
    async def end_before(self, number: int, step: int | None) -> None:
        """Go on after `hold`, and end the world before this step; None: don't."""
        world = self._world
        if world is not None and world.number == number:
            world.end_before(step)

    async def _on_thread(self, function: Callable[..., T], *args: Any) -> T:
        run = contextvars.copy_context().run
        return await asyncio.get_running_loop().run_in_executor(
            self._thread, lambda: run(function, *args)
        )

    async def __cleanup__(self, error: Exception | None) -> None:
        if self._world is not None:
            self._world.leave()
            self._connections.shut_down()
        self._thread.shutdown(wait=False)
        self._writer.shutdown(wait=False)
