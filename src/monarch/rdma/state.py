"""Whole state dicts: shared by one process, pulled from or pushed to by others, also where each has other shards.

`share_state` lays tensors side by side in one registered region per device, as a safetensors file does, or shares them where
they are. The handle it gives is a table of names and places, and travels like any handle. `pull` and `push` compare that table
with the shards at hand and move all that is in common as one submission, each element once.
"""

from __future__ import annotations

import mmap
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from .._core.runtime.future import Future
from .boxes import Box, cover, runs
from .buffer import RDMABuffer, checked_timeout
from .memory import Memory, memory_of
from .paths.copy import copy_memory
from .transfer import Operation, submit

_ALIGNMENT = 64  # bytes
_FORMATS = {
    "b": "int8", "B": "uint8", "c": "uint8", "?": "bool", "h": "int16", "H": "uint16", "i": "int32", "I": "uint32",
    "l": "int64", "L": "uint64", "q": "int64", "Q": "uint64", "e": "float16", "f": "float32", "d": "float64",
}  # fmt: skip

Name = tuple[Any, ...]
State = Mapping[Any, Any] | Sequence[Any]


class Shard(NamedTuple):
    """Which part of a whole tensor a process has.

    Attributes:
        start: First index, in every dimension.
        whole: Shape of the whole tensor.
    """

    start: tuple[int, ...]
    whole: tuple[int, ...]

    @staticmethod
    def of(whole: Sequence[int], dim: int, rank: int, count: int) -> Shard:
        """The part of one rank of `count`, if a dimension is divided evenly.

        Raises:
            ValueError: It can't be.
        """
        if not 0 <= rank < count or whole[dim] % count:
            raise ValueError(f"dimension {dim} of {tuple(whole)} can't be divided evenly for rank {rank} of {count}")
        start = [0] * len(whole)
        start[dim] = rank * (whole[dim] // count)
        return Shard(tuple(start), tuple(whole))


class Entry(NamedTuple):
    """One tensor of a shared state: what it is, and where its bytes are."""

    dtype: str
    itemsize: int
    box: Box
    whole: tuple[int, ...]
    buffer: int
    offset: int


class SharedState:
    """The handle to a shared state dict; `share_state` makes it. It pickles, and holds the memory as `RDMABuffer` does."""

    def __init__(self, buffers: Sequence[RDMABuffer], entries: Mapping[Name, Entry]) -> None:
        self.buffers = tuple(buffers)
        self.entries = dict(entries)

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(entry.box.size * entry.itemsize for entry in self.entries.values())

    def update(self, state: State, timeout: float = 60) -> Future[None]:
        """Replace the values by those of `state`, which has the tensors that were shared: a `push` of all of them.

        Others that pull meanwhile may get some old and some new values; tell them when it is done.
        """
        return push(
            state, self, shards={name: Shard(e.box.start, e.whole) for name, e in self.entries.items()}, timeout=timeout
        )

    def drop(self) -> None:
        """Let all of the memory go; returns when nobody reaches it any more."""
        for dropped in [buffer.drop() for buffer in self.buffers]:
            dropped.get()

    def __repr__(self) -> str:
        return f"<SharedState of {len(self.entries)} tensors, {self.nbytes} bytes, in {len(self.buffers)} buffers>"


def share_state(state: State, *, shards: Mapping[Any, Shard] | None = None, copy: bool = True) -> SharedState:
    """Let others read and write the tensors of a state dict.

    Args:
        state: Mappings and sequences, nested as you like, of contiguous tensors or arrays.
        shards: Which part of a whole a tensor is, by its name: the key, or the tuple of keys that lead to it. Tensors that are
            not in here are whole.
        copy: Put a copy of all tensors into one region per device, which `SharedState.update` renews; otherwise share the
            tensors themselves, one buffer for each.

    Raises:
        TypeError, ValueError: Something in it is no contiguous memory, or does not fit its shard. The message names it.
    """
    tensors = _tensors(state, shards or {})
    return _copied(tensors) if copy else _in_place(tensors)


def pull(
    sources: SharedState | Sequence[SharedState],
    into: State,
    *,
    shards: Mapping[Any, Shard] | None = None,
    timeout: float = 60,
) -> Future[None]:
    """Fill the tensors of a state dict, in place, from what others share; all in one submission.

    Args:
        sources: Who has it. Where several have the same elements, the first is read.
        into: Mappings and sequences of tensors or arrays, by the names of the sources; a part of those will do.
        shards: As for `share_state`, of the tensors of `into`.
        timeout: Seconds.

    Raises:
        KeyError, TypeError, ValueError: No source has a tensor, or all of it; or it has another type there.
        RDMAError: From the future: the transfer failed.
    """
    given = _all(sources, "pull(sources)")
    operations: list[Operation] = []
    for name, tensor in _tensors(into, shards or {}).items():
        offers = [(source, source.entries[name]) for source in given if name in source.entries]
        if not offers:
            raise KeyError(f"no source shares {_shown(name)}")
        if tensor.memory.readonly:
            raise ValueError(f"{_shown(name)} is read-only, and can't be filled")
        for _, entry in offers:
            tensor.check_like(entry, name)
        taken, missing = cover(tensor.box, [entry.box for _, entry in offers])
        if missing:
            raise ValueError(f"no source has the elements {', '.join(map(str, missing))} of {_shown(name)}")
        for index, part in taken:
            source, entry = offers[index]
            operations += tensor.operations(source, entry, part, write=False)
    return submit(given[0].buffers[0].plane, operations, checked_timeout(timeout))


def push(
    state: State,
    targets: SharedState | Sequence[SharedState],
    *,
    shards: Mapping[Any, Shard] | None = None,
    timeout: float = 60,
) -> Future[None]:
    """Write the tensors of a state dict to wherever they are shared: every element that a target has, too.

    Args:
        state: As for `share_state`; leave it unchanged until the future is done.
        targets: Who shall get it.
        shards: As for `share_state`, of the tensors of `state`.
        timeout: Seconds.

    Raises:
        KeyError, TypeError, ValueError: No target has a tensor, or it has another type there.
        RDMAError: From the future: the transfer failed.
    """
    given = _all(targets, "push(targets)")
    operations: list[Operation] = []
    for name, tensor in _tensors(state, shards or {}).items():
        takers = [(target, target.entries[name]) for target in given if name in target.entries]
        if not takers:
            raise KeyError(f"no target shares {_shown(name)}")
        for target, entry in takers:
            tensor.check_like(entry, name)
            part = tensor.box.common(entry.box)
            if part is not None:
                operations += tensor.operations(target, entry, part, write=True)
    return submit(given[0].buffers[0].plane, operations, checked_timeout(timeout))


def _all(states: SharedState | Sequence[SharedState], use: str) -> list[SharedState]:
    given = [states] if isinstance(states, SharedState) else list(states)
    if not given or not all(isinstance(state, SharedState) for state in given):
        raise TypeError(f"{use}: got {given!r}, expected a SharedState or some of them")
    return given


class _Tensor(NamedTuple):
    """A tensor at hand."""

    memory: Memory
    dtype: str
    itemsize: int
    box: Box
    whole: tuple[int, ...]

    def check_like(self, entry: Entry, name: Name) -> None:
        if (self.dtype, self.whole) != (entry.dtype, entry.whole):
            raise ValueError(
                f"{_shown(name)} is {self.dtype} of shape {self.whole} here, {entry.dtype} of shape {entry.whole} there"
            )

    def operations(self, remote: SharedState, entry: Entry, part: Box, write: bool) -> Iterator[Operation]:
        buffer, size = remote.buffers[entry.buffer], self.itemsize
        for there, here, length in runs(part, entry.box, self.box):
            yield buffer.operation(self.memory, here * size, entry.offset + there * size, length * size, write)


def _tensors(state: State, shards: Mapping[Any, Shard]) -> dict[Name, _Tensor]:
    by_name = {name if isinstance(name, tuple) else (name,): shard for name, shard in shards.items()}
    found = {name: _tensor(value, name, by_name.pop(name, None)) for name, value in _leaves(state, ())}
    if by_name:
        raise KeyError(f"shards name {', '.join(map(_shown, by_name))}, which the state does not have")
    if not found:
        raise ValueError("the state has no tensors")
    return found


def _leaves(state: Any, name: Name) -> Iterator[tuple[Name, Any]]:
    if isinstance(state, Mapping):
        for key, value in state.items():
            yield from _leaves(value, (*name, key))
    elif isinstance(state, (list, tuple)):
        for index, value in enumerate(state):
            yield from _leaves(value, (*name, index))
    else:
        yield name, state


def _tensor(value: Any, name: Name, shard: Shard | None) -> _Tensor:
    memory = memory_of(value, _shown(name))
    shape, dtype = _shape_and_type(value)
    itemsize = memory.nbytes // Box((), shape).size
    if shard is None:
        return _Tensor(memory, dtype, itemsize, Box((0,) * len(shape), shape), shape)
    box, whole = Box(shard.start, shape), Box((0,) * len(shard.whole), shard.whole)
    if not len(shape) == len(shard.start) == len(shard.whole) or box.common(whole) != box:
        raise ValueError(
            f"{_shown(name)} of shape {shape} at {shard.start} is no part of a tensor of shape {shard.whole}"
        )
    return _Tensor(memory, dtype, itemsize, box, shard.whole)


def _shape_and_type(value: Any) -> tuple[tuple[int, ...], str]:
    dtype = getattr(value, "dtype", None)
    if dtype is not None:  # of torch, or of numpy
        return tuple(value.shape), str(dtype).removeprefix("torch.")
    view = memoryview(value)
    return tuple(view.shape or ()), _FORMATS.get(view.format, view.format)


def _in_place(tensors: Mapping[Name, _Tensor]) -> SharedState:
    buffers = [RDMABuffer.of_memory(tensor.memory) for tensor in tensors.values()]
    return SharedState(buffers, {name: _entry(t, index, 0) for index, (name, t) in enumerate(tensors.items())})


def _copied(tensors: Mapping[Name, _Tensor]) -> SharedState:
    sizes: dict[str, int] = {}
    entries: dict[Name, Entry] = {}
    devices = list(dict.fromkeys(tensor.memory.device for tensor in tensors.values()))
    for name, tensor in tensors.items():
        device = tensor.memory.device
        offset = sizes.get(device, 0)
        entries[name] = _entry(tensor, devices.index(device), offset)
        sizes[device] = offset + -(-tensor.memory.nbytes // _ALIGNMENT) * _ALIGNMENT
    regions = [_allocate(device, sizes[device]) for device in devices]
    for name, tensor in tensors.items():
        entry = entries[name]
        copy_memory(regions[entry.buffer], entry.offset, tensor.memory, 0, tensor.memory.nbytes)
    return SharedState([RDMABuffer.of_memory(region) for region in regions], entries)


def _entry(tensor: _Tensor, buffer: int, offset: int) -> Entry:
    return Entry(tensor.dtype, tensor.itemsize, tensor.box, tensor.whole, buffer, offset)


def _allocate(device: str, nbytes: int) -> Memory:
    if device == "cpu":
        return memory_of(mmap.mmap(-1, nbytes), "the region")
    torch = sys.modules["torch"]  # there is a tensor on that device
    return memory_of(torch.empty(nbytes, dtype=torch.uint8, device=device), "the region")


def _shown(name: Name) -> str:
    return "state" + "".join(f"[{key!r}]" for key in name)
