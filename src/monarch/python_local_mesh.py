"""A mesh on this host in one line, as old programs make it: ``python_local_mesh(gpus=2)``."""

from __future__ import annotations

from typing import Any, NoReturn

from monarch.actor import ProcMesh, this_host
from monarch.tensor_engine import DeviceMesh


class LocalMesh(DeviceMesh):
    """A mesh with processes of its own, which end with its engine."""

    def __init__(self, procs: ProcMesh) -> None:
        engine = procs._device_mesh.engine
        super().__init__(engine, procs._shape)
        # slices of slices that come to the same ranks are this mesh
        engine.meshes[procs._shape] = self
        self._own_procs = procs

    def exit(self) -> None:
        """Exit the mesh as any other, then end its processes."""
        super().exit()
        self._own_procs.stop().get()


def python_local_mesh(*, gpus: int, hosts: int = 1) -> LocalMesh:
    """Processes on this host as a mesh with the dimensions "host" and "gpu".

    Args:
        gpus: Processes per host.
        hosts: Rows; all of them are here.

    Returns:
        A mesh to be activated. Its ``exit`` ends engine and processes.

    Raises:
        ValueError: A number is less than 1.
    """
    for name, number in (("gpus", gpus), ("hosts", hosts)):
        if number < 1:
            raise ValueError(f"python_local_mesh({name}={number}): expected 1 or more")
    return LocalMesh(this_host().spawn_procs(per_host={"host": hosts, "gpu": gpus}))


def world_mesh(*args: Any, **kwargs: Any) -> NoReturn:
    """Raises NotImplementedError, which says what to use: there is no `monarch_supervisor` here."""
    raise NotImplementedError(
        "world_mesh needs a context of monarch_supervisor, which this Monarch does not have; spawn"
        ' procs instead: mesh = host_mesh.spawn_procs(per_host={"gpus": 8}), then `with'
        " mesh.activate():`"
    )


__all__ = ["LocalMesh", "python_local_mesh", "world_mesh"]
