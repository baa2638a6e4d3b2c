"""One-sided transfers between hosts: here two agents on one machine, with a link between them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from helpers.faults import Faults
from helpers.rdma_actors import NIXL, Owner, User, pattern
from helpers.waiting import wait_until
from monarch.config import configured
from monarch.job import ProcessJob
from monarch.rdma import BufferAccessError, BufferDroppedError, OwnerLostError

SIZE = 9_000_001


class Pair(NamedTuple):
    owner: Any
    user: Any
    path: str


@pytest.fixture(params=["messages", NIXL, "vm"])
def pair(request: pytest.FixtureRequest, _process_test: None) -> Iterator[Pair]:
    path: str = request.param
    job = ProcessJob({"owners": 1, "users": 1})
    state = job.state(None)
    with configured(
        rdma_paths=path, rdma_lease_grace=0, preload=["nixl._api"] if path == "nixl" else []
    ):
        owner = state.owners.spawn_procs().spawn("owner", Owner)
        user = state.users.spawn_procs().spawn("user", User)
    yield Pair(owner, user, path)
    job.kill()


@pytest.mark.slow
def test_bytes_go_both_ways_between_hosts(pair: Pair) -> None:
    buffer = pair.owner.make.call_one("a", SIZE).get()
    assert pair.user.path_to.call_one(buffer).get() == pair.path
    assert pair.user.read.call_one(buffer).get() == pattern(SIZE)
    pair.user.write.call_one(buffer, bytes(pattern(SIZE, seed=2))).get()
    assert pair.owner.content.call_one("a").get() == pattern(SIZE, seed=2)
    words = pair.owner.make_words.call_one(1).get()
    assert pair.user.add.call_one(words, 1, 3).get() == [1, 2, 3]
    buffer.drop().get()
    assert type(pair.user.failure.call_one(buffer).get()) is BufferDroppedError
    rebuild, (info,) = words.__reduce__()
    forged = rebuild(info._replace(key=bytes(16)))
    assert type(pair.user.failure.call_one(forged).get()) is BufferAccessError


@pytest.mark.slow
def test_leases_and_deaths_are_told_of_between_hosts(pair: Pair, faults: Faults) -> None:
    kept = pair.owner.make_and_keep.call_one("kept", 100).get()
    pair.user.keep.call_one("mine", kept).get()
    # now the owner knows of this holder, whichever message is faster
    pair.user.read_kept.call_one("mine").get()
    pair.owner.forget.call_one("kept").get()
    del kept
    assert pair.user.read_kept.call_one("mine").get() == bytes(100)
    pair.user.forget.call_one("mine").get()
    wait_until(lambda: pair.owner.has_gone.call_one("kept").get(), what="the end of the memory")
    buffer = pair.owner.make.call_one("a", SIZE).get()
    pair.user.keep.call_one("a", buffer).get()
    pair.user.read_kept.call_one("a").get()
    os.kill(pair.owner.pid.call_one().get(), signal.SIGKILL)
    faults.wait_for(1)
    error = pair.user.failure.call_one(buffer, 600).get()
    assert type(error) is OwnerLostError
    assert error.failure is not None
    assert error.failure.signal == signal.SIGKILL
