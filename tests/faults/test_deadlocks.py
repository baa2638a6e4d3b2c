"""Actors that wait for each other in a circle: one of them is told who waits for whom, and all of
them go on.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import threading
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from helpers.actors import Gate, open_channel
from helpers.waiting import wait_until
from monarch.actor import (
    Actor,
    ActorError,
    DeadlockError,
    Port,
    concurrent_endpoint,
    context,
    endpoint,
)
from monarch.config import configured

if TYPE_CHECKING:
    from conftest import Spawn
    from helpers.faults import Faults
    from monarch.actor import ProcMesh

pytestmark = pytest.mark.both

INTERVAL = "50ms"  # between two looks at the waits, where a test is to see many


class Peer(Actor):
    """Hands a call on to the next actor, and waits for its answer."""

    def __init__(self) -> None:
        self.next: Any = None

    @endpoint
    def meet(self, other: Any) -> None:
        self.next = other

    @endpoint
    def hand_on(self, steps: int) -> str:
        return "the end" if steps == 0 else str(self.next.hand_on.call_one(steps - 1).get())

    @endpoint
    def catch(self) -> tuple[str, ...]:
        """As `hand_on` one step; the chain of the error that comes back."""
        try:
            self.next.hand_on.call_one(1).get()
        except (ActorError, DeadlockError) as error:
            return root_cause(error).chain
        return ()

    @endpoint
    def hand_on_with_timeout(self, seconds: float) -> str:
        try:
            return str(self.next.hand_on.call_one(0).get(timeout=seconds))
        except TimeoutError:
            return "out of time"

    @endpoint
    def say_to_all(self) -> list[str]:
        return list(self.next.hand_on.call(1).get().values())

    @endpoint
    def wait_for_timeout_of_next(self, seconds: float) -> str:
        return str(self.next.hand_on_with_timeout.call_one(seconds).get())

    @endpoint
    def wait_for_desk(self) -> str:
        return str(self.next.ask.call_one().get())

    @endpoint
    def hand_on_in_thread(self, steps: int, port: Port[str]) -> None:
        threading.Thread(target=lambda: port.send(self.next.hand_on.call_one(steps).get())).start()

    @endpoint
    def wait_for_file(self, path: str) -> None:
        wait_until(lambda: os.path.exists(path), what=path)

    @endpoint
    def watches(self) -> bool:
        return bool(context().actor_instance._cell.hub.detector.watching)

    @endpoint
    def alive(self) -> str:
        return "alive"


class AsyncPeer(Actor):
    def __init__(self) -> None:
        self.next: Any = None

    @endpoint
    async def meet(self, other: Any) -> None:
        self.next = other

    @endpoint
    async def hand_on(self, steps: int) -> str:
        return "the end" if steps == 0 else str(await self.next.hand_on.call_one(steps - 1))

    @endpoint
    async def hand_on_with_timeout(self, seconds: float) -> str:
        try:
            return str(await asyncio.wait_for(self.next.hand_on.call_one(0), seconds))
        except (TimeoutError, asyncio.TimeoutError):
            return "out of time"

    @endpoint
    async def alive(self) -> str:
        return "alive"


class BlockingAsyncPeer(AsyncPeer):
    """Stops its event loop while it waits."""

    @endpoint
    async def hand_on(self, steps: int) -> str:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return "the end" if steps == 0 else str(self.next.hand_on.call_one(steps - 1).get())


class ConcurrentPeer(Actor):
    """Takes further calls while others wait."""

    def __init__(self) -> None:
        self.next: Any = None

    @endpoint
    async def meet(self, other: Any) -> None:
        self.next = other

    @concurrent_endpoint
    async def hand_on(self, steps: int, path: str = "") -> str:
        if steps:
            return str(await self.next.hand_on.call_one(steps - 1, path))
        while path and not os.path.exists(path):
            await asyncio.sleep(0.01)
        return "the end"

    @endpoint
    async def hand_on_alone(self, steps: int) -> str:
        return str(await self.next.hand_on.call_one(steps))

    @endpoint
    async def alive(self) -> str:
        return "alive"


class Desk(Actor):
    """Takes questions that somebody else answers, and then waits for who has asked."""

    def __init__(self, clerk: Any, path: str) -> None:
        self.clerk, self.path = clerk, path
        self.next: Any = None

    @endpoint
    def meet(self, other: Any) -> None:
        self.next = other

    @endpoint(explicit_response_port=True)
    def ask(self, port: Port[str]) -> None:
        self.clerk.answer.broadcast(port, self.path)
        self.next.alive.call_one().get()

    @endpoint
    def alive(self) -> str:
        return "alive"


class Clerk(Actor):
    @endpoint
    def answer(self, port: Port[str], path: str) -> None:
        wait_until(lambda: os.path.exists(path), what=path)
        port.send("answered by the clerk")


class WaitsInInit(Actor):
    def __init__(self, other: Any, path: str, catch: bool) -> None:
        wait_until(lambda: os.path.exists(path), what=path)
        try:
            self.chain = other.catch.call_one().get() if catch else other.alive.call_one().get()
        except DeadlockError as error:
            self.chain = error.chain
            if not catch:
                raise

    @endpoint
    def hand_on(self, steps: int) -> str:
        return "the end"

    @endpoint
    def init_saw(self) -> tuple[str, ...]:
        return tuple(self.chain)


def root_cause(error: BaseException) -> DeadlockError:
    while isinstance(error, ActorError):
        error = error.exception
    assert isinstance(error, DeadlockError), repr(error)
    return error


def ring(procs: ProcMesh, kinds: list[type[Any]], name: str = "peer") -> list[Any]:
    """Actors spread over `procs`, each of which knows the next."""
    peers: list[Any] = [
        procs.slice(gpus=number % procs.size()).spawn(f"{name}{number}", kind)
        for number, kind in enumerate(kinds)
    ]
    for number, peer in enumerate(peers):
        peer.meet.call_one(peers[(number + 1) % len(peers)]).get()
    return peers


def hand_round(peers: list[Any]) -> DeadlockError:
    """Start a circle of waits, and be told of it."""
    with pytest.raises(ActorError) as caught:
        peers[0].hand_on.call_one(len(peers)).get()
    return root_cause(caught.value)


def let_waits_be_looked_at(procs: ProcMesh) -> None:
    """Until a real deadlock between actors on each of `procs` was found three times."""
    control = ring(procs, [Peer] * max(2, procs.size()), "control")
    for _ in range(3):
        hand_round(control)


def assert_alive(peers: list[Any]) -> None:
    assert [peer.alive.call_one().get() for peer in peers] == ["alive"] * len(peers)


@pytest.mark.parametrize("procs", [1, 2])
@pytest.mark.parametrize(
    "kinds",
    [
        [Peer, Peer],
        [Peer, Peer, Peer],
        [AsyncPeer, AsyncPeer],
        [BlockingAsyncPeer, AsyncPeer],
        [Peer, AsyncPeer, BlockingAsyncPeer, Peer],
    ],
    ids=lambda kinds: "-".join(kind.__name__ for kind in kinds),
)
def test_actors_that_wait_for_each_other_are_told_so_and_go_on(
    spawn: Spawn, procs: int, kinds: list[type[Any]]
) -> None:
    with configured(deadlock_check_interval=INTERVAL):
        peers = ring(spawn(procs), kinds)
    error = hand_round(peers)
    assert len(error.chain) == len(kinds)
    # whose wait was noted last is the first of the chain: the one that closed the circle, if no
    # thread was held up
    first = next(number for number in range(len(kinds)) if f" peer{number}{{" in error.chain[0])
    for place, text in enumerate(error.chain):
        number = (first + place) % len(kinds)
        assert f"{kinds[number].__name__} peer{number}{{" in text
        assert f"in hand_on(), waits for peer{(number + 1) % len(kinds)}.hand_on()" in text
    assert_alive(peers)
    hand_round(peers)  # the next time as well
    assert_alive(peers)


def test_the_client_sees_who_waits_for_whom(spawn: Spawn) -> None:
    with configured(deadlock_check_interval=INTERVAL):
        peers = ring(spawn(2), [Peer, Peer])
    with pytest.raises(ActorError) as caught:
        peers[0].hand_on.call_one(2).get()
    text = str(caught.value)
    assert "DeadlockError: these actors wait for each other" in text
    assert "Peer peer0{}>, in hand_on(), waits for peer1.hand_on()" in text
    assert "Peer peer1{}>, in hand_on(), waits for peer0.hand_on()" in text
    assert "concurrent_endpoint" in text


def test_the_default_interval_finds_one_in_seconds(spawn: Spawn) -> None:
    peers = ring(spawn(2), [Peer, Peer])
    hand_round(peers)


def test_an_async_actor_that_awaits_itself_is_told_so(spawn: Spawn) -> None:
    with configured(deadlock_check_interval=INTERVAL):
        peers = ring(spawn(1), [AsyncPeer])
    assert len(hand_round(peers).chain) == 1
    assert_alive(peers)


def test_a_plain_endpoint_keeps_the_concurrent_ones_of_its_actor_from_starting(
    spawn: Spawn,
) -> None:
    with configured(deadlock_check_interval=INTERVAL):
        peers = ring(spawn(2), [ConcurrentPeer, ConcurrentPeer])
    with pytest.raises(ActorError) as caught:
        peers[0].hand_on_alone.call_one(1).get()
    assert len(root_cause(caught.value).chain) == 2
    assert_alive(peers)


def test_a_circle_through_some_ranks_of_a_mesh_is_found(spawn: Spawn) -> None:
    with configured(deadlock_check_interval=INTERVAL):
        procs = spawn(3)
    mesh: Any = procs.slice(gpus=slice(1, 3)).spawn("mesh", Peer)
    single: Any = procs.slice(gpus=0).spawn("single", Peer)
    single.meet.call_one(mesh).get()
    mesh.meet.call(single).get()
    with pytest.raises(ActorError) as caught:
        single.say_to_all.call_one().get()
    of_mesh, of_single = sorted(root_cause(caught.value).chain)
    assert "in hand_on(), waits for single.hand_on()" in of_mesh
    assert "in say_to_all(), waits for mesh.hand_on() on 2 ranks; no answer yet from" in of_single
    assert_alive([single, mesh.slice(gpus=0), mesh.slice(gpus=1)])


def test_an_actor_may_catch_it_and_the_chain_crosses_processes(spawn: Spawn) -> None:
    with configured(deadlock_check_interval=INTERVAL):
        peers = ring(spawn(2), [Peer, Peer])
    chain = peers[0].catch.call_one().get()
    of_first, of_second = sorted(chain)
    assert "peer0{}>, in catch(), waits for peer1.hand_on()" in of_first
    assert "peer1{}>, in hand_on(), waits for peer0.hand_on()" in of_second
    copy = pickle.loads(pickle.dumps(DeadlockError("text", chain)))
    assert (str(copy), copy.chain) == ("text", chain)


def test_a_wait_in_init_can_be_part_of_a_circle(spawn: Spawn, tmp_path: Path) -> None:
    door = tmp_path / "door"
    with configured(deadlock_check_interval=INTERVAL):
        procs = spawn(2)
    peer: Any = procs.slice(gpus=0).spawn("peer", Peer)
    new: Any = procs.slice(gpus=1).spawn("new", WaitsInInit, peer, str(door), True)
    peer.meet.call_one(new).get()
    door.touch()
    # init waits for peer.catch(), and that for a call that new takes only after its init
    of_new, of_peer = sorted(new.init_saw.call_one().get())
    assert "WaitsInInit new{}>, in __init__(), waits for peer.catch()" in of_new + of_peer
    assert "Peer peer{}>, in catch(), waits for new.hand_on()" in of_new + of_peer
    assert_alive([peer])


def test_an_init_that_closes_a_circle_raises(spawn: Spawn, tmp_path: Path, faults: Faults) -> None:
    door = tmp_path / "door"
    with configured(deadlock_check_interval=INTERVAL):
        procs = spawn(2)
    peer: Any = procs.slice(gpus=0).spawn("peer", Peer)
    new: Any = procs.slice(gpus=1).spawn("new", WaitsInInit, peer, str(door), False)
    peer.meet.call_one(new).get()
    waiting = peer.hand_on.call_one(1)
    watcher: Any = procs.slice(gpus=0).spawn("watcher", Peer)
    wait_until(lambda: watcher.watches.call_one().get(), what="the peer to wait")
    door.touch()
    with pytest.raises(ActorError, match="DeadlockError"):
        waiting.get()
    (failure,) = faults.wait_for(1)
    assert "in __init__(), waits for peer.alive()" in failure.report()
    assert_alive([peer])


# what looks like a deadlock, and is none


def test_a_chain_that_is_merely_slow_is_left_alone(spawn: Spawn, tmp_path: Path) -> None:
    door = tmp_path / "door"
    with configured(deadlock_check_interval=INTERVAL):
        procs = spawn(2)
    first: Any = procs.slice(gpus=0).spawn("first", Relay)
    second: Any = procs.slice(gpus=1).spawn("second", Relay)
    gate = procs.slice(gpus=0).spawn("gate", Gate)
    slow = first.through.call_one([second, gate], str(door))
    queued = second.through.call_one([gate], str(door))
    let_waits_be_looked_at(procs)
    door.touch()
    assert slow.get() == queued.get() == "through"


class Relay(Actor):
    @endpoint
    def through(self, others: list[Any], path: str) -> str:
        first, *rest = others
        return str(
            first.through.call_one(rest, path).get()
            if rest
            else first.wait_for_file.call_one(path).get()
        )


def test_actors_that_wait_for_each_other_in_concurrent_endpoints_are_left_alone(
    spawn: Spawn, tmp_path: Path
) -> None:
    door = tmp_path / "door"
    with configured(deadlock_check_interval=INTERVAL):
        procs = spawn(2)
    peers = ring(procs, [ConcurrentPeer, ConcurrentPeer])
    there = peers[0].hand_on.call_one(5, str(door))
    back = peers[1].hand_on.call_one(4, str(door))
    let_waits_be_looked_at(procs)
    assert_alive(peers)
    door.touch()
    assert there.get() == back.get() == "the end"


def test_a_call_that_a_third_actor_answers_is_left_alone(spawn: Spawn, tmp_path: Path) -> None:
    door = tmp_path / "door"
    with configured(deadlock_check_interval=INTERVAL):
        procs = spawn(2)
    clerk: Any = procs.slice(gpus=0).spawn("clerk", Clerk)
    desk: Any = procs.slice(gpus=0).spawn("desk", Desk, clerk, str(door))
    asker: Any = procs.slice(gpus=1).spawn("asker", Peer)
    asker.meet.call_one(desk).get()
    desk.meet.call_one(asker).get()
    answer = asker.wait_for_desk.call_one()
    let_waits_be_looked_at(procs)
    door.touch()
    assert answer.get() == "answered by the clerk"
    assert_alive([asker, desk])


@pytest.mark.processes("measures time that passes")
@pytest.mark.parametrize("kind", [Peer, AsyncPeer])
def test_a_circle_that_a_timeout_breaks_is_left_alone(spawn: Spawn, kind: type[Any]) -> None:
    with configured(deadlock_check_interval=INTERVAL):
        procs = spawn(2)
    peers = ring(procs, [Peer, kind])
    started = time.monotonic()
    assert peers[0].wait_for_timeout_of_next.call_one(1.0).get() == "out of time"
    assert time.monotonic() - started >= 1.0
    assert_alive(peers)


@pytest.mark.skipif(not hasattr(asyncio, "timeout"), reason="since Python 3.11")
def test_an_await_in_reach_of_a_timeout_is_left_alone(spawn: Spawn) -> None:
    class Limited(AsyncPeer):
        @endpoint
        async def hand_on_with_timeout(self, seconds: float) -> str:
            try:
                # since Python 3.11
                async with asyncio.timeout(seconds):  # type: ignore[attr-defined]
                    return str(await self.next.hand_on.call_one(0))
            except TimeoutError:
                return "out of time"

    with configured(deadlock_check_interval=INTERVAL):
        peers = ring(spawn(2), [Peer, Limited])
    assert peers[0].wait_for_timeout_of_next.call_one(1.0).get() == "out of time"
    assert_alive(peers)


def test_an_actor_whose_own_thread_waits_is_left_alone(spawn: Spawn, tmp_path: Path) -> None:
    door = tmp_path / "door"
    with configured(deadlock_check_interval=INTERVAL):
        procs = spawn(2)
    peers = ring(procs, [Peer, Peer])
    port, answers = open_channel()
    peers[0].hand_on_in_thread.call_one(1, port).get()
    # the answer to that thread queues behind this
    busy = peers[0].wait_for_file.call_one(str(door))
    let_waits_be_looked_at(procs)
    door.touch()
    busy.get()
    assert answers.recv().get() == "the end"


# what it costs


def test_a_process_in_which_nothing_waits_has_no_timer(spawn: Spawn) -> None:
    with configured(deadlock_check_interval=INTERVAL):
        peers = ring(spawn(2), [Peer, Peer])
    hand_round(peers)
    wait_until(
        lambda: not any(peer.watches.call_one().get() for peer in peers),
        what="the timers to go",
    )


@pytest.mark.processes("measures time that passes")
def test_an_interval_of_zero_never_looks(spawn: Spawn) -> None:
    with configured(
        deadlock_check_interval=0, cleanup_timeout="100ms", process_exit_timeout="100ms"
    ):
        procs = spawn(2)
        peers = ring(procs, [Peer, Peer])
        stuck = peers[0].hand_on.call_one(2)
        with configured(deadlock_check_interval=INTERVAL):
            let_waits_be_looked_at(spawn(2))
        assert not stuck.done()
        procs.stop().get()
        assert stuck.exception() is not None
