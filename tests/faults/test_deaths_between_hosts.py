"""A process ends that had asked processes of other hosts, and that they have never asked: what they
have for it ends, too.
"""

from __future__ import annotations

import os
import signal
from array import array
from typing import TYPE_CHECKING

import pytest

from helpers.faults import Faults
from helpers.waiting import wait_gone, wait_until
from monarch.actor import Actor, HostMesh, ProcMesh, endpoint
from monarch.rdma import InconsistentStateError, Replica, SharedState, pull, share_state
from monarch.rdma.states import state

if TYPE_CHECKING:
    from conftest import Spawn

pytestmark = pytest.mark.processes("hosts tell each other of the ends of their processes")


class Sharer(Actor):
    def __init__(self) -> None:
        self.values = array("d", [1.0] * 10)
        self.shared = share_state({"w": self.values}, copy=False)

    @endpoint
    def share(self) -> SharedState:
        return self.shared


class Peer(Actor):
    @endpoint
    def pid(self) -> int:
        return os.getpid()

    @endpoint
    def begin_a_write(self, shared: SharedState) -> None:
        shared.versions.begin().get()

    @endpoint
    def pull(self, shared: SharedState) -> float:
        values = array("d", [0.0] * 10)
        Replica(shared, {"w": values}).pull(timeout=600).get()
        return values[0]

    @endpoint
    def end_as_it_reads(self, shared: SharedState) -> None:
        state.pull_once = lambda *given, **options: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment]
        Replica(shared, {"w": array("d", [0.0] * 10)}).pull().get()

    @endpoint
    def hire(self, procs: ProcMesh, host: HostMesh) -> int:
        """Own an actor on another's mesh, and a mesh: the process of that."""
        procs.spawn("guest", Guest).pid.call_one().get()
        return host.spawn_procs({"gpus": 1}).spawn("own", Peer).pid.call_one().get()


class Guest(Peer):
    ended = 0

    def __cleanup__(self, error: Exception | None) -> None:
        Guest.ended += 1


class Looker(Actor):
    @endpoint
    def guests_that_ended(self) -> int:
        return Guest.ended


def end(peer: Peer, faults: Faults) -> None:
    os.kill(peer.pid.call_one().get(), signal.SIGKILL)
    faults.wait_for(1)


def test_a_write_of_a_process_that_has_ended_is_not_waited_for(
    spawn_far: Spawn, faults: Faults
) -> None:
    shared = spawn_far(1).slice(hosts=0).spawn("sharer", Sharer).share.call_one().get()
    writer = spawn_far(1).slice(hosts=1).spawn("writer", Peer)
    writer.begin_a_write.call_one(shared).get()
    end(writer, faults)
    with pytest.raises(InconsistentStateError, match="torn"):
        pull(shared, {"w": array("d", [0.0] * 10)}).get()


def test_a_replica_does_not_wait_for_one_of_its_host_that_has_ended_as_it_read(
    spawn_far: Spawn, faults: Faults
) -> None:
    shared = spawn_far(1).slice(hosts=0).spawn("sharer", Sharer).share.call_one().get()
    first, second = (spawn_far(1).slice(hosts=1).spawn("peer", Peer) for _ in range(2))
    first.end_as_it_reads.broadcast(shared)
    faults.wait_for(1)
    # its own limit is longer than the test's
    assert second.pull.call_one(shared).get() == 1.0


def test_what_a_process_that_has_ended_owned_on_another_host_ends(
    spawn_far: Spawn, far_hosts: HostMesh, faults: Faults
) -> None:
    procs = spawn_far(1).slice(hosts=0)
    looker = procs.spawn("looker", Looker)
    owner = spawn_far(1).slice(hosts=1).spawn("owner", Peer)
    own = owner.hire.call_one(procs, far_hosts.slice(hosts=2)).get()
    end(owner, faults)
    wait_gone(own)
    wait_until(lambda: looker.guests_that_ended.call_one().get() == 1, what="the end of its actor")
