"""What is often written, and does not work: the error says what to write instead."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import pytest

from helpers.actors import Counter, Echo
from helpers.scripts import run_script
from monarch.actor import Actor, ActorError, HostMesh, endpoint, this_host, this_proc

if TYPE_CHECKING:
    from conftest import Spawn


# processes


@pytest.mark.parametrize(
    "call", [lambda hosts: hosts.spawn_procs(4), lambda hosts: hosts.spawn_procs(gpus=4)]
)
def test_the_number_of_processes_without_a_label_shows_how_to_write_it(call: Any) -> None:
    with pytest.raises(TypeError, match=r"spawn_procs\(\{'gpus': 4\}\)"):
        call(this_host())


def test_an_unknown_argument_of_spawn_procs_shows_those_there_are() -> None:
    hosts: Any = this_host()
    with pytest.raises(TypeError, match=r"bootstap.*per_host, bootstrap, name"):
        hosts.spawn_procs({"gpus": 1}, bootstap=print)


def test_spawning_actors_on_hosts_says_that_processes_come_first() -> None:
    hosts: Any = this_host()
    with pytest.raises(AttributeError, match=r"spawn_procs\(.*\)\.spawn\("):
        hosts.spawn("counters", Counter, 0)
    assert not hasattr(HostMesh, "spawn")


# meshes are not sequences, and not the actors


def test_an_index_or_a_loop_over_a_mesh_says_how_to_reach_the_ranks(spawn: Spawn) -> None:
    procs: Any = spawn({"a": 1, "b": 2})
    mesh: Any = procs.spawn("counters", Counter, 0)
    for what in (mesh, procs):
        with pytest.raises(TypeError, match=r"slice\(a=0, b=1\)"):
            what[1]
        with pytest.raises(TypeError, match=r"slice\(a=0, b=0\)"):
            list(what)
    with pytest.raises(TypeError, match="one element"):
        mesh.slice(a=0, b=1)[0]


def test_a_mesh_is_always_true(spawn: Spawn) -> None:
    procs = spawn(2)
    mesh: Any = procs.spawn("counters", Counter, 0)
    assert this_host()
    assert procs
    assert mesh
    assert mesh.slice(gpus=0)


def test_an_attribute_cannot_be_set_through_a_mesh(spawn: Spawn) -> None:
    mesh: Any = spawn(2).spawn("counters", Counter, 0)
    for handle in (mesh, mesh.slice(gpus=0)):
        with pytest.raises(AttributeError, match=r"counters is a handle: lr = 3 .*endpoint"):
            handle.lr = 3
        with pytest.raises(AttributeError, match="counters is a handle"):
            handle.get = 3
        handle._kept_by_the_program = 5
        assert handle._kept_by_the_program == 5


T = TypeVar("T")


class Generating(Actor, Generic[T]):
    def __init__(self, value: T) -> None:
        self.value = value

    @endpoint
    def get(self) -> T:
        return self.value


def test_a_generic_class_is_spawned_with_its_parameter(spawn: Spawn) -> None:
    assert spawn(1).spawn("g", Generating[int], 3).get.call_one().get() == 3


# what an endpoint holds


class Maker(Actor):
    @endpoint
    def make(self) -> Any:
        return {"parts": [1, threading.Lock()]}

    @endpoint
    def ask(self) -> str:
        return input("name? ")


def test_a_result_that_cannot_be_sent_says_the_path_to_the_culprit(spawn: Spawn) -> None:
    maker = spawn(1).spawn("m", Maker)
    with pytest.raises(
        ActorError, match=r"result of m\.make\(\)(.|\n)*\['parts'\]\[1\], a _thread\.lock"
    ):
        maker.make.call_one().get()


def test_an_object_that_refers_to_what_cannot_be_sent_is_named_by_its_path(spawn: Spawn) -> None:
    echo = spawn(1).spawn("e", Echo)
    values = (number for number in range(3))
    with pytest.raises(
        TypeError, match=r"because of its \['run'\], which uses values, a builtins\.generator"
    ):
        echo.say.call_one({"run": lambda: next(values)})


@pytest.mark.processes("the standard input of a process")
def test_input_in_a_proc_says_where_there_is_a_terminal(spawn: Spawn) -> None:
    maker = spawn(1).spawn("m", Maker)
    with pytest.raises(EOFError, match=r"this_proc\(\)"):
        maker.ask.call_one().get()


def test_input_and_breakpoint_work_in_the_clients_process_as_the_hint_says() -> None:
    result = run_script(
        """
        from monarch.actor import Actor, endpoint, this_proc

        class Maker(Actor):
            @endpoint
            def ask(self):
                breakpoint()
                return input()

        print("got", this_proc().spawn("m", Maker).ask.call_one().get())
        """,
        stdin="continue\nAda\n",
    )
    assert result.exit_code == 0, str(result)
    assert "got Ada" in result.stdout, str(result)


# endpoints of plain objects


class Greeter(Actor):
    def __init__(self, name: str) -> None:
        self.name = name

    @endpoint
    def hello(self, number: int) -> str:
        return f"{self.name} {number}"

    @endpoint
    def twice(self, number: int) -> Any:
        return [self.hello(number), self.hello(number=number)]


class Polite(Greeter):
    @endpoint
    def hello(self, number: int) -> Any:
        return f"dear {super().hello(number)}"


class AsyncGreeter(Actor):
    @endpoint
    async def hello(self) -> str:
        return "hello"


class AsyncPolite(AsyncGreeter):
    @endpoint
    async def hello(self) -> Any:
        return f"dear, {await super().hello()}"


def test_an_endpoint_can_call_another_of_self_and_that_of_its_base_class(spawn: Spawn) -> None:
    procs = spawn(1)
    assert procs.spawn("g", Greeter, "you").twice.call_one(2).get() == ["you 2", "you 2"]
    assert procs.spawn("p", Polite, "you").twice.call_one(2).get() == ["dear you 2", "dear you 2"]
    assert procs.spawn("a", AsyncPolite).hello.call_one().get() == "dear, hello"
    here = this_proc().spawn("p", Polite, "me")
    assert here.hello.call_one(3).get() == "dear me 3"
    here.stop().get()


def test_what_a_plain_call_raises_is_the_endpoints_own_error_with_its_frames_only(
    spawn: Spawn,
) -> None:
    class Outer(Actor):
        @endpoint
        def inner(self) -> None:
            raise KeyError("inner")

        @endpoint
        def outer(self) -> Any:
            return self.inner()

    with pytest.raises(KeyError) as caught:
        spawn(1).spawn("o", Outer).outer.call_one().get()
    assert "in inner" in str(caught.value)
    assert "endpoint.py" not in str(caught.value)
