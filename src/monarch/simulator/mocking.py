"""Simulated tensors for actors: their meshes activate as ever, and nothing is executed on them.

For tests of controllers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from monarch.actor import Actor, ProcMesh, patch_actor
from monarch.tensor_engine import DeviceMesh
from monarch.tensor_engine.controller.engine import Engine, substitute_engines

from .simulator import Simulator

Factory = Callable[[ProcMesh], Any]


class patch_tensor_engine(patch_actor):  # noqa: N801  # used as a function, as `patch_actor` is
    """Give simulated engines to actors of a class, while active.

    It holds for actors that are spawned meanwhile, here and in procs that are spawned
    meanwhile.

    For each mesh of procs that such an actor activates, a `Simulator` stands for its workers;
    actors on these procs are real. A context manager and a decorator, as `patch_actor`.

    Args:
        actor: The actor class.
        factory: Gets a mesh of procs and gives what stands for it: a `Simulator` with as many
            ranks, or its mesh.
    """

    def __init__(self, actor: type[Actor], factory: Factory | None = None) -> None:
        if not isinstance(actor, type):
            raise TypeError(f"patch_tensor_engine takes an actor class, got {actor!r}")
        self._factory = factory or simulate
        super().__init__(actor, _simulated(actor, self._factory))

    def __enter__(self) -> Factory:
        super().__enter__()
        return self._factory


def _simulated(actor: type[Actor], factory: Factory) -> type[Actor]:
    """Return a subclass that gets its engines from `factory`."""

    def new(cls: type[Actor], *args: Any, **kwargs: Any) -> Any:
        substitute_engines(lambda procs: _engine(factory, procs))
        return object.__new__(cls)

    names = {
        "__new__": new,
        "__module__": actor.__module__,
        "_tensor_engine_factory": staticmethod(factory),
    }
    return type(actor.__name__, (actor,), names)


def _engine(factory: Factory, procs: ProcMesh) -> Engine:
    """Return the engine that stands for procs."""
    made = factory(procs)
    mesh = made.mesh if isinstance(made, Simulator) else made
    if not isinstance(mesh, DeviceMesh) or mesh.engine.size != len(procs):
        raise TypeError(
            f"the factory of patch_tensor_engine must give a Simulator with {len(procs)} ranks, got"
            f" {made!r}"
        )
    return mesh.engine


def simulate(procs: ProcMesh) -> Simulator:
    """A simulator for procs, all on one host. It writes nothing."""
    return Simulator(1, len(procs), simulate_mode="simulate_with_report_only")


__all__ = ["patch_tensor_engine", "simulate"]
