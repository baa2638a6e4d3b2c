"""`Tensorboard`, for programs: a TensorBoard log that is written on the ranks.

Values that are distributed tensors are written there without a fetch to the program.

Needs the package `tensorboard` where the ranks are.
"""

from __future__ import annotations

import importlib.util
import os
from typing import Any

from monarch import tensor_engine


class Tensorboard:
    """A ``SummaryWriter`` on a mesh, usually of one rank: each of its ranks writes a log.

    Args:
        coordinator_mesh: Where; a `DeviceMesh` such as ``mesh.slice(hosts=0, gpus=0)``.
        path: The folder of the log, on the rank's host.
        **kwargs: As for ``torch.utils.tensorboard.SummaryWriter``.

    Raises:
        ImportError: `tensorboard` is not installed there.
    """

    def __init__(
        self,
        coordinator_mesh: tensor_engine.DeviceMesh,
        path: str | os.PathLike[str],
        **kwargs: Any,
    ) -> None:
        self._mesh = coordinator_mesh
        with coordinator_mesh.activate():
            if not tensor_engine.call_on_shard_and_fetch(tensor_engine.remote(_is_installed)).get():
                raise ImportError(
                    f"tensorboard is not installed on the ranks of {coordinator_mesh!r}: pip"
                    " install tensorboard"
                )
            self._writer = tensor_engine.OpaqueObject(
                "torch.utils.tensorboard.SummaryWriter", os.fspath(path), **kwargs
            )

    def log(self, name: str, value: Any, step: int | None = None) -> None:
        """Write one value. Does not wait.

        Args:
            name: Of the curve.
            value: A number or a tensor of one element; of one that lives on another mesh its first
                rank's value is moved.
            step: The position on the curve.

        Raises:
            ValueError: The tensor's mesh belongs to another engine, or it has more than one
                element.
        """
        if isinstance(value, tensor_engine.Tensor):
            if value.numel() != 1:
                raise ValueError(
                    f"log takes tensors of one element, got one of shape {tuple(value.shape)}"
                )
            detached: Any = value.detach()
            value = self._here(detached)
        with self._mesh.activate():
            self._writer.call_method("add_scalar", "inspect", name, value, step)

    def flush(self) -> None:
        """Have logged values written to the disk. Does not wait."""
        self._writer.call_method("flush", "inspect")

    def close(self) -> None:
        """End the log, and wait until it is written."""
        self._writer.call_method_on_shard_and_fetch("close").get()

    def _here(self, value: tensor_engine.Tensor) -> tensor_engine.Tensor:
        if value.mesh is self._mesh:
            return value
        first = tensor_engine.slice_mesh(value, **dict.fromkeys(value.mesh.names, 0))
        moved: tensor_engine.Tensor = first.to_mesh(self._mesh)
        return moved

    def __enter__(self) -> Tensorboard:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


def _is_installed() -> bool:
    return importlib.util.find_spec("tensorboard") is not None


__all__ = ["Tensorboard"]
