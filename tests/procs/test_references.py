"""Meshes, ports, endpoint handles and plain values as arguments and as results."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from helpers.actors import Counter, Echo, Ranks, open_channel
from monarch.actor import (
    Actor,
    Channel,
    Endpoint,
    Extent,
    HostMesh,
    Point,
    Port,
    ProcMesh,
    ValueMesh,
    context,
    endpoint,
    this_host,
)

pytestmark = pytest.mark.both

if TYPE_CHECKING:
    from conftest import Spawn


def uses_meshes() -> Any:
    class UsesMeshes(Actor):
        @endpoint
        def add_one(self, counters: Counter) -> list[int]:
            return counters.add.call(1).get().values()

        @endpoint
        def spawn_on(self, procs: ProcMesh) -> list[int]:
            return procs.spawn("echo", Echo).pid.call().get().values()

        @endpoint
        def spawn_from(self, hosts: HostMesh) -> int:
            procs = hosts.spawn_procs(per_host={"n": 2})
            try:
                return len(procs.spawn("echo", Echo).pid.call().get())
            finally:
                procs.stop().get()

        @endpoint
        def return_a_new_mesh(self) -> Counter:
            self.procs = this_host().spawn_procs(per_host={"n": 2})
            return self.procs.spawn("new", Counter, 5)

        @endpoint
        def return_it(self, value: Any) -> Any:
            return value

        @endpoint
        def call_handle(self, handle: Endpoint[Any, Any], *args: Any) -> list[Any]:
            return list(handle.call(*args).get().values())

        @endpoint
        def stop_it(self, mesh: Any) -> None:
            mesh.stop().get()

        @endpoint
        def shape_of(self, mesh: Any) -> dict[str, int]:
            return dict(mesh.extent)

    return UsesMeshes


def test_an_actor_mesh_can_be_an_argument(spawn: Spawn) -> None:
    procs = spawn(2)
    counters = procs.spawn("c", Counter)
    user = procs.slice(gpus=0).spawn("u", uses_meshes())
    assert user.add_one.call_one(counters).get() == [1, 1]


def test_a_slice_can_be_an_argument_and_keeps_its_shape(spawn: Spawn) -> None:
    procs = spawn({"a": 2, "b": 2})
    counters = procs.spawn("c", Counter)
    user = procs.slice(a=0, b=0).spawn("u", uses_meshes())
    assert user.shape_of.call_one(counters.slice(a=1)).get() == {"b": 2}
    assert user.shape_of.call_one(counters.flatten("n")).get() == {"n": 4}
    assert user.add_one.call_one(counters.slice(a=1)).get() == [1, 1]
    assert counters.get.call().get().values() == [0, 0, 1, 1]


def test_meshes_inside_containers_and_objects_travel_too(spawn: Spawn) -> None:
    class Adds(Actor):
        @endpoint
        def add(self, meshes: dict[str, list[Counter]]) -> int:
            return sum(meshes["all"][0].add.call(2).get().values())

    procs = spawn(2)
    counters = procs.spawn("c", Counter)
    assert procs.slice(gpus=0).spawn("a", Adds).add.call_one({"all": [counters]}).get() == 4


def test_just_spawned_procs_and_actors_can_be_sent_before_they_run(spawn: Spawn) -> None:
    user = spawn(1).spawn("u", uses_meshes())
    fresh = spawn(2)
    assert len(set(user.spawn_on.call_one(fresh).get())) == 2
    fresher = spawn(2).spawn("c", Counter, 1)
    assert user.add_one.call_one(fresher).get() == [2, 2]


def test_a_host_mesh_can_be_an_argument(spawn: Spawn) -> None:
    assert spawn(1).spawn("u", uses_meshes()).spawn_from.call_one(this_host()).get() == 2


def test_a_mesh_can_be_a_result(spawn: Spawn) -> None:
    user = spawn(1).spawn("u", uses_meshes())
    counters = user.return_a_new_mesh.call_one().get()
    assert counters.get.call().get().values() == [5, 5]
    assert counters.slice(n=1).add.call_one(2).get() == 7


def test_a_received_mesh_can_be_called_but_not_stopped(spawn: Spawn) -> None:
    user = spawn(1).spawn("u", uses_meshes())
    counters = user.return_a_new_mesh.call_one().get()
    with pytest.raises((NotImplementedError, RuntimeError), match="own|reference"):
        counters.stop().get()
    assert counters.get.call().get().values() == [5, 5]


def test_a_slice_can_not_be_stopped(spawn: Spawn) -> None:
    procs = spawn(2)
    counters = procs.spawn("c", Counter)
    with pytest.raises((NotImplementedError, RuntimeError), match="own|reference"):
        counters.slice(gpus=0).stop().get()
    with pytest.raises(ValueError, match="own|reference"):
        procs.slice(gpus=0).stop().get()
    assert counters.get.call().get().values() == [0, 0]


def test_a_mesh_that_went_away_and_came_back_is_the_same_actors(spawn: Spawn) -> None:
    procs = spawn(2)
    counters = procs.spawn("c", Counter)
    echo = procs.slice(gpus=0).spawn("e", Echo)
    returned: Counter = echo.say.call_one(counters).get()
    returned.add.call(3).get()
    assert counters.get.call().get().values() == [3, 3]
    returned_procs: ProcMesh = echo.say.call_one(procs).get()
    assert (
        returned_procs.spawn("e2", Echo).pid.call().get().values()
        == procs.spawn("e3", Echo).pid.call().get().values()
    )


def test_an_endpoint_handle_can_be_sent_and_called_there(spawn: Spawn) -> None:
    procs = spawn(2)
    counters = procs.spawn("c", Counter)
    user = procs.slice(gpus=1).spawn("u", uses_meshes())
    assert user.call_handle.call_one(counters.add, 4).get() == [4, 4]
    returned: Any = user.return_it.call_one(counters.add).get()
    assert returned.call(1).get().values() == [5, 5]


def test_a_port_can_be_a_constructor_argument(spawn: Spawn) -> None:
    class Announces(Actor):
        def __init__(self, port: Port[dict[str, int]]) -> None:
            port.send(dict(context().message_rank))

    port, receiver = open_channel()
    spawn(2).spawn("a", Announces, port)
    assert sorted(receiver.recv().get()["gpus"] for _ in range(2)) == [0, 1]


def test_geometry_and_value_meshes_survive_the_journey(spawn: Spawn) -> None:
    procs = spawn({"a": 2})
    echo = procs.slice(a=0).spawn("e", Echo)
    extent = procs.extent
    values = procs.spawn("r", Ranks).instance_rank.call().get()
    for value in (extent, Point(1, extent), Extent(["x"], [3])):
        assert echo.say.call_one(value).get() == value
    back = echo.say.call_one(values).get()
    assert isinstance(back, ValueMesh)
    assert list(back.items()) == list(values.items())


def test_plain_values_of_many_kinds_survive_the_journey(spawn: Spawn) -> None:
    echo = spawn(1).spawn("e", Echo)
    for value in (
        None,
        True,
        1,
        2**100,
        1.5,
        "text",
        b"bytes",
        [1],
        (1, 2),
        {"k": {1, 2}},
        frozenset([1]),
        range(3),
        1j,
    ):
        assert echo.say.call_one(value).get() == value


def test_lambdas_and_closures_are_sent_by_value(spawn: Spawn) -> None:
    class Applies(Actor):
        @endpoint
        def apply(self, function: Any, value: int) -> int:
            return int(function(value))

    factor = 3
    applies = spawn(1).spawn("a", Applies)
    assert applies.apply.call_one(lambda x: x * factor, 5).get() == 15

    def local(x: int) -> int:
        return x + os.getpid() * 0 + factor

    assert applies.apply.call_one(local, 5).get() == 8


def test_what_is_passed_twice_in_one_message_stays_one_object(spawn: Spawn) -> None:
    class Compares(Actor):
        @endpoint
        def same(self, a: list[int], b: list[int]) -> bool:
            return a is b

    shared = [1]
    assert spawn(1).spawn("c", Compares).same.call_one(shared, shared).get()


def test_receivers_and_futures_can_not_be_sent(spawn: Spawn) -> None:
    echo = spawn(1).spawn("e", Echo)
    _, receiver = Channel[int].open()
    for value in (receiver, echo.say.call_one(1)):
        with pytest.raises(TypeError):
            echo.say.call_one(value)
    assert echo.say.call_one(2).get() == 2


def test_third_parties_may_call_an_actor_before_its_constructor_has_finished(
    spawn: Spawn, tmp_path: Any
) -> None:
    class SlowStart(Actor):
        def __init__(self, door: str) -> None:
            import time

            while not os.path.exists(door):
                time.sleep(0.005)
            self.ready = True

        @endpoint
        def is_ready(self) -> bool:
            return self.ready

    class Asks(Actor):
        @endpoint
        def ask(self, slow: Any) -> list[bool]:
            return list(slow.is_ready.call().get().values())

    procs = spawn(2)
    user = procs.slice(gpus=0).spawn("u", Asks)
    door = tmp_path / "open"
    slow = procs.slice(gpus=1).spawn("s", SlowStart, str(door))
    future = user.ask.call_one(slow)
    with pytest.raises(TimeoutError):
        future.get(timeout=0.1)
    door.touch()
    assert future.get() == [True]
