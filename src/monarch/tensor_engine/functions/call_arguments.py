"""The arguments of a function that is called on ranks, ready to be sent."""

from __future__ import annotations

import pickle
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

from ..._core.plane import pickling
from ..tensors import operand_checks
from ..tensors.references import collecting
from ..tensors.tensor import Tensor
from ..tensors.tensor_base import TensorBase


class Arguments(NamedTuple):
    """The arguments of one call, ready to be sent.

    Attributes:
        leaves: All that is in them, flat.
        tree: Their structure.
        tensors: The distributed tensors, in the order of their positions; then those hidden in
            other objects.
        payload: As workers read them.
        changing: The payload refers to memory that may change: it must be sent at once.
    """

    leaves: list[Any]
    tree: Any
    tensors: list[TensorBase]
    payload: tuple[Any, Any]
    changing: bool

    @property
    def weight(self) -> int:
        """The weight in KiB."""
        payload, buffers = self.payload
        return (len(payload) + sum(buffer.raw().nbytes for buffer in buffers)) >> 10

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(tensor._value.id for tensor in self.tensors)


def pack(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    """Pickle arguments, tensors as references.

    Raises:
        TypeError: One of them is a tensor that is not distributed, or was dropped.
        Exception: What pickling them raises.
    """
    leaves, tree = pytree.tree_flatten((args, kwargs))
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor):
            operand_checks.check(name, leaf)
    with collecting() as found:
        payload, buffers = pickling.dumps((args, kwargs))
    tensors: list[TensorBase] = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    known = set(map(id, tensors))
    tensors += [tensor for tensor in found.tensors if id(tensor) not in known]
    for tensor in tensors:
        operand_checks.check(name, tensor)
        tensor._value.storage.known = None  # the function may change it, unseen from here
    return Arguments(
        leaves, tree, tensors, (payload, [pickle.PickleBuffer(each) for each in buffers]),
        bool(buffers),
    )  # fmt: skip
