"""How long memory stays: as long as somebody has a handle, and no longer."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from helpers.actors import open_channel
from helpers.rdma_actors import Owner, Trackable, User
from helpers.waiting import wait_until
from monarch.config import configured
from monarch.rdma import BufferDroppedError, RDMABuffer
from monarch.rdma.grants.leases import Outbox

if TYPE_CHECKING:
    from conftest import Spawn

OTHERS = pytest.mark.processes("time after which memory goes, by the clock of the machine")


class Actors(NamedTuple):
    owner: Any
    user: Any


@pytest.fixture
def actors(spawn: Spawn) -> Actors:
    """Where handles on their way keep nothing, so that the end of the last one shows."""
    with configured(rdma_lease_grace=0):
        procs = spawn(2)
    return Actors(
        procs.slice(gpus=0).spawn("owner", Owner), procs.slice(gpus=1).spawn("user", User)
    )


def wait_gone(owner: Any, name: str) -> None:
    wait_until(lambda: owner.has_gone.call_one(name).get(), what=f"the end of the memory {name!r}")


def test_memory_outlives_what_the_owner_had_as_long_as_there_is_a_handle(spawn: Spawn) -> None:
    owner = spawn(1).spawn("owner", Owner)
    buffer = owner.make_and_forget.call_one("a", 100).get()
    assert not owner.has_gone.call_one("a").get()
    into = bytearray(b"\xff" * 100)
    buffer.read_into(into).get()
    assert into == bytes(100)


def wait_held(owner: Any, name: str) -> None:
    """By the owner, the client and the user; each tells for itself, and a word on its way holds
    nothing.
    """
    wait_until(
        lambda: owner.holders.call_one(name).get() == 3,
        what=f"three holders of the memory {name!r}",
    )


def test_memory_that_no_other_was_told_of_goes_with_its_handle(spawn: Spawn) -> None:
    owner = spawn(1).spawn("owner", Owner)
    owner.make_and_lose.call_one("a").get()
    wait_gone(owner, "a")


@OTHERS
def test_memory_goes_with_the_last_handle_elsewhere(actors: Actors) -> None:
    buffer = actors.owner.make_and_keep.call_one("a", 100).get()
    actors.user.keep.call_one("mine", buffer).get()
    wait_held(actors.owner, "a")
    actors.owner.forget.call_one("a").get()
    del buffer
    assert actors.user.read_kept.call_one("mine").get() == bytes(100)
    assert not actors.owner.has_gone.call_one("a").get()
    actors.user.forget.call_one("mine").get()
    wait_gone(actors.owner, "a")


@OTHERS
def test_a_process_that_ends_holds_nothing_any_more(actors: Actors, spawn: Spawn) -> None:
    buffer = actors.owner.make_and_keep.call_one("a", 100).get()
    procs = spawn(1)
    procs.spawn("other", User).keep.call_one("mine", buffer).get()
    wait_held(actors.owner, "a")
    actors.owner.forget.call_one("a").get()
    del buffer
    gc.collect()
    assert not actors.owner.has_gone.call_one("a").get()
    procs.stop().get()
    wait_gone(actors.owner, "a")


def test_a_handle_on_its_way_keeps_the_memory(spawn: Spawn, tmp_path: Path) -> None:
    with configured(rdma_lease_grace="1h"):
        procs = spawn(2)
    owner = procs.slice(gpus=0).spawn("owner", Owner)
    user = procs.slice(gpus=1).spawn("user", User)
    started, receiver = open_channel()
    busy = procs.slice(gpus=1).spawn("busy", Owner)
    user_is_busy = busy.be_busy.call_one(str(tmp_path / "done"), started)
    receiver.recv().get()
    kept = busy.content.call_one("nothing")  # whatever the busy actor is sent waits
    answer = user.read.call_one(owner.make_and_forget.call_one("a", 100).get())
    gc.collect()
    assert answer.get() == bytes(100)
    assert not owner.has_gone.call_one("a").get()
    (tmp_path / "done").touch()
    user_is_busy.get()
    assert kept.exception() is not None


def test_an_owner_that_ends_takes_its_memory_along(spawn: Spawn) -> None:
    procs = spawn(2)
    owner = procs.slice(gpus=0).spawn("owner", Owner)
    user = procs.slice(gpus=1).spawn("user", User)
    buffer = owner.make.call_one("a", 100).get()
    user.read.call_one(buffer).get()
    owner.stop().get()
    error = user.failure.call_one(buffer).get()
    assert type(error) is BufferDroppedError
    assert "owner" in str(error)
    assert "has ended" in str(error)


def test_dropping_lets_go_of_the_memory_here() -> None:
    memory = Trackable(100)
    gone = weakref.ref(memory)
    buffer = RDMABuffer(memory)
    del memory
    assert gone() is not None
    buffer.drop().get()
    assert gone() is None
    with pytest.raises(BufferDroppedError):
        buffer.read_into(bytearray(100)).get()


def test_the_future_of_a_transfer_does_not_keep_its_memory(actors: Actors) -> None:
    buffer = actors.owner.make.call_one("a", 100).get()
    memory = Trackable(100)
    gone = weakref.ref(memory)
    future = buffer.read_into(memory)
    future.get()
    del memory
    wait_until(lambda: gone() is None, what="the end of the target's memory")
    assert future.done()


def test_a_lease_that_ends_can_not_be_had_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that unpacks a handle just then would go on with a lease whose end the owner has
    been told of.
    """
    put = Outbox.put
    leases: list[weakref.ref[Any]] = []
    at_the_end: list[Any] = []

    def look_and_put(self: Outbox, owner: Any, claim: Any, ended: Any = None) -> None:
        if ended is not None:
            at_the_end.extend(lease() for lease in leases)
        put(self, owner, claim, ended)

    monkeypatch.setattr(Outbox, "put", look_and_put)
    buffer = RDMABuffer(bytearray(10))
    leases.append(weakref.ref(buffer._lease))
    del buffer
    assert at_the_end == [None]


def test_a_client_lets_go_of_what_it_forgets() -> None:
    buffers = [RDMABuffer(Trackable(100)) for _ in range(100)]
    registry = buffers[0].plane.registry
    before = registry.statistics()
    assert before.buffers >= 100
    del buffers
    wait_until(
        lambda: registry.statistics().buffers <= before.buffers - 100, what="the end of the buffers"
    )
