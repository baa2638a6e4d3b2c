"""`get_or_spawn_controller`: one actor for a name, in the client's process, for everybody."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from helpers.actors import Counter, Echo
from helpers.scripts import run_script
from helpers.waiting import wait_until
from monarch.actor import (
    Actor,
    ActorError,
    SupervisionError,
    context,
    endpoint,
    get_or_spawn_controller,
)

if TYPE_CHECKING:
    from conftest import Spawn

# A controller lives as long as its client, with its thread.
pytestmark = pytest.mark.may_keep("threads", "descriptors")


def asks() -> Any:
    class Asks(Actor):
        @endpoint
        def add(self, name: str, by: int) -> int:
            return get_or_spawn_controller(name, Counter, 100).get().add.call_one(by).get()

        @endpoint
        def pid_of(self, name: str) -> int:
            return get_or_spawn_controller(name, Echo).get().pid.call_one().get()

    return Asks


def test_a_proc_may_be_the_first_that_asks() -> None:
    result = run_script("""
        import monarch.actor

        class Doubles(monarch.actor.Actor):
            @monarch.actor.endpoint
            def double(self, number: int) -> int:
                return 2 * number

        class Asks(monarch.actor.Actor):
            @monarch.actor.endpoint
            def ask(self) -> int:
                found = monarch.actor.get_or_spawn_controller("doubles", Doubles)
                return found.get().double.call_one(3).get()

        asks = monarch.actor.this_host().spawn_procs().spawn("asks", Asks)
        print(asks.ask.call_one().get())
        """)
    assert result.stdout == "6\n", str(result)


def test_the_client_and_remote_actors_get_the_same_controller(spawn: Spawn) -> None:
    counter = get_or_spawn_controller("shared", Counter, 1).get()
    assert counter.get.call_one().get() == 1
    remote = spawn(2).spawn("asks", asks())
    assert sorted(remote.add.call("shared", 10).get().values()) == [11, 21]
    assert get_or_spawn_controller("shared", Counter, 500).get().add.call_one(0).get() == 21


def test_a_controller_runs_in_the_client_also_when_an_actor_asks_first(
    spawn: Spawn,
) -> None:
    remote = spawn(2).spawn("asks", asks())
    assert remote.pid_of.call("asked_by_an_actor_first").get().values() == [os.getpid()] * 2


def test_a_controller_has_no_dimensions_and_bears_its_name() -> None:
    class Named(Actor):
        @endpoint
        def name(self) -> tuple[str, dict[str, int]]:
            return context().actor_instance.name, dict(context().actor_instance.rank)

    controller = get_or_spawn_controller("a_name", Named).get()
    assert dict(controller.extent) == {}
    assert controller.name.call_one().get() == ("a_name", {})


def test_a_later_call_with_another_class_gets_the_first_one() -> None:
    first = get_or_spawn_controller("first_class_wins", Counter, 3).get()
    second: Any = get_or_spawn_controller("first_class_wins", Echo).get()
    assert second.get.call_one().get() == 3
    assert first.get.call_one().get() == 3


def test_racing_first_calls_construct_one_controller() -> None:
    def ask(_: int) -> int:
        return get_or_spawn_controller("raced_for", Counter).get().add.call_one(1).get()

    with ThreadPoolExecutor(16) as pool:
        assert sorted(pool.map(ask, range(16))) == list(range(1, 17))


def test_a_controller_may_create_another_one() -> None:
    class Outer(Actor):
        def __init__(self) -> None:
            self.inner = get_or_spawn_controller("inner_of_init", Counter, 7).get()

        @endpoint
        def ask(self) -> tuple[int, int]:
            other = get_or_spawn_controller("inner_of_endpoint", Counter, 8).get()
            return self.inner.get.call_one().get(), other.get.call_one().get()

    assert get_or_spawn_controller("outer", Outer).get().ask.call_one().get() == (7, 8)


def test_a_controllers_failure_skips_the_hook_and_reaches_its_callers() -> None:
    class Fragile(Actor):
        @endpoint
        def fail(self) -> None:
            raise ValueError("the controller broke")

    controller = get_or_spawn_controller("fragile", Fragile).get()
    controller.fail.broadcast()
    with pytest.raises(SupervisionError):
        controller.fail.call_one().get()

    def refused() -> bool:
        try:
            get_or_spawn_controller("fragile", Fragile).get()
        except (ActorError, SupervisionError) as e:
            return "the controller broke" in str(e)
        return False

    wait_until(refused, what="asking for the failed controller to raise its error")


def test_the_failure_of_one_controller_does_not_prevent_new_ones_nor_harm_others() -> None:
    class Fragile(Actor):
        @endpoint
        def fail(self) -> None:
            raise ValueError("broke too")

    healthy = get_or_spawn_controller("healthy", Echo).get()
    fragile = get_or_spawn_controller("fragile_too", Fragile).get()
    fragile.fail.broadcast()
    with pytest.raises(SupervisionError):
        fragile.fail.call_one().get()
    assert get_or_spawn_controller("born_after_a_failure", Echo).get().say.call_one(1).get() == 1
    assert healthy.say.call_one(2).get() == 2


def test_a_controller_whose_constructor_raises_is_an_error_for_its_users() -> None:
    class NeverBorn(Actor):
        def __init__(self) -> None:
            raise ValueError("not born")

        @endpoint
        def work(self) -> None: ...

    with pytest.raises((ActorError, SupervisionError), match="not born"):
        get_or_spawn_controller("never_born", NeverBorn).get().work.call_one().get()
