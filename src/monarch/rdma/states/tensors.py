"""The tensors of a state dict.

For each: where it lies, which part of which whole it is; and new ones like those of another state.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..memory import Memory, memory_of
from .blocks import Block
from .distributed import is_distributed, local_part
from .shards import Name, Shard, Shards, Split, rule_of, shown

State = Mapping[Any, Any] | Sequence[Any]
"""Mappings and sequences, nested as you like, of contiguous tensors or arrays; also of distributed
tensors.
"""

_FORMATS = {
    "b": "int8", "B": "uint8", "c": "uint8", "?": "bool", "h": "int16", "H": "uint16", "i": "int32", "I": "uint32",
    "l": "int64", "L": "uint64", "q": "int64", "Q": "uint64", "e": "float16", "f": "float32", "d": "float64",
}  # fmt: skip


class Entry(NamedTuple):
    """One tensor of a shared state: what it is, and where its bytes are."""

    library: str
    dtype: str
    itemsize: int
    block: Block
    whole: tuple[int, ...]
    buffer: int
    offset: int

    @property
    def nbytes(self) -> int:
        return self.block.size * self.itemsize


class LocalTensor(NamedTuple):
    """A tensor at hand."""

    memory: Memory
    library: str
    dtype: str
    itemsize: int
    block: Block
    whole: tuple[int, ...]

    def check_like(self, entry: Entry, name: Name) -> None:
        """Raises ValueError if it is of another type or whole than the shared one."""
        if (self.dtype, self.whole) != (entry.dtype, entry.whole):
            raise ValueError(
                f"{shown(name)} is {self.dtype} of shape {self.whole} here, {entry.dtype} of shape"
                f" {entry.whole} there"
            )

    def entry(self, buffer: int, offset: int) -> Entry:
        """Return the tensor's entry in the table for others."""
        return Entry(
            self.library, self.dtype, self.itemsize, self.block, self.whole, buffer, offset
        )


def tensors_of(state: State, shards: Shards | None) -> dict[Name, LocalTensor]:
    """Return the tensors of a state, by name.

    Raises:
        KeyError, TypeError, ValueError: As `share_state`.
    """
    leaves = dict(_leaves(state, ()))
    rule = rule_of(shards, list(leaves))
    if not leaves:
        raise ValueError("the state has no tensors")
    found: dict[Name, LocalTensor] = {}
    for name, value in leaves.items():
        if not is_distributed(value):
            found[name] = _tensor(value, name, rule(name))
        elif (part := local_part(value, shown(name))) is not None:
            found[name] = _tensor(part.tensor, name, part.shard)
    return found


def sequences_of(state: Any, name: Name = ()) -> Iterator[Name]:
    """Yield the names of those parts of a state that are sequences, not mappings."""
    if isinstance(state, (list, tuple)):
        yield name
    for key, value in _items(state) or ():
        yield from sequences_of(value, (*name, key))


def nested(leaves: Mapping[Name, Any], sequences: frozenset[Name], name: Name = ()) -> Any:
    """A state of these leaves; a sequence has those of its items that there are."""
    if name in leaves:
        return leaves[name]
    depth = len(name)
    keys = dict.fromkeys(leaf[depth] for leaf in leaves if leaf[:depth] == name)
    found = {key: nested(leaves, sequences, (*name, key)) for key in keys}
    return list(found.values()) if name in sequences else found


def new_tensor(entry: Entry, shape: tuple[int, ...]) -> Any:
    """Memory on the CPU, not filled: of torch where the shared one is, else of numpy.

    Raises:
        ImportError: That library is not there.
    """
    library: Any = importlib.import_module(entry.library)
    return library.empty(shape, dtype=getattr(library, entry.dtype, entry.dtype))


def _items(state: Any) -> Iterable[tuple[Any, Any]] | None:
    """The items of a mapping or sequence; None for a leaf."""
    if isinstance(state, Mapping):
        return state.items()
    return enumerate(state) if isinstance(state, (list, tuple)) else None


def _leaves(state: Any, name: Name) -> Iterator[tuple[Name, Any]]:
    items = _items(state)
    if items is None:
        yield name, state
        return
    for key, value in items:
        yield from _leaves(value, (*name, key))


def _tensor(value: Any, name: Name, shard: Shard | Split | None) -> LocalTensor:
    memory = memory_of(value, shown(name))
    shape, library, dtype = _shape_and_type(value)
    itemsize = memory.nbytes // Block((), shape).size
    if isinstance(shard, Split):
        shard = shard.around(shape)
    if shard is None:
        return LocalTensor(memory, library, dtype, itemsize, Block((0,) * len(shape), shape), shape)
    block, whole = Block(shard.start, shape), Block((0,) * len(shard.whole), shard.whole)
    if not len(shape) == len(shard.start) == len(shard.whole) or block.common(whole) != block:
        raise ValueError(
            f"{shown(name)} of shape {shape} at {shard.start} is no part of a tensor of shape"
            f" {shard.whole}"
        )
    return LocalTensor(memory, library, dtype, itemsize, block, shard.whole)


def _shape_and_type(value: Any) -> tuple[tuple[int, ...], str, str]:
    """The shape, and the library and name of the type."""
    dtype = getattr(value, "dtype", None)
    if dtype is None:
        view = memoryview(value)
        return tuple(view.shape or ()), "numpy", _FORMATS.get(view.format, view.format)
    name = str(dtype)
    return (
        tuple(value.shape),
        "torch" if name.startswith("torch.") else "numpy",
        name.removeprefix("torch."),
    )
