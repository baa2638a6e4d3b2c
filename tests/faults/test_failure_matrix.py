"""What follows from each thing that can go wrong on one rank of a mesh: the behaviour matrix, row
by row.

Every row looks at the same five things: whoever waits for the rank, whoever calls it later, the
other ranks, the owner, and what is left of the actor and its process. Rows that need a program of
their own are elsewhere: the loss of a host in `test_detection` and `test_told_once`, a message over
the size limit in `procs/test_errors`.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from helpers.actors import Echo, Failing, FailsToUnpickle, Unpicklable
from helpers.unread import unread_errors
from helpers.waiting import wait_gone, wait_until
from monarch.actor import Actor, ActorError, Port, SupervisionError, context, endpoint, send

if TYPE_CHECKING:
    from conftest import Spawn
    from helpers.faults import Faults

pytestmark = pytest.mark.both

BAD = 1
"""The rank on which things go wrong, of three."""


class Victim(Actor):
    def __init__(self, raises_on: int | None = None, _: Any = None) -> None:
        if context().actor_instance.rank.rank == raises_on:
            raise ValueError("in __init__")
        self.kept: list[Port[int]] = []

    @endpoint(explicit_response_port=True)
    def wait(self, port: Port[int]) -> None:
        self.kept.append(port)

    @endpoint
    def let_go(self) -> None:
        for port in self.kept:
            port.send(os.getpid())
        self.kept.clear()

    @endpoint
    def pid(self) -> int:
        return os.getpid()

    @endpoint
    def throw(self, kind: type[BaseException]) -> None:
        raise kind("on purpose")

    @endpoint(explicit_response_port=True)
    def throw_instead_of_an_answer(self, port: Port[int]) -> None:
        raise ValueError("on purpose")

    @endpoint
    def return_unpicklable(self) -> Any:
        return Unpicklable()

    @endpoint
    def stop_itself(self) -> None:
        context().actor_instance.stop("on purpose")

    @endpoint
    def abort(self) -> None:
        context().actor_instance.abort("on purpose")

    @endpoint
    def end_process(self, how: str) -> None:
        if how == "exit":
            os._exit(3)
        elif how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        else:
            ctypes.string_at(0)


class AsyncVictim(Actor):
    def __init__(self) -> None:
        self.kept: list[Any] = []

    @endpoint(explicit_response_port=True)
    async def wait(self, port: Port[int]) -> None:
        self.kept.append(port)

    @endpoint
    async def let_go(self) -> None:
        for port in self.kept:
            port.send(os.getpid())
        self.kept.clear()

    @endpoint
    async def pid(self) -> int:
        return os.getpid()

    @endpoint
    async def throw(self, kind: type[BaseException]) -> None:
        raise kind("on purpose")

    @endpoint
    async def throw_in_a_task(self) -> None:
        async def throw() -> None:
            raise ValueError("on purpose")

        await asyncio.wait([asyncio.create_task(throw())])


def raised(error: BaseException | None, kind: type[BaseException]) -> None:
    assert isinstance(error, kind), repr(error)


def stream_of(bad: Any) -> None:
    (answer,) = bad.throw.stream(ValueError)
    raised(answer.exception(), ActorError)


def never_read(bad: Any) -> None:
    with unread_errors() as warned:
        bad.throw.call_one(ValueError)
        warned.wait_for(1)


def ends(call: Callable[[Any], Any]) -> Callable[[Any], None]:
    """The event is a call, and its own caller is told that the actor has ended."""
    return lambda bad: raised(call(bad).exception(), SupervisionError)


def fails(call: Callable[[Any], Any]) -> Callable[[Any], None]:
    """The event is a call, and its own caller gets what the endpoint raised."""
    return lambda bad: raised(call(bad).exception(), ActorError)


class Row(NamedTuple):
    """
    Attributes:
        event: Lets it happen, on the slice that it is given.
        actor_lives: Whether waiting callers get their answer, later ones too, and the owner hears
            nothing.
        told: How often the owner hears of it.
        process_lives: Whether new actors can be spawned there.
        kind: Whose rank it is.
    """

    event: Callable[[Any], object]
    actor_lives: bool = False
    told: int = 1
    process_lives: bool = True
    kind: type[Any] = Victim


ROWS = {
    "Exception, call": Row(fails(lambda bad: bad.throw.call(ValueError)), actor_lives=True, told=0),
    "Exception, call_one": Row(
        fails(lambda bad: bad.throw.call_one(ValueError)), actor_lives=True, told=0
    ),
    "Exception, choose": Row(
        fails(lambda bad: bad.throw.choose(ValueError)), actor_lives=True, told=0
    ),
    "Exception, stream": Row(stream_of, actor_lives=True, told=0),
    "Exception, never read": Row(never_read, actor_lives=True, told=0),
    "Exception, broadcast": Row(lambda bad: bad.throw.broadcast(ValueError)),
    "Exception, send without a port": Row(lambda bad: send(bad.throw, (ValueError,), {})),
    "Exception, async broadcast": Row(
        lambda bad: bad.throw.broadcast(ValueError), kind=AsyncVictim
    ),
    "Exception, explicit port": Row(ends(lambda bad: bad.throw_instead_of_an_answer.call_one())),
    "SystemExit": Row(ends(lambda bad: bad.throw.call_one(SystemExit))),
    "KeyboardInterrupt": Row(ends(lambda bad: bad.throw.call_one(KeyboardInterrupt))),
    "SystemExit, async": Row(ends(lambda bad: bad.throw.call_one(SystemExit)), kind=AsyncVictim),
    "CancelledError, async": Row(
        fails(lambda bad: bad.throw.call_one(asyncio.CancelledError)),
        actor_lives=True,
        told=0,
        kind=AsyncVictim,
    ),
    "CancelledError, async broadcast": Row(
        lambda bad: bad.throw.broadcast(asyncio.CancelledError), kind=AsyncVictim
    ),
    "Exception in a task": Row(
        lambda bad: bad.throw_in_a_task.call_one().get(),
        actor_lives=True,
        told=0,
        kind=AsyncVictim,
    ),
    "result that cannot be pickled": Row(
        fails(lambda bad: bad.return_unpicklable.call_one()), actor_lives=True, told=0
    ),
    "argument that cannot be unpickled": Row(
        fails(lambda bad: bad.throw.call_one(FailsToUnpickle())), actor_lives=True, told=0
    ),
    "abort": Row(lambda bad: bad.abort.broadcast()),
    "stop of itself": Row(lambda bad: bad.stop_itself.broadcast(), told=0),
    "os._exit": Row(ends(lambda bad: bad.end_process.call_one("exit")), process_lives=False),
    "SIGKILL": Row(ends(lambda bad: bad.end_process.call_one("kill")), process_lives=False),
    "segmentation fault": Row(
        ends(lambda bad: bad.end_process.call_one("crash")), process_lives=False
    ),
}


@pytest.mark.processes("processes that crash in C")
@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_what_follows_from(spawn: Spawn, faults: Faults, row: Row) -> None:
    procs = spawn(3)
    mesh: Any = procs.spawn("victim", row.kind)
    pids = mesh.pid.call().get().values()
    waiting = mesh.slice(gpus=BAD).wait.call_one()
    of_another_rank = mesh.slice(gpus=0).wait.call_one()
    everywhere = mesh.wait.call()

    row.event(mesh.slice(gpus=BAD))

    if row.actor_lives:
        assert mesh.pid.call().get().values() == pids
        mesh.let_go.call().get()
        assert waiting.get() == pids[BAD]
        assert everywhere.get().values() == pids
    else:
        for future in (waiting, everywhere, mesh.slice(gpus=BAD).pid.call_one(), mesh.pid.call()):
            raised(future.exception(), SupervisionError)
        mesh.slice(gpus=0).let_go.call_one().get()
    assert of_another_rank.get() == pids[0]
    for rank in {0, 1, 2} - {BAD}:
        assert mesh.slice(gpus=rank).pid.call_one().get() == pids[rank]
    if row.process_lives:
        assert procs.slice(gpus=BAD).spawn("new", Echo).pid.call_one().get() == pids[BAD]
    else:
        wait_gone(pids[BAD])
    assert [(failure.mesh_name, failure.ranks) for failure in heard(faults, procs, row)] == [
        ("victim", [BAD])
    ] * row.told


def heard(faults: Faults, procs: Any, row: Row) -> list[Any]:
    """All that the owner has heard, once it has heard of something that happened after the event,
    in the same process.
    """
    procs.slice(gpus=BAD if row.process_lives else 0).spawn("later", Failing).fail.broadcast()
    wait_until(
        lambda: any(failure.mesh_name == "later" for failure in faults.failures),
        what="the later failure",
    )
    faults.wait_for(row.told + 1)
    return [failure for failure in faults.failures if failure.mesh_name != "later"]


@pytest.mark.parametrize("how", ["raises", "class", "argument"])
def test_what_follows_from_an_actor_that_cannot_be_constructed(
    spawn: Spawn, faults: Faults, how: str
) -> None:
    procs = spawn(3)
    bad_procs = procs.slice(gpus=slice(BAD, BAD + 1))
    if how == "raises":
        mesh: Any = procs.spawn("victim", Victim, BAD)
        faulty = mesh.slice(gpus=BAD)
    else:  # nothing of it depends on the rank
        mesh = faulty = (
            bad_procs.spawn("victim", Victim, None, FailsToUnpickle())
            if how == "argument"
            else bad_procs.spawn("victim", unpicklable_class())
        )
    for _ in range(3):
        raised(faulty.pid.call_one().exception(), SupervisionError)
        raised(mesh.pid.call().exception(), SupervisionError)
    (failure,) = faults.wait_for(1)
    assert failure.mesh_name == "victim"
    if how == "raises":
        assert failure.ranks == [BAD]
        assert mesh.slice(gpus=0).pid.call_one().get() > 0
    assert bad_procs.spawn("new", Echo).say.call_one(1).get() == 1
    assert len(heard(faults, procs, ROWS["abort"])) == 1


def unpicklable_class() -> Any:
    """A class that crosses by value and cannot be rebuilt."""
    trap = FailsToUnpickle()

    class Trapped(Actor):
        kept = trap

        @endpoint
        def pid(self) -> int:
            return 0

    return Trapped


@pytest.mark.parametrize("kind", [Victim, AsyncVictim])
@pytest.mark.parametrize("of", ["actors", "procs"])
def test_what_follows_from_a_stop_by_the_owner(
    spawn: Spawn, faults: Faults, kind: Any, of: str
) -> None:
    procs = spawn(3)
    mesh = procs.spawn("victim", kind)
    pids = mesh.pid.call().get().values()
    waiting = [mesh.wait.call(), mesh.slice(gpus=0).wait.call_one()]
    (mesh if of == "actors" else procs).stop().get()
    later = [mesh.pid.call(), *(mesh.slice(gpus=rank).pid.call_one() for rank in range(3))]
    for future in waiting + later:
        error = future.exception()
        raised(error, SupervisionError)
        assert "stopped" in str(error)
    if of == "actors":
        assert procs.spawn("new", Echo).pid.call().get().values() == pids
    assert len(faults) == 0
