"""`ProcMesh.statistics`: what processes count of themselves."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from monarch.actor import Actor, ProcMesh, endpoint, this_proc

if TYPE_CHECKING:
    from conftest import Spawn
    from monarch._core.hub.statistics import ProcStatistics

pytestmark = pytest.mark.processes("counts what crosses sockets, and descriptors")

CALLS = 100
PATIENCE = 20.0


class Echo(Actor):
    @endpoint
    def echo(self, value: object) -> object:
        return value

    @endpoint
    def hold(self) -> None:
        assert released.wait(PATIENCE)


class Gate(Actor):
    """Another actor of the same process."""

    @endpoint
    def release(self) -> None:
        released.set()


released = threading.Event()


def statistics(procs: ProcMesh) -> ProcStatistics:
    return next(iter(procs.statistics().get(timeout=PATIENCE).values()))


def test_each_message_is_counted_by_who_sends_and_by_who_receives_it(spawn: Spawn) -> None:
    procs = spawn(2)
    actors = procs.spawn("echo", Echo)
    actors.echo.call(1).get(timeout=PATIENCE)
    before, theirs = statistics(this_proc()), procs.statistics().get(timeout=PATIENCE)
    for _ in range(CALLS):
        actors.echo.call(b"x" * 1000).get(timeout=PATIENCE)
    after, theirs_after = (
        statistics(this_proc()),
        procs.statistics().get(timeout=PATIENCE),
    )
    assert after.messages_sent - before.messages_sent >= 2 * CALLS
    assert after.bytes_sent - before.bytes_sent >= 2 * CALLS * 1000
    assert after.bytes_received - before.bytes_received >= 2 * CALLS * 1000
    for one, two in zip(theirs.values(), theirs_after.values(), strict=True):
        assert CALLS <= two.messages_received - one.messages_received <= CALLS + 10
        assert CALLS <= two.messages_sent - one.messages_sent <= CALLS + 10
        assert two.actors == 1
        assert two.connections_open >= 1


def test_what_waits_in_a_mailbox_is_counted(spawn: Spawn) -> None:
    procs = spawn(1)
    actor = procs.spawn("echo", Echo)
    gate = procs.spawn("gate", Gate)
    actor.hold.broadcast()
    for _ in range(5):
        actor.echo.broadcast(1)
    waiting = statistics(procs)
    assert 5 <= waiting.messages_queued <= 6
    gate.release.call_one().get(timeout=PATIENCE)
    actor.echo.call_one(1).get(timeout=PATIENCE)
    assert statistics(procs).messages_queued == 0


def test_calls_that_wait_for_answers_are_counted(spawn: Spawn) -> None:
    procs = spawn(1)
    actor = procs.spawn("echo", Echo)
    actor.echo.call_one(1).get(timeout=PATIENCE)
    gate = procs.spawn("gate", Gate)
    gate.initialized.get(timeout=PATIENCE)
    before = statistics(this_proc())
    held = actor.hold.call_one()
    echoed = [actor.echo.call_one(1) for _ in range(3)]
    assert statistics(this_proc()).calls_unanswered - before.calls_unanswered == 4
    gate.release.call_one().get(timeout=PATIENCE)
    held.get(timeout=PATIENCE)
    for future in echoed:
        future.get(timeout=PATIENCE)


def test_connections_that_are_closed_keep_their_counts(spawn: Spawn) -> None:
    kept, gone = spawn(1), spawn(1)
    kept.spawn("echo", Echo).echo.call_one(1).get(timeout=PATIENCE)
    actor = gone.spawn("echo", Echo)
    actor.echo.call_one(b"x" * 100_000).get(timeout=PATIENCE)
    before = statistics(this_proc())
    gone.stop().get(timeout=PATIENCE)
    after = statistics(this_proc())
    assert after.bytes_sent >= before.bytes_sent >= 100_000
    assert after.connections_open < before.connections_open
