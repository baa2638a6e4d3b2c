"""The origin of device meshes.

They use the engine of the current actor over some procs, a second engine, or an engine of a model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..._core.plane import Shape, Slice
from ..controller.engine import Engine, engine_of, new_engine
from ..controller.executor import Executor
from . import seeding, tensor_methods  # noqa: F401  # for their effect
from .device_mesh import DeviceMesh, mesh_of

if TYPE_CHECKING:
    from ...actor import ProcMesh


def device_mesh_of(procs: ProcMesh) -> DeviceMesh:
    """The tensor side of procs.

    It starts the engine of the current actor over them when there is none.
    """
    procs._check_strided()
    return mesh_of(engine_of(procs), procs._shape)


def spawn_tensor_engine(procs: ProcMesh) -> DeviceMesh:
    """A second engine over the same procs.

    Its tensors can't be used with those of the first.

    Args:
        procs: The mesh of processes.
    """
    procs._check_strided()
    return mesh_of(new_engine(procs), procs._shape)


def mesh_over(executor: Executor, sizes: Mapping[str, int]) -> DeviceMesh:
    """A mesh of all ranks of a new engine.

    Args:
        executor: What executes its instructions.
        sizes: Of the dimensions, outermost first, by label.
    """
    shape = Shape(list(sizes), Slice.new_row_major(list(sizes.values())))
    return mesh_of(Engine(executor), shape)
