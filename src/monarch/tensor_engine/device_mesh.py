"""Meshes of processes, as tensors see them."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from .._core.mesh import proc_mesh
from .._core.mesh.drawn import names_of
from .._core.mesh.shaped import ShapedMesh
from .._core.shape import Shape, Slice, grid
from . import borrows, collectives, references, seeding  # noqa: F401  # the first and the last for their effect
from .activation import Activation, no_mesh
from .engine import Engine, engine_of, new_engine
from .executor import Executor
from .instructions import MAIN
from .process_group import RemoteProcessGroup, RemoteTorchMesh
from .streams import active
from .tensor import Tensor

if TYPE_CHECKING:
    from .._core.mesh.proc_mesh import ProcMesh
    from .engine import Ranks

_EXIT_TIMEOUT = 60.0  # seconds


class DeviceMesh(ShapedMesh):
    """The tensor side of a proc mesh, or of a slice of one. Meshes of one engine with equal labels and ranks are the same
    object, however they were made.

    Attributes:
        ndslice: The ranks, as an `NDSlice`.
        names: The labels, outermost first.
    """

    def __init__(self, engine: Engine, shape: Shape) -> None:
        self.engine = engine
        self._shape = shape
        self.group = engine.group(shape.ndslice.ranks())

    def _new_with_shape(self, shape: Shape) -> DeviceMesh:
        return mesh_of(self.engine, shape)

    @property
    def lane(self) -> Ranks:
        """Where instructions go: its ranks, and the active stream."""
        stream = active.get().number
        return self.group if stream == MAIN else self.engine.group(self.group.ranks, stream)

    @property
    def ndslice(self) -> Any:
        return self._shape.ndslice

    @property
    def names(self) -> list[str]:
        return self._shape.labels

    @property
    def procs(self) -> ProcMesh:
        """The processes."""
        return proc_mesh.ProcMesh(self.engine.executor.procs._procs, self._shape)

    def activate(self) -> Activation:
        """A context manager in which torch's operations belong to this mesh; in this thread or task only."""
        return Activation(self)

    def __call__(self, **selection: int | slice) -> DeviceMesh:
        """`slice`, as it was written once.

        Raises:
            TypeError, IndexError, ValueError: As `slice`.
        """
        warnings.warn("mesh(dim=index) is deprecated; write mesh.slice(dim=index)", DeprecationWarning, stacklevel=2)
        return self.slice(**selection)

    def rank(self, dims: str | Iterable[str]) -> Tensor:
        """A scalar int64 tensor: on each rank its own coordinate.

        Args:
            dims: A label; or several, whose coordinates are combined in row-major order.

        Raises:
            KeyError: There is no such dimension.
        """
        names = (dims,) if isinstance(dims, str) else tuple(dims)
        return collectives.per_rank(self, collectives.positions(self, names))

    @property
    def ranks(self) -> dict[str, Tensor]:
        """`rank` of each dimension."""
        return {label: self.rank(label) for label in self._labels}

    def process_idx(self) -> Tensor:
        """A scalar int64 tensor: on each rank its rank in the whole mesh of the engine."""
        return collectives.per_rank(self, self.group.ranks)

    def process_group(self, dims: str | Iterable[str]) -> RemoteProcessGroup:
        """The rows of ranks along some dimensions, as an argument of remote functions.

        Args:
            dims: A label or several.

        Raises:
            KeyError: There is no such dimension.
        """
        return RemoteProcessGroup(self, dims)

    def torch_mesh(self, device: str | None = None) -> RemoteTorchMesh:
        """This mesh as an argument of remote functions and endpoints: there it is a ``torch.distributed.device_mesh.DeviceMesh``,
        so that ``DTensor.from_local(x, mesh, [Shard(0)])`` makes one ``DTensor`` of what the ranks have.

        Args:
            device: ``"cpu"`` or ``"cuda"``; by default what the rank has.

        Raises:
            ValueError: It has no dimensions.
        """
        return RemoteTorchMesh(self, device)

    def to_tensor(self) -> torch.Tensor:
        """A local tensor of the ranks, in the shape of the mesh."""
        with no_mesh.activate():
            return torch.tensor(list(self.group.ranks)).reshape(self._ndslice.sizes)

    def to_table(self) -> str:
        """The mesh drawn as a grid, for people: in each cell a host and a rank of the engine. See `ProcMesh.to_table`."""
        procs, ranks = self.group.procs, self.group.ranks
        names = names_of([proc.host for proc in procs])
        return grid.as_text(
            f"<DeviceMesh {self.extent}>", self.extent, lambda at: f"{names[procs[at].host]} · rank[{ranks[at]}]"
        )

    def exit(self) -> None:
        """End the engine: wait until all that was issued is done, then stop its workers. The second time does nothing.

        Raises:
            RemoteException: An operation failed, and nothing that depends on it was fetched. The engine goes on.
            TimeoutError: It took more than a minute.
        """
        self.engine.close(_EXIT_TIMEOUT)

    def __repr__(self) -> str:
        return f"<DeviceMesh {self.extent} of {self.engine.executor.name!r}>"

    def __reduce__(self) -> Any:
        return references.reduce_mesh(self)


def mesh_of(engine: Engine, shape: Shape) -> DeviceMesh:
    """The mesh of these ranks."""
    found = engine.meshes.get(shape)
    if found is None:
        found = engine.meshes.setdefault(shape, DeviceMesh(engine, shape))
    return found


def device_mesh_of(procs: ProcMesh) -> DeviceMesh:
    """The tensor side of procs; starts the engine of the current actor over them when there is none."""
    procs._check_strided()
    return mesh_of(engine_of(procs), procs._shape)


def spawn_tensor_engine(procs: ProcMesh) -> DeviceMesh:
    """A second engine over the same procs, whose tensors have nothing to do with those of the first."""
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
