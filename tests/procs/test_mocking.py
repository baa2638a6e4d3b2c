"""`patch_actor`: another class in place of the real one, here and in procs made meanwhile."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from helpers.mocked import Fake, Original, OtherFake, Real, Replacement, Spawns
from monarch.actor import Actor, endpoint, patch_actor, this_proc

if TYPE_CHECKING:
    from conftest import Spawn


def test_the_mock_is_spawned_in_place_of_the_class_and_gets_its_arguments(spawn: Spawn) -> None:
    procs = spawn(2)
    with patch_actor(Real, Fake):
        assert procs.spawn("r", Real, 3).who.call().get().values() == ["fake 3", "fake 3"]
    assert procs.spawn("r", Real, 3).who.call().get().values() == ["real 3", "real 3"]


def test_actors_spawned_before_the_patch_stay_what_they_are(spawn: Spawn) -> None:
    procs = spawn(1)
    before = procs.spawn("r", Real)
    with patch_actor(Real, Fake):
        assert before.who.call_one().get() == "real 0"


def test_the_inner_of_two_patches_wins_and_leaving_restores_the_outer(spawn: Spawn) -> None:
    procs = spawn(1)
    with patch_actor(Real, Fake):
        with patch_actor(Real, OtherFake):
            assert procs.spawn("r", Real).who.call_one().get() == "other fake"
        assert procs.spawn("r", Real).who.call_one().get() == "fake 0"
    assert procs.spawn("r", Real).who.call_one().get() == "real 0"


def test_patch_actor_works_as_a_decorator_and_as_an_async_context_manager(spawn: Spawn) -> None:
    procs = spawn(1)

    @patch_actor(Real, Fake)
    def decorated() -> str:
        return procs.spawn("r", Real).who.call_one().get()

    @patch_actor(Real, Fake)
    async def decorated_async() -> str:
        return await procs.spawn("r", Real).who.call_one()

    async def managed() -> str:
        async with patch_actor(Real, Fake):
            return await procs.spawn("r", Real).who.call_one()

    assert decorated() == "fake 0"
    assert asyncio.run(decorated_async()) == "fake 0"
    assert asyncio.run(managed()) == "fake 0"
    assert procs.spawn("r", Real).who.call_one().get() == "real 0"


@pytest.mark.both
def test_procs_made_during_a_patch_use_it_for_what_their_own_actors_spawn(spawn: Spawn) -> None:
    with patch_actor(Original, Replacement):
        procs = spawn(1)
        assert procs.spawn("s", Spawns).who.call_one().get() == "replacement"
    assert spawn(1).spawn("s", Spawns).who.call_one().get() == "original"


def test_a_patch_is_undone_when_its_block_raises(spawn: Spawn) -> None:
    class Stop(Exception):
        pass

    procs = spawn(1)
    try:
        with patch_actor(Real, Fake):
            raise Stop
    except Stop:
        pass
    assert procs.spawn("r", Real).who.call_one().get() == "real 0"


def test_a_mock_can_run_in_the_process_of_the_test() -> None:
    calls: list[Any] = []

    class Notes(Actor):
        @endpoint
        def who(self) -> str:
            calls.append("called")
            return "noted"

    with patch_actor(Real, Notes):
        actor = this_proc().spawn("r", Real)
    assert actor.who.call_one().get() == "noted"
    actor.stop().get()
