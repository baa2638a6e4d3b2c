"""The state of a trainer, from a living rank to another: tensors by `monarch.rdma`, the rest in the message that names them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch

from ..rdma import SharedState, empty_like, pull, share_state

_PULL_TIMEOUT = 600.0  # seconds; the end of the owner ends it at once


class Lent(NamedTuple):
    """A state that others may take.

    Attributes:
        outline: The state dicts by name, with a `_Tensor` in place of each tensor.
        shared: The tensors; None where there are none.
    """

    outline: Any
    shared: SharedState | None


class _Tensor(NamedTuple):
    number: int


def lend(state: Mapping[str, Any]) -> Lent:
    """Let others read a state, where it lies; it must not change until they have.

    Args:
        state: Objects with ``state_dict``.
    """
    tensors: list[torch.Tensor] = []

    def keep(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not value.numel():
            return value
        tensors.append(value.detach().contiguous())
        return _Tensor(len(tensors) - 1)

    outline = _replaced({name: each.state_dict() for name, each in state.items()}, keep)
    return Lent(outline, share_state(tensors, copy=False) if tensors else None)


def take(lent: Lent, state: Mapping[str, Any]) -> None:
    """Make a state like that of another.

    Args:
        lent: The other's.
        state: Objects with ``load_state_dict``, by the same names. They are changed once all of it is here.
    """
    tensors = [] if lent.shared is None else empty_like(lent.shared)
    if lent.shared is not None:
        pull(lent.shared, tensors, timeout=_PULL_TIMEOUT).get()
    found = _replaced(lent.outline, lambda value: tensors[value.number] if isinstance(value, _Tensor) else value)
    for name, each in state.items():
        each.load_state_dict(found[name])


def _replaced(value: Any, change: Callable[[Any], Any]) -> Any:
    """A copy of nested mappings and sequences with other leaves."""
    if isinstance(value, Mapping):
        return {key: _replaced(each, change) for key, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_replaced(each, change) for each in value)
    return change(value)
