"""Meshes of processes, as tensors see them."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from ..._core.plane import Shape, names_of
from ..._patterns.grid import as_text
from ...actor import ProcMesh
from .. import call_sites
from ..controller.engine import Engine
from ..instructions import MOVE
from ..planning.fakes import contiguous
from .activation import Activation, no_mesh
from .mesh_groups import positions
from .process_group import RemoteProcessGroup, RemoteTorchMesh
from .rank_mesh import RankMesh
from .references import reduce_mesh
from .tensor import Tensor, new_tensor

_EXIT_TIMEOUT = 60.0  # seconds


class DeviceMesh(RankMesh):
    """The tensor side of a proc mesh, or of a slice of one.

    Meshes of one engine with equal labels and ranks are the same object, however they were made.
    """

    def _new_with_shape(self, shape: Shape) -> DeviceMesh:
        return mesh_of(self.engine, shape)

    @property
    def procs(self) -> ProcMesh:
        """The processes."""
        return ProcMesh(self.engine.executor.procs._procs, self._shape)

    def activate(self) -> Activation:
        """A context manager in which torch's operations belong to this mesh.

        It holds for this thread or task only.
        """
        return Activation(self)

    def __call__(self, **selection: int | slice) -> DeviceMesh:
        """`slice`, as it was written once.

        Raises:
            TypeError, IndexError, ValueError: As `slice`.
        """
        warnings.warn(
            "mesh(dim=index) is deprecated; write mesh.slice(dim=index)",
            DeprecationWarning,
            stacklevel=2,
        )
        return self.slice(**selection)

    def rank(self, dims: str | Iterable[str]) -> Tensor:
        """A scalar int64 tensor: on each rank its own coordinate.

        Args:
            dims: A label; or several, with their coordinates combined in row-major order.

        Raises:
            KeyError: There is no such dimension.
        """
        names = (dims,) if isinstance(dims, str) else tuple(dims)
        return self._per_rank(positions(self, names))

    @property
    def ranks(self) -> dict[str, Tensor]:
        """`rank` of each dimension."""
        return {label: self.rank(label) for label in self._labels}

    def process_idx(self) -> Tensor:
        """A scalar int64 tensor: on each rank its rank in the whole mesh of the engine."""
        return self._per_rank(self.group.ranks)

    def _per_rank(self, numbers: Sequence[int]) -> Tensor:
        """A scalar int64 tensor with these values on the ranks."""
        made = new_tensor(self, contiguous((), torch.int64, torch.device("cpu")))
        table = dict(zip(self.group.ranks, numbers, strict=True))
        self.engine.submit(
            self.lane, (MOVE, call_sites.here(), "per_rank", (made._value.id, table))
        )
        return made

    def process_group(self, dims: str | Iterable[str]) -> RemoteProcessGroup:
        """The rows of ranks along some dimensions, as an argument of remote functions.

        Args:
            dims: A label or several.

        Raises:
            KeyError: There is no such dimension.
        """
        return RemoteProcessGroup(self, dims)

    def torch_mesh(self, device: str | None = None) -> RemoteTorchMesh:
        """This mesh as an argument of remote functions and endpoints.

        There it is a ``torch.distributed.device_mesh.DeviceMesh``, so that
        ``DTensor.from_local(x, mesh, [Shard(0)])`` makes one ``DTensor`` of what the ranks
        have.

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
        """The mesh drawn as a grid, for people: in each cell a host and a rank of the engine.

        See `ProcMesh.to_table`.
        """
        procs, ranks = self.group.procs, self.group.ranks
        names = names_of([proc.host for proc in procs])
        return as_text(
            f"<DeviceMesh {self.extent}>",
            self.extent,
            lambda at: f"{names[procs[at].host]} · rank[{ranks[at]}]",
        )

    def exit(self) -> None:
        """End the engine: wait until all that was issued is done, then stop its workers.

        The second time does nothing.

        Raises:
            RemoteException: An operation failed, and nothing that depends on it was fetched. The
                engine goes on.
            TimeoutError: It took more than a minute.
        """
        self.engine.close(_EXIT_TIMEOUT)

    def __repr__(self) -> str:
        return f"<DeviceMesh {self.extent} of {self.engine.executor.name!r}>"

    def __reduce__(self) -> Any:
        return reduce_mesh(self)


def mesh_of(engine: Engine, shape: Shape) -> DeviceMesh:
    """The mesh of these ranks."""
    return engine.meshes.get(shape) or engine.meshes.setdefault(shape, DeviceMesh(engine, shape))
