"""Replicas of a shared state: they are up to date when they say so, and read from each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from monarch.actor import Actor, endpoint
from monarch.rdma import (
    BufferDroppedError,
    InconsistentStateError,
    OwnerLostError,
    Replica,
    SharedState,
    Split,
    TransferTimeoutError,
    pull,
    share_state,
)

np = pytest.importorskip("numpy", reason="shares arrays; numpy is not installed")

if TYPE_CHECKING:
    from conftest import Spawn


class Trainer(Actor):
    def __init__(self) -> None:
        self.state = {"w": np.zeros((4, 6)), "step": np.array(0)}
        self.shared = share_state(self.state, copy=False)

    @endpoint
    def share(self) -> SharedState:
        return self.shared

    @endpoint
    def train(self, step: int) -> None:
        with self.shared.writing():
            self.state["w"][:] = self.state["step"][...] = step

    @endpoint
    def fail(self) -> None:
        with self.shared.writing():
            raise OSError("the disk is full")


class Generator(Actor):
    def __init__(self, sources: Any, shards: Any = None) -> None:
        columns = 3 if shards else 6
        self.state = {"w": np.full((4, columns), -1.0), "step": np.array(-1)}
        self.replica = Replica(sources, self.state, shards=shards)

    @endpoint
    def pull(self, newer: bool = False, timeout: float = 30) -> Any:
        versions = self.replica.pull(newer=newer, timeout=timeout).get()
        return versions, sorted({*self.state["w"].flatten().tolist(), int(self.state["step"])})

    @endpoint
    def versions(self) -> Any:
        return self.replica.versions

    @endpoint
    def drop(self) -> None:
        self.replica.drop()


def test_a_replica_has_each_version_that_it_pulls(spawn: Spawn) -> None:
    procs = spawn(3)
    trainer = procs.slice(gpus=0).spawn("trainer", Trainer)
    generators = procs.slice(gpus=slice(1, 3)).spawn(
        "generators", Generator, trainer.share.call_one().get()
    )
    assert list(generators.versions.call().get().values()) == [None, None]
    for step in range(3):
        assert list(generators.pull.call().get().values()) == [((step,), [step])] * 2
        assert list(generators.pull.call().get().values()) == [((step,), [step])] * 2
        trainer.train.call_one(step + 1).get()
    assert list(generators.versions.call().get().values()) == [(2,), (2,)]


def test_a_replica_of_a_part_gets_that_part(spawn: Spawn) -> None:
    trainer = spawn(1).spawn("trainer", Trainer)
    trainer.train.call_one(5).get()
    shards = {"w": Split(dim=1, rank=1, count=2)}
    generator = spawn(1).spawn("generator", Generator, trainer.share.call_one().get(), shards)
    assert generator.pull.call_one().get() == ((1,), [5])


def test_what_is_newer_is_waited_for(spawn: Spawn) -> None:
    trainer = spawn(1).spawn("trainer", Trainer)
    generator = spawn(1).spawn("generator", Generator, trainer.share.call_one().get())
    assert generator.pull.call_one(newer=True).get() == ((0,), [0])
    waiting = generator.pull.call_one(newer=True)
    trainer.train.call_one(7).get()
    assert waiting.get() == ((1,), [7])
    with pytest.raises(Exception, match=TransferTimeoutError.__name__):
        generator.pull.call_one(newer=True, timeout=0.1).get()
    assert generator.pull.call_one().get() == ((1,), [7])


def test_a_torn_source_is_an_error_and_a_new_write_mends_it(spawn: Spawn) -> None:
    trainer = spawn(1).spawn("trainer", Trainer)
    generator = spawn(1).spawn("generator", Generator, trainer.share.call_one().get())
    with pytest.raises(Exception, match="the disk is full"):
        trainer.fail.call_one().get()
    with pytest.raises(Exception, match=InconsistentStateError.__name__):
        generator.pull.call_one().get()
    trainer.train.call_one(2).get()
    assert generator.pull.call_one().get() == ((2,), [2])


def test_a_replica_whose_source_is_gone_says_so(spawn: Spawn) -> None:
    procs = spawn(1)
    trainer = procs.spawn("trainer", Trainer)
    shared = trainer.share.call_one().get()
    here = {"w": np.zeros((4, 6))}
    replica = Replica(shared, here)
    assert replica.pull().get() == (0,)
    procs.stop().get()
    with pytest.raises((OwnerLostError, BufferDroppedError)):
        replica.pull().get()
    assert (here["w"] == 0).all()


def test_a_dropped_replica_keeps_its_values_and_pulls_no_more(spawn: Spawn) -> None:
    trainer = spawn(1).spawn("trainer", Trainer)
    here = {"w": np.ones((4, 6))}
    replica = Replica(trainer.share.call_one().get(), here)
    replica.pull().get()
    replica.drop()
    assert replica.versions is None
    assert (here["w"] == 0).all()
    with pytest.raises(BufferDroppedError):
        replica.pull().get()


def test_two_pulls_at_one_time_are_refused(spawn: Spawn) -> None:
    trainer = spawn(1).spawn("trainer", Trainer)
    shared = trainer.share.call_one().get()
    replica = Replica(shared, {"w": np.ones((4, 6))})
    with shared.writing():
        first = replica.pull()
        with pytest.raises(RuntimeError, match="being pulled"):
            replica.pull()
    assert first.get() == (1,)


def test_others_read_what_a_replica_has(spawn: Spawn) -> None:
    """A replica of a replica's tensors would do as well: they are a shared state like any other."""
    shared = share_state({"w": np.arange(3.0)})
    here = {"w": np.zeros(3)}
    replica = Replica(shared, here)
    replica.pull().get()
    into = {"w": np.zeros(3)}
    pull(replica._shared, into).get()
    assert into["w"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("sources", [[], None, "weights"])
def test_sources_that_are_none_are_refused(sources: Any) -> None:
    with pytest.raises(TypeError, match="expected a SharedState"):
        Replica(sources, {"w": np.zeros(3)})
