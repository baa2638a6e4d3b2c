"""The state of a trainer, from living ranks to others.

Tensors go by `monarch.rdma`, the rest in the message that names them.

A `DTensor` is a rank's shard of a whole: each rank lends its own shards, and takes the ranges that
its own layout needs from whichever ranks have them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple

import torch

from ..rdma import Shard, SharedState, pull, share_state
from ..rdma.states.blocks import Block, cover
from ..rdma.states.distributed import is_distributed

_PULL_TIMEOUT = 600.0  # seconds; the end of the owner ends it at once
Keys = tuple[Any, ...]
"""The name of an object, and the keys that lead to a value of its state dict."""


class Lent(NamedTuple):
    """A rank's part of a state, which others may read.

    Attributes:
        outline: The state dicts by name, with a `Whole` in place of each tensor.
        shared: The tensors, or the rank's shards of them; None where it has none.
    """

    outline: Any
    shared: SharedState | None


class Whole(NamedTuple):
    """A tensor, of which a rank may have a shard."""

    shape: tuple[int, ...]
    dtype: torch.dtype


def lend(state: Mapping[str, Any]) -> Lent:
    """Let others read a state, where it lies; it must not change until they have.

    Args:
        state: Objects with ``state_dict``.

    Raises:
        TypeError: A `DTensor` is a partial result.
    """
    parts: dict[Keys, torch.Tensor] = {}
    shards: dict[Keys, Shard] = {}

    def keep(keys: Keys, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        _, start = _layout(value, keys)
        local = _local(value.detach())
        if local.numel():
            parts[keys] = local.contiguous()
            shards[keys] = Shard(start, tuple(value.shape))
        return Whole(tuple(value.shape), value.dtype)

    outline = replaced(state_dicts(state), keep)
    shared = share_state(parts, shards=lambda name: shards[name[0]], copy=False) if parts else None
    return Lent(outline, shared)


def covering(lents: Sequence[Lent]) -> list[Lent]:
    """Fewest ranks that together hold all of a state.

    Where several have the same, the first is taken. It is None where the state is not complete.
    """
    if not lents:
        return []
    used = {0}  # the first one gives the outline
    for keys, whole in _wholes(lents[0].outline):
        offers = [
            (number, lent.shared.entries[(keys,)].block)
            for number, lent in enumerate(lents)
            if lent.shared is not None and (keys,) in lent.shared.entries
        ]
        wanted = Block((0,) * len(whole.shape), whole.shape)
        taken, missing = cover(wanted, [block for _, block in offers])
        if missing and wanted.size:
            return []
        used.update(offers[index][0] for index, _ in taken)
    return [lents[number] for number in sorted(used)]


def take(lents: Sequence[Lent], state: Mapping[str, Any]) -> None:
    """Make a state like that of others.

    Args:
        lents: What `covering` has chosen.
        state: Objects with ``load_state_dict``, by the same names. They are changed once all of it
            is here.

    Raises:
        KeyError: The names are others.
    """
    empty = Empty(state)
    into: dict[Keys, torch.Tensor] = {}
    shards: dict[Keys, Shard] = {}

    def make(keys: Keys, value: Any) -> Any:
        if not isinstance(value, Whole):
            return value
        tensor = empty.tensor(keys, value)
        local = _local(tensor)
        if local.numel():
            into[keys] = local
            shards[keys] = Shard(_layout(tensor, keys)[1], value.shape)
        return tensor

    found = replaced(lents[0].outline, make)
    if into:
        sources = [lent.shared for lent in lents if lent.shared is not None]
        pull(sources, into, shards=lambda name: shards[name[0]], timeout=_PULL_TIMEOUT).get()
    load_state_dicts(state, found)


class Empty:
    """Tensors to be filled, each laid out as in a state.

    It is a shard where the state's is sharded, otherwise all of it, on the CPU.
    """

    def __init__(self, state: Mapping[str, Any]) -> None:
        self._like = dict(_leaves(state_dicts(state)))
        self._parameters = {
            name: [parameter for group in each.param_groups for parameter in group["params"]]
            for name, each in state.items()
            if isinstance(each, torch.optim.Optimizer)
        }

    def tensor(self, keys: Keys, whole: Whole) -> torch.Tensor:
        like = self._find(keys)
        if not is_distributed(like) or tuple(like.shape) != whole.shape:
            return torch.empty(whole.shape, dtype=whole.dtype)
        shape, _ = _layout(like, keys)
        local = torch.empty(shape, dtype=whole.dtype, device=like.device)
        made: torch.Tensor = sys.modules["torch.distributed.tensor"].DTensor.from_local(
            local, like.device_mesh, like.placements, run_check=False, shape=like.shape,
            stride=like.stride(),
        )  # fmt: skip
        return made

    def _find(self, keys: Keys) -> Any:
        """Find the tensor that determines the layout.

        An optimizer's state of a parameter is laid out as the parameter is.
        """
        if (
            keys in self._like
            or len(keys) != 4
            or keys[1] != "state"
            or keys[0] not in self._parameters
        ):
            return self._like.get(keys)
        return self._parameters[keys[0]][keys[2]]


def state_dicts(state: Mapping[str, Any]) -> dict[str, Any]:
    """The state dict of each object, by its name."""
    return {name: each.state_dict() for name, each in state.items()}


def load_state_dicts(state: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    """Raises KeyError if the names are others than those that the state had."""
    if state.keys() != found.keys():
        raise KeyError(
            f"restore({', '.join(state)}): the state that there is has {', '.join(found)}"
        )
    for name, each in state.items():
        each.load_state_dict(found[name])


def any_sharded(state: Mapping[str, Any]) -> bool:
    """Return whether ranks may have different parts of the state."""
    return any(is_distributed(value) for _, value in _leaves(state_dicts(state)))


def replaced(value: Any, change: Callable[[Keys, Any], Any], keys: Keys = ()) -> Any:
    """A copy of nested mappings and sequences with other leaves."""
    if isinstance(value, Mapping):
        return {key: replaced(each, change, (*keys, key)) for key, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(
            replaced(each, change, (*keys, index)) for index, each in enumerate(value)
        )
    return change(keys, value)


def _local(tensor: Any) -> torch.Tensor:
    """Return this rank's part of the tensor, in place."""
    local: torch.Tensor = tensor.to_local() if is_distributed(tensor) else tensor
    return local


def _layout(tensor: Any, keys: Keys) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape of this rank's part of a tensor, and where in the whole it begins."""
    shape = tuple(tensor.shape)
    if not is_distributed(tensor):
        return shape, (0,) * len(shape)
    if any(placement.is_partial() for placement in tensor.placements):
        raise TypeError(
            f"{'.'.join(map(str, keys))} is a partial result, {tensor.placements}: reduce it first"
        )
    utils = import_module("torch.distributed.tensor._utils")  # as torch's own checkpoints do
    found = utils.compute_local_shape_and_global_offset(
        shape, tensor.device_mesh, tensor.placements
    )
    return tuple(found[0]), tuple(found[1])


def _leaves(value: Any) -> Iterator[tuple[Keys, Any]]:
    found: list[tuple[Keys, Any]] = []
    replaced(value, lambda keys, leaf: found.append((keys, leaf)))
    return iter(found)


def _wholes(outline: Any) -> Iterator[tuple[Keys, Whole]]:
    return ((keys, value) for keys, value in _leaves(outline) if isinstance(value, Whole))
