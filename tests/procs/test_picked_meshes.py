"""Meshes of some ranks, in no regular steps: they are called, spawned on, sliced, sent and
supervised like any other.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from helpers.actors import Echo, Ranks
from monarch.actor import Actor, Point, SupervisionError, current_rank, endpoint

if TYPE_CHECKING:
    from conftest import Spawn
    from helpers.faults import Faults


class Where(Actor):
    @endpoint
    def rank_of_spawn_and_message(self) -> tuple[int, int, dict[str, int]]:
        from monarch.actor import context

        here = current_rank()
        return context().actor_instance.rank.rank, here.rank, dict(here.extent)

    @endpoint
    def ask(self, others: Any) -> list[int]:
        return [value[0] for value in others.rank_of_spawn_and_message.call().get().values()]


def test_calls_reach_the_ranks_that_were_picked_in_their_order(spawn: Spawn) -> None:
    where = spawn({"hosts_": 2, "gpus": 3}).spawn("where", Where)
    picked = where.slice(gpus=[2, 0])
    answers = picked.rank_of_spawn_and_message.call().get()
    assert answers.extent == picked.extent
    assert [value[0] for value in answers.values()] == [2, 0, 5, 3]
    assert [value[1:] for value in answers.values()] == [
        (rank, {"hosts_": 2, "gpus": 2}) for rank in range(4)
    ]
    assert where.select([4, 1, 0]).slice(rank=0).rank_of_spawn_and_message.call_one().get()[0] == 4
    assert where.slice(hosts_=0, gpus=0).ask.call_one(where.without([0, 2])).get() == [1, 3, 4, 5]


def test_actors_can_be_spawned_on_procs_that_were_picked(spawn: Spawn) -> None:
    procs = spawn(4)
    pids = procs.spawn("r", Ranks).pid.call().get().values()
    picked = procs.slice(gpus=[0, 1, 3])
    again = picked.without([1])
    assert picked.spawn("r", Ranks).pid.call().get().values() == [pids[0], pids[1], pids[3]]
    assert again.spawn("r", Ranks).pid.call().get().values() == [pids[0], pids[3]]
    assert picked == procs.slice(gpus=[0, 1, 3]) != procs
    assert procs.select([1, 2]) == procs.slice(gpus=slice(1, 3))
    with pytest.raises(ValueError, match="regular steps"):
        picked._check_strided()


def test_a_mesh_without_the_ranks_that_an_error_names_goes_on(spawn: Spawn, faults: Faults) -> None:
    echo = spawn(4).spawn("echo", Echo)
    pids = echo.pid.call().get().values()
    os.kill(pids[1], signal.SIGKILL)
    (failure,) = faults.wait_for(1)
    with pytest.raises(SupervisionError) as caught:
        echo.say.options(wait_for_all=True).call(1).get()
    rest = echo.without(caught.value.by_rank)
    assert rest.pid.call().get().values() == [pids[0], pids[2], pids[3]]
    assert echo.without(failure.ranks).pid.call().get().values() == [pids[0], pids[2], pids[3]]
    os.kill(pids[3], signal.SIGKILL)
    faults.wait_for(2)
    with pytest.raises(SupervisionError) as caught:
        rest.say.options(wait_for_all=True).call(1).get()
    assert list(caught.value.by_rank) == [Point(2, rest.extent)]
    assert rest.without(caught.value.by_rank).pid.call().get().values() == [pids[0], pids[2]]


def test_an_endpoint_may_be_called_as_a_method_that_only_our_meshes_have(spawn: Spawn) -> None:
    class Database(Actor):
        @endpoint
        def select(self, what: str) -> str:
            return f"selected {what}"

    database: Any = spawn(2).spawn("db", Database)
    assert database.select.call("x").get().values() == ["selected x"] * 2
    assert database.slice(gpus=1).select is not database.select
    assert database.without([0]).select.call_one("y").get() == "selected y"
