"""Each adverb names the rank that died, where a neighbour in a collective answers first."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from helpers.processes import agent_of
from monarch.actor import Actor, ActorError, Future, SupervisionError, current_rank, endpoint

if TYPE_CHECKING:
    from conftest import Spawn
    from helpers.faults import Faults

VICTIM = 1
CLOSED = "[gloo/transport/tcp/pair.cc:537] Connection closed by peer"


class Neighbour(Actor):
    """What gloo makes of the death of a peer, without torch."""

    @endpoint
    def pid(self) -> int:
        return os.getpid()

    @endpoint
    def reduce(self, victim: int) -> str:
        with suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
        raise RuntimeError(CLOSED)

    @endpoint
    def reduce_while_the_agent_is_late(self, victim: int) -> str:
        agent = agent_of(os.getpid())
        os.kill(agent, signal.SIGSTOP)
        os.kill(victim, signal.SIGKILL)
        threading.Timer(0.5, os.kill, (agent, signal.SIGCONT)).start()
        raise RuntimeError(CLOSED)

    @endpoint
    def lose(self, rank: int) -> int:
        if rank == current_rank().rank:
            raise RuntimeError(CLOSED)
        return rank


def by_call(mates: Any, victim: int) -> Future[Any]:
    future: Future[Any] = mates.slice(gpus=[0, 2]).reduce.call(victim)
    return future


def by_call_one(mates: Any, victim: int) -> Future[Any]:
    future: Future[Any] = mates.slice(gpus=0).reduce.call_one(victim)
    return future


def by_choose(mates: Any, victim: int) -> Future[Any]:
    future: Future[Any] = mates.slice(gpus=[0, 2]).reduce.choose(victim)
    return future


def by_stream(mates: Any, victim: int) -> Future[Any]:
    future: Future[Any] = next(iter(mates.slice(gpus=[0, 2]).reduce.stream(victim)))
    return future


@pytest.mark.parametrize("adverb", [by_call, by_call_one, by_choose, by_stream])
def test_an_error_of_the_network_gives_way_to_the_death_behind_it(
    spawn: Spawn, faults: Faults, adverb: Callable[[Any, int], Future[Any]]
) -> None:
    mates = spawn(3).spawn("mates", Neighbour)
    victim = mates.pid.call().get().values()[VICTIM]
    with pytest.raises(SupervisionError, match=r"(?s)\[1\] has failed.*SIGKILL") as raised:
        adverb(mates, victim).get()
    assert not isinstance(raised.value, ActorError)
    assert isinstance(raised.value.__cause__, ActorError)
    assert "Connection closed by peer" in str(raised.value.__cause__)
    faults.wait_for(1)


@pytest.mark.processes("an agent that stands still for a moment, as on a busy machine")
def test_the_death_is_named_where_the_agent_tells_it_late(spawn: Spawn, faults: Faults) -> None:
    mates = spawn(3).spawn("mates", Neighbour)
    victim = mates.pid.call().get().values()[VICTIM]
    with pytest.raises(SupervisionError, match=r"(?s)\[1\] has failed.*SIGKILL"):
        mates.slice(gpus=0).reduce_while_the_agent_is_late.call_one(victim).get()
    faults.wait_for(1)


def test_each_future_of_a_stream_has_its_own_cause(spawn: Spawn, faults: Faults) -> None:
    mates = spawn(3).spawn("mates", Neighbour)
    victim = mates.pid.call().get().values()[VICTIM]
    causes: dict[int, BaseException | None] = {}
    for future in mates.reduce.stream(victim):
        with pytest.raises(SupervisionError, match=r"\[1\] has failed") as raised:
            future.get()
        assert future.rank is not None
        causes[future.rank.rank] = raised.value.__cause__
    assert causes.keys() == {0, 1, 2}
    assert causes[VICTIM] is None
    for rank in (0, 2):
        assert f"{{'gpus': {rank}/3}}" in str(causes[rank])
    faults.wait_for(1)


def test_a_stream_without_a_death_gives_the_error_of_the_network(spawn: Spawn) -> None:
    mates = spawn(2).spawn("mates", Neighbour)
    outcomes = {}
    for future in mates.lose.stream(VICTIM):
        try:
            value: object = future.get()
        except ActorError as error:
            value = CLOSED in str(error)
        assert future.rank is not None
        outcomes[future.rank.rank] = value
    assert outcomes == {0: VICTIM, VICTIM: True}
