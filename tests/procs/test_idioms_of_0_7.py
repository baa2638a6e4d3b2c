"""Idioms of clients of Monarch 0.7: endpoints with dunder names, private attributes of handles."""

from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING, Any

import pytest

from monarch.actor import Actor, as_endpoint, concurrent_endpoint, endpoint, this_host
from monarch.service import Service

if TYPE_CHECKING:
    from conftest import Spawn
    from monarch.actor import ProcMesh


class OneDoor(Actor):
    """All calls go through one endpoint, as those of an RL library's backend."""

    def __init__(self) -> None:
        self.calls = 0

    @concurrent_endpoint
    async def __monarch_call__(self, method: str, *args: Any) -> Any:
        self.calls += 1
        return getattr(self, method)(*args)

    def add(self, a: int, b: int) -> int:
        return a + b


class Backend(OneDoor):
    @endpoint
    async def __call__(self, x: int) -> int:
        return x + self.calls

    async def __plain__(self) -> str:
        return "plain"

    def __array__(self) -> Any:
        raise AssertionError("of the actor, which numpy must not take the handle for")

    def __deepcopy__(self, memo: Any) -> Any:
        raise AssertionError("of the actor")


def test_an_endpoint_may_have_a_dunder_name(spawn: Spawn) -> None:
    backend = spawn(2).spawn("backend", Backend)
    assert backend.__monarch_call__.call("add", 1, 2).get().values() == [3, 3]
    assert backend.slice(gpus=0).__call__.call_one(10).get() == 11
    assert backend.__monarch_call__ is backend.__monarch_call__


def test_a_received_mesh_and_a_service_have_dunder_endpoints_too(spawn: Spawn) -> None:
    backend = spawn(2).spawn("backend", Backend)
    again = pickle.loads(pickle.dumps(backend))
    assert again.__monarch_call__.call("add", 1, 2).get().values() == [3, 3]
    with Service(this_host(), OneDoor) as service:
        assert service.__monarch_call__.call_one("add", 2, 2).get() == 4


def test_a_dunder_method_can_be_made_an_endpoint(spawn: Spawn) -> None:
    backend: Any = spawn(1).spawn("backend", Backend)
    assert as_endpoint(backend.__plain__).call_one().get() == "plain"
    with pytest.raises(RuntimeError, match="not annotated as an endpoint"):
        backend.__plain__()


def test_what_python_looks_up_on_objects_is_not_found_on_a_handle(spawn: Spawn) -> None:
    backend: Any = spawn(1).spawn("backend", Backend)
    for name in ("__array__", "__deepcopy__", "__wrapped__", "__no_such__", "__dataclass_fields__"):
        assert not hasattr(backend, name), name
    assert copy.deepcopy(backend).__call__.call_one(1).get() == 1


class Sized(Actor):
    @endpoint
    def __len__(self) -> int:
        return 0


def test_a_dunder_name_that_handles_have_is_refused_before_anything_is_spawned(
    spawn: Spawn,
) -> None:
    with pytest.raises(ValueError, match=r"collides with an endpoint name: __len__"):
        spawn(1).spawn("sized", Sized)


def test_a_handle_and_its_slices_know_the_procs_they_were_spawned_on(spawn: Spawn) -> None:
    procs: ProcMesh = spawn(2)
    backend: Any = procs.spawn("backend", Backend)
    assert backend._proc_mesh is procs
    assert backend.slice(gpus=0)._proc_mesh is procs
    assert backend.select([1])._proc_mesh is procs
