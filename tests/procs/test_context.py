"""Who am I: ranks, names, creators, in every thread and task that acts for an actor."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

import pytest

from helpers.actors import Echo, Ranks
from monarch.actor import (
    Actor,
    Point,
    context,
    current_actor_name,
    current_rank,
    current_size,
    endpoint,
    this_host,
    this_proc,
)

pytestmark = pytest.mark.both

if TYPE_CHECKING:
    from conftest import Spawn


def test_the_client_is_the_root_and_has_no_creator() -> None:
    instance = context().actor_instance
    assert instance.name == "root"
    assert instance.actor_id.actor_name == "client"
    assert instance.actor_id.is_root
    assert instance.class_name is None
    assert instance.creator is None
    assert dict(context().message_rank) == {}
    assert dict(current_rank()) == {}
    assert current_size() == {}


def test_every_thread_of_the_client_is_the_same_root() -> None:
    ids: list[str] = [str(context().actor_instance.actor_id)]
    threads = [
        threading.Thread(target=lambda: ids.append(str(context().actor_instance.actor_id)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(ids)) == 1


def test_an_instance_keeps_its_spawn_name_and_its_class(spawn: Spawn) -> None:
    class Named(Actor):
        @endpoint
        def names(self) -> tuple[str, str | None]:
            instance = context().actor_instance
            return instance.name, instance.class_name

    name, class_name = spawn(1).spawn("my actor!", Named).names.call_one().get()
    assert name == "my actor!"
    assert class_name is not None
    assert class_name.endswith("Named")


def test_a_name_may_be_empty_and_may_be_used_twice(spawn: Spawn) -> None:
    procs = spawn(1)
    first = procs.spawn("", Echo)
    second = procs.spawn("", Echo)
    assert first.say.call_one(1).get() == 1
    assert second.say.call_one(2).get() == 2


def test_the_rank_of_a_message_is_over_what_was_addressed(spawn: Spawn) -> None:
    ranks = spawn({"a": 2, "b": 3}).spawn("r", Ranks)
    assert ranks.slice(a=1, b=2).message_rank.call_one().get() == {}
    assert ranks.slice(b=slice(1, 3)).message_rank.call().get().values() == [
        {"a": a, "b": b} for a in range(2) for b in range(2)
    ]
    assert ranks.slice(b=slice(1, 3)).instance_rank.call().get().values() == [
        {"a": a, "b": b} for a in range(2) for b in (1, 2)
    ]
    assert ranks.flatten("n").message_rank.call().get().values() == [{"n": n} for n in range(6)]
    assert ranks.at_start.call().get().values() == [
        {"a": a, "b": b} for a in range(2) for b in range(3)
    ]


def test_current_rank_is_a_point_that_can_be_sent_and_hashed(spawn: Spawn) -> None:
    points = spawn({"a": 2}).spawn("r", Ranks).point.call().get().values()
    assert all(isinstance(point, Point) for point in points)
    assert [point["a"] for point in points] == [0, 1]
    assert points[1].rank == 1
    assert len({points[0], points[1], points[0]}) == 2


def test_an_actor_addresses_its_neighbour_by_its_own_rank(spawn: Spawn) -> None:
    class Neighbour(Actor):
        @endpoint
        def ask(self, ranks: Ranks) -> tuple[dict[str, int], int]:
            neighbour = ranks.slice(**current_rank())
            return (
                neighbour.instance_rank.call_one().get(),
                neighbour.pid.call_one().get() - os.getpid(),
            )

        @endpoint
        def ask_by_instance(self, ranks: Ranks) -> dict[str, int]:
            return ranks.slice(**context().actor_instance.rank).instance_rank.call_one().get()

    procs = spawn({"a": 2, "b": 2})
    ranks = procs.spawn("r", Ranks)
    neighbours = procs.spawn("n", Neighbour)
    for point, (rank, difference) in neighbours.ask.call(ranks).get():
        assert rank == dict(point)
        assert difference == 0
    assert neighbours.slice(a=1).ask_by_instance.call(ranks).get().values() == [
        {"a": 1, "b": 0},
        {"a": 1, "b": 1},
    ]


def test_current_size_is_the_extent_of_the_message(spawn: Spawn) -> None:
    class Sized(Actor):
        @endpoint
        def extent_of_message(self) -> dict[str, int]:
            return dict(current_size())

    sized = spawn({"a": 2, "b": 2}).spawn("s", Sized)
    assert sized.slice(a=0).extent_of_message.call().get().values() == [{"b": 2}, {"b": 2}]


def test_the_actor_name_is_an_address_that_differs_for_each_rank(spawn: Spawn) -> None:
    class Named(Actor):
        @endpoint
        def address(self) -> tuple[str, str]:
            return current_actor_name(), str(context().actor_instance.actor_id)

    addresses = spawn(2).spawn("named", Named).address.call().get().values()
    assert len({address for address, _ in addresses}) == 2
    assert all(address == actor_id for address, actor_id in addresses)


def test_the_creator_of_an_actor_is_the_actor_that_spawned_it(spawn: Spawn) -> None:
    class Child(Actor):
        @endpoint
        def creator(self) -> Any:
            return context().actor_instance.creator

    class Parent(Actor):
        @endpoint
        def creator_of_child(self) -> tuple[str, dict[str, int], str]:
            creator = this_proc().spawn("child", Child).creator.call_one().get()
            return creator.name, dict(creator.rank), creator.creator.name

    procs = spawn(2)
    assert procs.slice(gpus=0).spawn("c", Child).creator.call_one().get().name == "root"
    assert procs.spawn("parent", Parent).slice(gpus=1).creator_of_child.call_one().get() == (
        "parent",
        {"gpus": 1},
        "root",
    )


def test_a_plain_thread_in_an_actor_acts_as_that_actor(spawn: Spawn) -> None:
    class Threads(Actor):
        @endpoint
        def in_a_thread(self, echo: Echo) -> tuple[str, str, Any, bool]:
            found: list[Any] = []

            def work() -> None:
                found.append(context().actor_instance.name)
                found.append(str(context().actor_instance.actor_id))
                found.append(echo.say.call_one("from a thread").get())

            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
            return found[0], found[1], found[2], found[1] == str(context().actor_instance.actor_id)

    procs = spawn(1)
    echo = procs.spawn("e", Echo)
    name, _, answer, same = procs.spawn("threaded", Threads).in_a_thread.call_one(echo).get()
    assert name == "threaded"
    assert same
    assert answer == "from a thread"


def test_what_a_plain_thread_in_an_actor_spawns_belongs_to_the_actor(spawn: Spawn) -> None:
    class Threads(Actor):
        @endpoint
        def spawn_in_a_thread(self) -> int:
            pids: list[int] = []

            def work() -> None:
                pids.append(
                    this_host()
                    .spawn_procs(per_host={"n": 1})
                    .spawn("e", Echo)
                    .pid.call()
                    .get()
                    .get(0)
                )

            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
            return pids[0]

    from helpers.waiting import is_alive, wait_gone

    actor = spawn(1).spawn("threaded", Threads)
    pid = actor.spawn_in_a_thread.call_one().get()
    assert is_alive(pid)
    actor.stop().get()
    wait_gone(pid)


def test_two_actors_of_one_proc_keep_their_contexts_apart_in_their_threads(spawn: Spawn) -> None:
    class Threads(Actor):
        @endpoint
        def name_in_a_thread(self) -> str:
            found: list[str] = []
            thread = threading.Thread(target=lambda: found.append(context().actor_instance.name))
            thread.start()
            thread.join()
            return found[0]

    procs = spawn(1)
    actors = [procs.spawn(f"actor{i}", Threads) for i in range(3)]
    assert [actor.name_in_a_thread.call_one().get() for actor in actors] == [
        "actor0",
        "actor1",
        "actor2",
    ]


def test_contexts_can_not_be_sent(spawn: Spawn) -> None:
    echo = spawn(1).spawn("e", Echo)
    for value in (context(), context().actor_instance):
        with pytest.raises(TypeError):
            echo.say.call_one(value)


def test_the_text_of_an_instance_names_the_path_of_its_creators(spawn: Spawn) -> None:
    class Says(Actor):
        @endpoint
        def text(self) -> str:
            return str(context().actor_instance)

    text = spawn(2).spawn("says", Says).slice(gpus=1).text.call_one().get()
    assert "root" in text
    assert "says" in text
    assert "gpus" in text


def test_the_procs_of_an_instance_can_be_spawned_on(spawn: Spawn) -> None:
    class Spawns(Actor):
        @endpoint
        def pids(self) -> tuple[int, int, int]:
            instance = context().actor_instance
            own = instance.proc.spawn("a", Echo).pid.call_one().get()
            every = instance.proc_mesh.spawn("b", Echo).pid.call().get()
            return os.getpid(), own, len(every)

    own, spawned, count = spawn(2).spawn("s", Spawns).slice(gpus=0).pids.call_one().get()
    assert own == spawned
    assert count == 2


def test_an_actor_has_a_logger_named_after_its_class(spawn: Spawn) -> None:
    class Logs(Actor):
        @endpoint
        def logger_name(self) -> tuple[str, bool]:
            return self.logger.name, self.logger is self.logger

    name, same = spawn(1).spawn("l", Logs).logger_name.call_one().get()
    assert "Logs" in name
    assert same
