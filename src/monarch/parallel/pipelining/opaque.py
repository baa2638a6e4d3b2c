"""Stages of which the modules were made on the ranks, as opaque objects.

An `OpaqueModule` has parameters here, so its gradients arrive where those of any module do. An
object in an `OpaqueRef` is the ranks' own: it is run as an `OpaqueModule`, and its gradients go
back to where the object has them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from monarch.tensor_engine import DeviceMesh, OpaqueModule, OpaqueRef, Remote, remote


def mesh_of(part: OpaqueModule | OpaqueRef) -> DeviceMesh:
    """The mesh on which something opaque lives."""
    (key,) = pytree.tree_leaves(part._object if isinstance(part, OpaqueModule) else part)
    mesh: DeviceMesh = key.mesh
    return mesh


class OwnModule(OpaqueModule):
    """The module in an `OpaqueRef`, on the mesh and the stream of which it was made."""

    def __init__(self, ref: OpaqueRef) -> None:
        super().__init__(_module_in, ref)

    def hand_gradients_over(self) -> None:
        """Add the gradients that are here to those that the parameters have on the ranks."""
        parameters = self.parameters()
        _take_gradients(self._object, [parameter.grad for parameter in parameters])
        for parameter in parameters:
            parameter.grad = None


def _module_in(ref: OpaqueRef) -> nn.Module:
    if not isinstance(ref.value, nn.Module):
        raise TypeError(
            "an OpaqueRef in a pipeline has a torch.nn.Module in it, got"
            f" {type(ref.value).__name__}"
        )
    return ref.value


@remote(propagate="inspect")
def _take_gradients(ref: OpaqueRef, gradients: list[torch.Tensor | None]) -> None:
    for parameter, gradient in zip(ref.value.parameters(), gradients, strict=True):
        if parameter.grad is None:
            parameter.grad = gradient
        elif gradient is not None:
            parameter.grad.add_(gradient)


def _parameter(module: OpaqueRef, name: str, *_: Any, **__: Any) -> torch.Tensor:
    return _module_in(module).get_parameter(name)


def _parameter_rule(
    module: OpaqueRef,
    name: str,
    shape: tuple[int, ...],
    dtype: torch.dtype | None = None,
    device: Any = None,
) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device=device)


get_parameter_udf: Remote[..., Any] = remote(_parameter, propagate=_parameter_rule)
"""A parameter of the module in an `OpaqueRef`, as a distributed tensor that shares its memory:
``(ref, name, shape)``.

Arguments:
    module: The `OpaqueRef`.
    name: As ``named_parameters()`` has it.
    shape: Of the parameter.
    dtype: Of the parameter; torch's default one by default.
    device: Of the parameter; the CPU by default.
"""
