"""A rank: an actor that is always there to be asked, and a thread on which the user's code runs."""

from __future__ import annotations

import asyncio
import contextvars
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from enum import Enum
from typing import Any, NamedTuple, TypeVar

import torch.distributed
import torch.distributed.distributed_c10d

from ..actor import Actor, concurrent_endpoint
from ..spmd.elastic import own_name
from .connections import Connections
from .state import Lent, lend, take
from .world import Place, World, WorldChanged

dist: Any = torch.distributed  # which does not export all of its names for type checkers
T = TypeVar("T")

_MEETING_TIMEOUT = 60.0  # seconds until all ranks have come to the store, once they are called to; `leave` ends it, too
_CONNECT_TIMEOUT = (
    5.0  # seconds in which they then connect to each other, which takes milliseconds and can't be broken off
)
_LOOK_AGAIN = 0.1  # seconds until connections that were made meanwhile are shut down as well
_INTERFACE = "GLOO_SOCKET_IFNAME"


class Progress(NamedTuple):
    """How far the state of a rank has come; the larger, the farther.

    Attributes:
        steps: How many are done; -1: it has never been in a world.
        applied: An optimizer has begun to change it in the next one, which was not completed.
    """

    steps: int
    applied: bool


class End(Enum):
    """How a world has ended for a rank."""

    DONE = "train() has returned"
    AGREED = "all ranks stop before the same step"
    BROKEN_OFF = "the rank was told to leave"


class NotConnectedError(Exception):
    """The ranks of a world could not connect to each other."""


class Member(Actor):
    """Args:
    make: Makes the trainer.
    local_rank: Its number on its host, for the variable ``LOCAL_RANK``.
    timeout: Of a collective, in seconds.
    """

    def __init__(self, make: Callable[[], Any], local_rank: int, timeout: float) -> None:
        os.environ["LOCAL_RANK"] = str(local_rank)
        self._make = make
        self._timeout = timeout
        self._thread = ThreadPoolExecutor(1, "elastic")  # one and the same: CUDA's current device is that of a thread
        self._trainer: Any = None
        self._state: Mapping[str, Any] = {}
        self._progress = Progress(-1, False)
        self._world: World | None = None
        self._connections = Connections()
        self._note_connections()
        self._store: Any = None
        self._lent: Lent | None = None

    def _note_connections(self) -> None:
        """Know those of each process group, whoever makes it: torch has one function for that, below all public ones."""
        module: Any = torch.distributed.distributed_c10d
        make_group = module._new_process_group_helper

        def noted(*args: Any, **options: Any) -> Any:
            with self._connections.made():
                return make_group(*args, **options)

        module._new_process_group_helper = noted

    @concurrent_endpoint
    async def make(self) -> None:
        """Make the trainer."""
        await self._on_thread(self._make_trainer)

    def _make_trainer(self) -> None:
        self._trainer = self._make()
        self._state = self._trainer.state()
        for each in self._state.values():
            if hasattr(each, "register_step_post_hook"):
                each.register_step_post_hook(self._note_applied)

    def _note_applied(self, *_: object) -> None:
        if self._world is not None:
            self._world.applied = True

    @concurrent_endpoint
    async def progress(self) -> Progress:
        """Say how far it has come."""
        return self._progress

    @concurrent_endpoint
    async def lend(self) -> Lent:
        """Let others read its state, until `take_back`."""
        self._lent = await self._on_thread(lend, self._state)
        return self._lent

    @concurrent_endpoint
    async def take_back(self) -> None:
        """Let nobody read it any more."""
        lent, self._lent = self._lent, None
        if lent is not None and lent.shared is not None:
            await asyncio.to_thread(lent.shared.drop)

    @concurrent_endpoint
    async def take(self, lent: Lent, progress: Progress) -> None:
        """Become like another rank, which is that far."""
        await self._on_thread(take, lent, self._state)
        self._progress = Progress(progress.steps + progress.applied, False)

    @concurrent_endpoint
    async def open_store(self, one_host: bool) -> tuple[str, int]:
        """Open the store of the next world, as its rank 0; its address."""
        address = "127.0.0.1" if one_host else own_name()
        self._store = dist.TCPStore(address, 0, is_master=True, wait_for_workers=False)
        return address, self._store.port

    @concurrent_endpoint
    async def run(self, place: Place, coordinator: Any) -> End:
        """Train in a world, until it or the training ends; raises what the user's code has raised."""
        steps, applied = self._progress
        world = self._world = World(place, max(steps, 0) + applied, coordinator.report.call_one)
        try:
            return await self._on_thread(self._train, place, world)
        finally:
            self._progress = Progress(world.step, world.applied)
            self._world = None

    def _train(self, place: Place, world: World) -> End:
        try:
            self._enter(place)
        except Exception as error:
            # torch names groups by how many a process has made, those that failed included, until it destroys the default one
            if not dist.is_initialized():
                dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
            dist.destroy_process_group()
            raise NotConnectedError(f"rank {place.rank} of {place.size} could not connect: {error}") from None
        try:
            self._trainer.train(world)
            world.flush()
            return End.DONE
        except WorldChanged:
            return End.BROKEN_OFF if world.over else End.AGREED
        except Exception:
            if world.over:  # a collective that was broken off
                return End.BROKEN_OFF
            raise

    def _enter(self, place: Place) -> None:
        os.environ.update(RANK=str(place.rank), WORLD_SIZE=str(place.size))
        self._connections.shut_down()  # of the world before, not sooner: others may have waited for what was sent there
        if dist.is_initialized():
            dist.destroy_process_group()
        self._connections = Connections()
        if place.rank:
            self._store = None  # of a world before, in which this was rank 0
        if place.one_host:
            os.environ.setdefault(_INTERFACE, "lo")
        elif os.environ.get(_INTERFACE) == "lo":
            del os.environ[_INTERFACE]
        limit = timedelta(seconds=_MEETING_TIMEOUT)
        with self._connections.made():
            store = dist.TCPStore(place.address, place.port, timeout=limit)
        store.set(f"here/{place.rank}", "")
        store.wait([f"here/{rank}" for rank in range(place.size)], limit)
        limit = timedelta(seconds=_CONNECT_TIMEOUT)
        dist.init_process_group("gloo", store=store, rank=place.rank, world_size=place.size, timeout=limit)
        dist.group.WORLD.set_timeout(timedelta(seconds=self._timeout))

    @concurrent_endpoint
    async def leave(self, number: int) -> None:
        """End a world, from within a collective, too. What ends the loop: the user's code, once it is out of that."""
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
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: run(function, *args))

    async def __cleanup__(self, error: Exception | None) -> None:
        if self._world is not None:
            self._world.leave()
            self._connections.shut_down()
        self._thread.shutdown(wait=False)
