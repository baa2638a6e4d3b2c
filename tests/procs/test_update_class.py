"""An actor class is edited while its actors run: they take the new code, and keep what they
hold.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

import pytest

from monarch.actor import (
    Actor,
    ActorError,
    ActorMesh,
    Channel,
    DeadlockError,
    SupervisionError,
    concurrent_endpoint,
    context,
    endpoint,
)
from monarch.programs import ask
from monarch.supervision import OneForOne

if TYPE_CHECKING:
    from conftest import Spawn
    from helpers.faults import Faults

pytestmark = pytest.mark.processes("each process has its own classes")

LIMIT = 60


def first() -> Any:
    class Counter(Actor):
        def __init__(self, start: int) -> None:
            self.count = start

        def name(self) -> str:
            return "first"

        @endpoint
        def add(self) -> tuple[str, int]:
            self.count += 1
            return self.name(), self.count

        @endpoint
        def when_told(self, asks: Any) -> str:
            told, answer = Channel[None].open()
            asks.send(told)
            answer.recv().get(timeout=LIMIT)
            return self.name()

        @endpoint
        def exit(self) -> None:
            os._exit(3)

    return Counter


def second() -> Any:
    class Counter(Actor):
        def __init__(self, start: int) -> None:
            self.count = 100 + start

        def name(self) -> str:
            return "second"

        @endpoint
        def add(self, by: int = 10) -> tuple[str, int]:
            self.count += by
            return self.name(), self.count

        @endpoint
        def twice(self) -> int:
            return 2 * self.count

        @endpoint
        def class_name(self) -> str | None:
            return context().actor_instance.class_name

        @endpoint
        def exit(self) -> None:
            os._exit(3)

    return Counter


def edited() -> Any:
    class Edited(Actor):
        @endpoint
        def names(self) -> Any:
            here: Any = context()
            return here.actor_instance.class_name, [
                each for each in here._cell.begun if each[0] != "\0"
            ]

    return Edited


class Foreman(Actor):
    """Has a mesh that it does not own."""

    @endpoint
    def update(self, workers: Any, cls: Any) -> list[int]:
        workers.update_class(cls).get(timeout=LIMIT)
        return list(workers.twice.call().get(timeout=LIMIT).values())

    @endpoint
    def update_itself(self, me: Any) -> None:
        me.update_class(type("Chief", (Foreman,), {})).get(timeout=LIMIT)


def end_each(mesh: Any) -> None:
    """Each rank, so that each has ended."""
    for rank in range(mesh.size()):
        with pytest.raises(SupervisionError):
            mesh.slice(gpus=rank).exit.call_one().get(timeout=LIMIT)


def test_actors_take_the_new_code_and_keep_their_state(spawn: Spawn) -> None:
    mesh = spawn(2).spawn("counter", first(), 0)
    assert mesh.add.call().get(timeout=LIMIT).values() == [("first", 1), ("first", 1)]
    mesh.update_class(second()).get(timeout=LIMIT)
    assert mesh.add.call().get(timeout=LIMIT).values() == [("second", 11), ("second", 11)]
    assert mesh.add.call(by=1).get(timeout=LIMIT).values() == [
        ("second", 12),
        ("second", 12),
    ], "the new signature"
    assert mesh.twice.call().get(timeout=LIMIT).values() == [24, 24]
    with pytest.raises(AttributeError, match="no endpoint 'when_told'"):
        mesh.when_told


def test_a_slice_is_updated_alone(spawn: Spawn) -> None:
    mesh = spawn(2).spawn("counter", first(), 0)
    part = mesh.slice(gpus=1)
    part.update_class(second()).get(timeout=LIMIT)
    assert mesh.add.call().get(timeout=LIMIT).values() == [("first", 1), ("second", 10)]
    assert part.twice.call_one().get(timeout=LIMIT) == 20


def test_what_a_rank_handles_ends_with_the_old_code(spawn: Spawn) -> None:
    mesh = spawn(1).spawn("counter", first(), 0)
    port, asks = Channel[Any].open()
    answer = mesh.when_told.call_one(port)
    told = asks.recv().get(timeout=LIMIT)
    updated = mesh.update_class(second())
    told.send(None)
    assert answer.get(timeout=LIMIT) == "first"
    updated.get(timeout=LIMIT)
    assert mesh.add.call_one().get(timeout=LIMIT) == ("second", 10)


def test_a_rank_that_starts_again_has_the_new_class(spawn: Spawn) -> None:
    procs = spawn(2, restart=OneForOne(max_restarts=5, within=3600))
    mesh = procs.spawn("counter", first(), 1)
    part: Any = mesh.slice(gpus=0)
    part.update_class(second()).get(timeout=LIMIT)
    end_each(mesh)
    assert mesh.add.call().get(timeout=LIMIT).values() == [
        ("second", 111),
        ("first", 2),
    ], "the new __init__, too"
    named = part.class_name.call_one().get(timeout=LIMIT)
    assert named == f"{__name__}.second.<locals>.Counter", "as telemetry and admin have it, too"
    foreman = spawn(1).spawn("foreman", Foreman)
    assert foreman.update.call_one(mesh, second()).get(timeout=LIMIT) == [222, 4]
    end_each(mesh)
    assert mesh.add.call().get(timeout=LIMIT).values() == [
        ("second", 111),
        ("second", 111),
    ], "as its owner was told"


def waiter(name: str, mark: Any) -> Any:
    class Waiter(Actor):
        def __init__(self) -> None:
            self.events: dict[str, asyncio.Event] = {}
            self.running: list[str] = []

        def event(self, name: str) -> asyncio.Event:
            return self.events.setdefault(name, asyncio.Event())

        @mark  # type: ignore[untyped-decorator]
        async def wait(self, which: str) -> str:
            self.running.append(which)
            self.event(f"{which} runs").set()
            await self.event(which).wait()
            self.running.remove(which)
            return f"{name} {which}"

        @concurrent_endpoint
        async def runs(self, which: str) -> None:
            await self.event(f"{which} runs").wait()

        @concurrent_endpoint
        async def let(self, which: str) -> list[str]:
            self.event(which).set()
            return self.running

    return Waiter


def test_one_bound_holds_for_calls_of_the_old_and_the_new_class(spawn: Spawn) -> None:
    mesh: Any = spawn(1).spawn("waiter", waiter("first", endpoint(concurrency=1)))

    def call(which: str) -> Any:
        return mesh.wait.call_one(which)

    def let(which: str) -> Any:
        return mesh.let.call_one(which).get(timeout=LIMIT)

    a, b = call("a"), call("b")  # one waits
    mesh.runs.call_one("a").get(timeout=LIMIT)
    mesh.update_class(waiter("second", endpoint(concurrency=2))).get(timeout=LIMIT)
    mesh.runs.call_one("b").get(timeout=LIMIT)  # as two may run now
    c, d = call("c"), call("d")
    assert let("nothing") == ["a", "b"]
    let("b")
    assert b.get(timeout=LIMIT) == "second b", "it has begun after the update"
    mesh.runs.call_one("c").get(timeout=LIMIT)
    mesh.update_class(waiter("third", endpoint(concurrency=1))).get(timeout=LIMIT)
    let("a")
    assert a.get(timeout=LIMIT) == "first a"
    assert let("nothing") == ["c"], "fewer may run now, so nothing has taken its place"
    let("c")
    assert c.get(timeout=LIMIT) == "second c"
    mesh.runs.call_one("d").get(timeout=LIMIT)
    e, f = call("e"), call("f")
    mesh.update_class(waiter("fourth", concurrent_endpoint)).get(timeout=LIMIT)
    for which in "ef":
        mesh.runs.call_one(which).get(timeout=LIMIT)
    assert let("nothing") == ["d", "e", "f"]
    for which, answer in zip("def", [d, e, f], strict=True):
        let(which)
        assert answer.get(timeout=LIMIT) == f"{'third' if which == 'd' else 'fourth'} {which}"


def test_what_waits_for_a_bound_is_taken_up_in_order_where_there_is_none_any_more(
    spawn: Spawn,
) -> None:
    first: Any = waiter("first", endpoint(concurrency=1))

    class Plain(first):  # type: ignore[misc]
        @endpoint
        async def wait(self, which: str) -> list[str]:
            self.running.append(which)
            await asyncio.sleep(0)
            return [*self.running]

    mesh: Any = spawn(1).spawn("waiter", first)
    a, b, c = (mesh.wait.call_one(which) for which in "abc")
    mesh.runs.call_one("a").get(timeout=LIMIT)
    mesh.update_class(Plain).get(timeout=LIMIT)
    assert (b.get(timeout=LIMIT), c.get(timeout=LIMIT)) == (["a", "b"], ["a", "b", "c"])
    mesh.let.call_one("a").get(timeout=LIMIT)
    assert a.get(timeout=LIMIT) == "first a"


def test_a_class_that_lays_out_its_objects_otherwise_is_refused_by_all(spawn: Spawn) -> None:
    class Other(Actor, dict):  # type: ignore[type-arg]
        @endpoint
        def add(self) -> None: ...

    mesh = spawn(2).spawn("counter", first(), 0)
    with pytest.raises(ActorError, match=r"counter\.update_class failed(?s:.*)laid out otherwise"):
        mesh.update_class(Other).get(timeout=LIMIT)
    assert mesh.add.call().get(timeout=LIMIT).values() == [("first", 1), ("first", 1)]


def test_what_can_not_be_taken_is_refused_at_the_call(
    spawn: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Async(Actor):
        @endpoint
        async def add(self) -> None: ...

    class Taken(Actor):
        @endpoint
        def slice(self) -> None: ...

    mesh = spawn(1).spawn("foreman", Foreman)
    with pytest.raises(ValueError, match="were `def` and are `async def`"):
        mesh.update_class(Async)
    with pytest.raises(ValueError, match="collides with an endpoint name: slice"):
        mesh.update_class(Taken)
    with pytest.raises(ValueError, match="is the class that they run; define it anew"):
        mesh.update_class(Foreman)
    with pytest.raises(TypeError, match="a subclass of monarch.actor.Actor, got 3"):
        mesh.update_class(3)  # type: ignore[arg-type]
    again = type("Foreman", (Actor,), {**vars(Foreman)})
    monkeypatch.setitem(globals(), "Foreman", again)  # as when its module is loaded again here
    with pytest.raises(ValueError, match="auto_reload=True"):
        mesh.update_class(again)


def test_of_updates_in_flight_the_one_begun_last_is_what_ranks_and_handle_have(
    spawn: Spawn,
) -> None:
    mesh = spawn(2).spawn("counter", first(), 0)
    for start in range(0, 220, 22):
        updates = [mesh.update_class(first()), mesh.update_class(second())]
        for update in updates:
            update.get(timeout=LIMIT)
        assert mesh.twice.call().get(timeout=LIMIT).values() == [2 * start] * 2
        assert mesh.add.call(by=22).get(timeout=LIMIT).values() == [("second", start + 22)] * 2


def test_a_rank_that_ends_after_it_was_asked_takes_it_when_it_is_back(
    spawn: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    mesh = spawn(2, restart=OneForOne(max_restarts=5, within=3600)).spawn("counter", first(), 0)

    def tell(*args: Any) -> Any:
        mesh.slice(gpus=1).exit.broadcast()
        return ask(*args)

    monkeypatch.setattr("monarch.sync.update.ask", tell)
    mesh.update_class(second()).get(timeout=LIMIT)
    assert [name for name, _ in mesh.add.call().get(timeout=LIMIT).values()] == ["second", "second"]


def test_an_endpoint_looked_up_while_the_class_changes_is_not_kept(
    spawn: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    mesh: Any = spawn(1).spawn("counter", first(), 0)
    is_set = ActorMesh.__setattr__

    def look_up(self: Any, name: str, value: object) -> None:
        assert mesh.add.name  # as another thread may
        is_set(self, name, value)
        assert mesh.add.name

    monkeypatch.setattr(ActorMesh, "__setattr__", look_up)
    mesh.update_class(second()).get(timeout=LIMIT)
    assert mesh.add.call_one(by=5).get(timeout=LIMIT) == ("second", 5)


def test_programs_see_the_class_and_no_method_of_ours(spawn: Spawn) -> None:
    mesh = spawn(1).spawn("counter", first(), 0)
    mesh.update_class(edited()).get(timeout=LIMIT)
    assert mesh.names.call_one().get(timeout=LIMIT) == (
        f"{__name__}.edited.<locals>.Edited",
        ["names"],
    )


def test_none_is_updated_where_one_is_gone_for_good(spawn: Spawn, faults: Faults) -> None:
    mesh = spawn(2).spawn("counter", first(), 0)
    with pytest.raises(SupervisionError):
        mesh.slice(gpus=1).exit.call_one().get(timeout=LIMIT)
    with pytest.raises(SupervisionError):
        mesh.update_class(second()).get(timeout=LIMIT)
    rest = mesh.slice(gpus=0)
    assert rest.add.call_one().get(timeout=LIMIT) == ("first", 1)
    rest.update_class(second()).get(timeout=LIMIT)
    assert rest.add.call_one().get(timeout=LIMIT) == ("second", 11)
    faults.wait_for(1)


def test_an_actor_that_would_wait_for_its_own_update_is_told_so(spawn: Spawn) -> None:
    mesh = spawn(1).spawn("foreman", Foreman)
    with pytest.raises(ActorError) as caught:
        mesh.update_itself.call_one(mesh).get(timeout=LIMIT)
    assert isinstance(caught.value.exception, DeadlockError)


def test_an_endpoint_of_that_name_is_an_endpoint_still(spawn: Spawn) -> None:
    class Registry(Actor):
        @endpoint
        def update_class(self, name: str) -> str:
            return name

    registry: Any = spawn(1).spawn("registry", Registry)
    assert registry.update_class.call_one("mine").get(timeout=LIMIT) == "mine"
