"""Methods of tensors and streams that are built on these, and given to their classes here."""

from __future__ import annotations

import traceback
from typing import Any

import torch

from .. import call_sites
from ..instructions import MOVE
from . import collectives, operand_checks
from .borrows import IssuedBorrow
from .streams import Borrow, Stream
from .tensor import Tensor, handle
from .tensor_base import Bar, TensorBase


def drop(tensor: TensorBase) -> None:
    """Free the memory of a tensor on the ranks now, and that of all that shares it.

    None of them can be used any more.

    Args:
        tensor: A distributed tensor.
    """
    if not tensor.dropped:
        operand_checks.check("drop", tensor, any_stream=True)
        operand_checks.check_write("drop", tensor)
        value = tensor._value
        tensor.mesh.engine.submit(value.lane, (MOVE, call_sites.here(), "drop", (value.id,)))
        value.storage.barred = Bar("DROPPED", "".join(traceback.format_stack()[:-1]))


def borrow(stream: Stream, tensor: Any, mutable: bool = False) -> tuple[Tensor, Borrow]:
    """Let a stream use a tensor of another one; see `Stream.borrow`."""
    if isinstance(tensor, Tensor):
        _check_not_lent(stream, tensor, mutable)
    operand_checks.check("borrow", tensor, any_stream=True)
    if torch.is_grad_enabled() and tensor.requires_grad:
        raise operand_checks.grad_error("borrow", tensor)
    made = IssuedBorrow(tensor._value, stream, mutable)
    return handle(made.start()), made


def _check_not_lent(stream: Stream, tensor: Tensor, mutable: bool) -> None:
    barred, frozen = tensor._value.storage.barred, tensor._value.storage.frozen
    if type(barred) is Bar and barred.label == "BORROWED":
        raise RuntimeError(
            f"{stream!r} can't borrow {tensor!r}: it is lent, to be written. It was borrowed"
            f" here:\n{barred.stack}"
        )
    if mutable and frozen is not None:
        raise RuntimeError(
            f"{stream!r} can't borrow {tensor!r} to write: it is lent to be read. It was borrowed"
            f" here:\n{frozen.stack}"
        )


borrow.__doc__ = Stream.borrow.__doc__
Stream.borrow = borrow  # type: ignore[method-assign, assignment]  # its `self`
Tensor.drop = drop
Tensor.reduce = collectives.reduce
Tensor.reduce_ = collectives.reduce_
Tensor.slice_mesh = collectives.slice_mesh
Tensor.to_mesh = collectives.to_mesh
