"""Recorded functions: what a function issues is kept on the workers, and later calls replay it with one message per rank.

The first call with arguments of a kind runs the function and records its instructions; the second runs it again and compares;
from then on the function is not run any more. What a recording depends on makes up its *kind*: the metadata of tensors, which of
them share memory, all other arguments, the active mesh and stream. Tensors that the function takes from elsewhere, its
*captures*, are part of the recording, and are checked at each replay as operations would be.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, ParamSpec, TypeVar, overload

import torch
from torch.utils import _pytree as pytree

from . import mixing, sites
from .activation import active_mesh
from .engine import Ranks, holder
from .fakes import Meta
from .instructions import PROGRAM, REPLAY, Program
from .recorder import Recorder, difference
from .streams import active
from .tensor import Storage, Tensor, Value, handle

P = ParamSpec("P")
R = TypeVar("R")


class _Given(NamedTuple):
    """A result that is an argument: the one with this position among the tensors."""

    argument: int


class _Made(NamedTuple):
    """A result that is made by each replay.

    Attributes:
        id: When it was recorded.
        storage: Tells which results share memory.
        shares: Position of the formal that it shares memory with, or None.
    """

    id: int
    mesh: Any
    lane: Ranks
    meta: Meta
    storage: int
    shares: int | None


class _Part(NamedTuple):
    """What is replayed on one stream of some ranks.

    Attributes:
        lane: Where.
        number: Of the program there.
        formals: Positions among those of the recording.
        results: The same.
    """

    lane: Ranks
    number: int
    formals: tuple[int, ...]
    results: tuple[int, ...]


class _Recording:
    """One recording of a function.

    Args:
        arguments: The tensors among the arguments.
        leaves: Of the result, and
        tree: its structure.
    """

    def __init__(
        self, name: str, recorder: Recorder, arguments: Sequence[Tensor], leaves: list[Any], tree: Any
    ) -> None:
        self.recorder: Recorder | None = recorder  # until it was compared with another
        self.verified = False
        self._name = name
        self._tree = tree
        self._engine: Any = recorder.engine  # None where there are no instructions
        self._streams = recorder.streams  # they live as long as this
        positions = {tensor._value.id: index for index, tensor in reversed(list(enumerate(arguments)))}
        ids = recorder.formals()
        self._formals: list[int | Value] = [positions.get(ref, recorder.used[ref]) for ref in ids]
        self._captures = [formal for formal in self._formals if isinstance(formal, Value)]
        self._pattern = self._pattern_of(arguments)
        storages = [recorder.used[ref].storage for ref in ids]
        self._written = [
            index for index, storage in enumerate(storages) if any(storage is each for each in recorder.written)
        ]
        self._results = [self._result_of(leaf, positions, recorder, storages) for leaf in leaves]
        self._made = list(dict.fromkeys(each.id for each in self._results if isinstance(each, _Made)))
        self._parts = list(self._define(recorder, ids))

    def _result_of(self, leaf: Any, positions: dict[int, int], recorder: Recorder, storages: list[Storage]) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        mixing.check(self._name, leaf, any_stream=True)
        if leaf.requires_grad:
            raise mixing.grad_error(f"the result of {self._name}", leaf)
        value = leaf._value
        if value.id in positions:
            return _Given(positions[value.id])
        if not recorder.was_made(value):
            return leaf
        shares = next((index for index, storage in enumerate(storages) if storage is value.storage), None)
        return _Made(value.id, value.mesh, value.lane, value.meta, id(value.storage), shares)

    def _define(self, recorder: Recorder, ids: list[int]) -> Iterator[_Part]:
        for lane, instructions, defined in recorder.parts():
            formals = tuple(index for index, ref in enumerate(ids) if recorder.is_on(ref, lane))
            results = tuple(index for index, ref in enumerate(self._made) if ref in defined)
            program = Program(
                instructions,
                tuple(ids[index] for index in formals),
                tuple(self._made[index] for index in results),
                tuple(position for position, index in enumerate(formals) if index in self._written),
                recorder.references,
            )
            number = next(self._engine.ids)
            self._engine.submit(self._engine.every_stream_of(lane), (PROGRAM, number, program))
            yield _Part(lane, number, formals, results)

    def fits(self, arguments: Sequence[Tensor]) -> bool:
        """Whether the arguments share memory with captures as they did."""
        return self._pattern_of(arguments) == self._pattern

    def _pattern_of(self, arguments: Sequence[Tensor]) -> list[int | None]:
        return [
            next((index for index, each in enumerate(self._captures) if each.storage is tensor._value.storage), None)
            for tensor in arguments
        ]

    def replay(self, arguments: Sequence[Tensor]) -> Any:
        """Run it on the ranks; returns what the function returned, with tensors of its own."""
        values = [each if isinstance(each, Value) else arguments[each]._value for each in self._formals]
        self._check(values)
        held = holder()
        if held is not None:
            held.note(values)
        made: dict[int, Tensor] = {}
        storages: dict[int, Storage] = {}
        results = [self._made_result(each, arguments, values, made, storages) for each in self._results]
        ids, outputs = [value.id for value in values], [made[ref]._value.id for ref in self._made]
        site = sites.here()
        for lane, number, formals, given in self._parts:
            instruction = (REPLAY, site, number, [ids[index] for index in formals], [outputs[index] for index in given])
            self._engine.submit(lane, instruction)
        self._note_writes(values, arguments)
        return pytree.tree_unflatten(results, self._tree)

    def _check(self, values: list[Value]) -> None:
        for value in values:
            if value.storage.barred is not None:
                mixing.check(self._name, handle(value), any_stream=True)
        for index in self._written:
            if values[index].storage.frozen is not None:
                mixing.check_write(self._name, handle(values[index]))

    def _made_result(
        self,
        result: Any,
        arguments: Sequence[Tensor],
        values: list[Value],
        made: dict[int, Tensor],
        storages: dict[int, Storage],
    ) -> Any:
        if isinstance(result, _Given):
            return arguments[result.argument]
        if not isinstance(result, _Made):
            return result
        if result.id not in made:
            is_new = result.shares is None and result.storage not in storages
            storage = (
                values[result.shares].storage
                if result.shares is not None
                else storages.setdefault(result.storage, Storage())
            )
            value = Value(next(result.mesh.engine.ids), result.mesh, result.lane, result.meta, storage)
            if (held := holder()) is not None:
                held.born(value, is_new)
            made[result.id] = handle(value)
        return made[result.id]

    def _note_writes(self, values: list[Value], arguments: Sequence[Tensor]) -> None:
        written = [values[index].storage for index in self._written]
        for storage in written:
            storage.known = None
        for tensor in arguments:
            if any(tensor._value.storage is storage for storage in written):
                torch.autograd.graph.increment_version(tensor)

    def __del__(self) -> None:
        for part in getattr(self, "_parts", ()):
            part.lane.freed.append((part.lane, (PROGRAM, part.number, None)))


class Recorded:
    """A function that is recorded and replayed; made by `record`."""

    def __init__(self, function: Callable[..., Any], verify: bool) -> None:
        self._function = function
        self._verify = verify
        self._recordings: dict[Any, list[_Recording]] = {}
        functools.update_wrapper(self, function)
        self._name = getattr(function, "__qualname__", repr(function))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if isinstance(holder(), Recorder):  # part of another recording
            return self._function(*args, **kwargs)
        leaves, tree = pytree.tree_flatten((args, kwargs))
        tensors = self._check(leaves)
        key = self._kind(leaves, tree)
        found = next((each for each in self._recordings.get(key, ()) if each.fits(tensors)), None)
        if found is None:
            found = self._record(args, kwargs, tensors)
            self._recordings.setdefault(key, []).append(found)
        elif self._verify and not found.verified:
            self._compare(found, args, kwargs, tensors)
        return found.replay(tensors)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """As a method: each instance has recordings of its own."""
        return self if instance is None else functools.partial(self, instance)

    def _check(self, leaves: list[Any]) -> list[Tensor]:
        tensors: list[Any] = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        for tensor in tensors:
            mixing.check(self._name, tensor, any_stream=True)
            if tensor.requires_grad:
                raise mixing.grad_error(f"{self._name}, which is recorded,", tensor)
        return tensors

    def _kind(self, leaves: list[Any], tree: Any) -> Any:
        parts: list[Any] = [
            tree,
            active_mesh(),
            active.get().number,
            torch.is_grad_enabled(),
            torch.get_default_dtype(),
            *((torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)) for device in ("cpu", "cuda")),
        ]
        seen: list[tuple[Value, Storage]] = []
        for leaf in leaves:
            parts.append(type(leaf))
            if isinstance(leaf, Tensor):
                value = leaf._value
                same = next((index for index, (each, _) in enumerate(seen) if each is value), None)
                alias = next((index for index, (_, each) in enumerate(seen) if each is value.storage), None)
                parts += [value.meta, value.mesh, value.lane, same, alias]
                seen.append((value, value.storage))
            else:
                parts.append(leaf.hex() if type(leaf) is float else leaf)  # 0.0 == -0.0, and nan is never the same
        try:
            hash(tuple(parts))
        except TypeError as error:
            raise TypeError(
                f"arguments of {self._name}, which is recorded, are tensors or can be hashed: {error}"
            ) from None
        return tuple(parts)

    def _run(self, args: Any, kwargs: Any, tensors: list[Tensor]) -> tuple[Recorder, Any]:
        recorder = Recorder([tensor._value for tensor in tensors])
        before = [tensor._value for tensor in tensors]
        with recorder.installed():
            result = self._function(*args, **kwargs)
            if any(tensor._value is not value for tensor, value in zip(tensors, before, strict=True)):
                raise NotImplementedError(
                    f"{self._name} changes the shape of an argument in place, which can't be replayed"
                )
        return recorder, result

    def _record(self, args: Any, kwargs: Any, tensors: list[Tensor]) -> _Recording:
        recorder, result = self._run(args, kwargs, tensors)
        try:
            return _Recording(self._name, recorder, tensors, *pytree.tree_flatten(result))
        finally:
            recorder.void(f"it was made in {self._name}, which is recorded and does not return it")

    def _compare(self, found: _Recording, args: Any, kwargs: Any, tensors: list[Tensor]) -> None:
        recorder, _ = self._run(args, kwargs, tensors)
        recorder.void(f"it was made in {self._name}, which is recorded and does not return it")
        assert found.recorder is not None  # until now
        text = difference(found.recorder, recorder)
        if text:
            raise RuntimeError(
                f"{self._name} diverges from its recording, so it can't be replayed: run again with the same arguments, it did "
                f"something else. (-: recorded, +: now)\n{text}"
            )
        found.verified, found.recorder = True, None

    def __repr__(self) -> str:
        return f"<recorded {self._name}>"


@overload
def record(function: Callable[P, R], verify: bool = ...) -> Callable[P, R]: ...
@overload
def record(function: None = ..., verify: bool = ...) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def record(function: Any = None, verify: bool = True) -> Any:
    """Have a function recorded when it is first called, and replayed from then on: ``@record``, ``record(f)``.

    A replay costs one message per rank, however many operations it has; what the function does besides issuing operations, it
    does while it is recorded and not again. There is a recording for each kind of arguments: for each combination of the
    metadata of tensors, of which of them share memory, and of the values of all other arguments.

    Arguments and results must not require gradients; tensors that the function takes from elsewhere may, and a whole step of
    training can be recorded. What it makes and does not return can't be used after it. An error on a rank fails all results, and all
    that the function writes to.

    Args:
        verify: Run the function a second time, when it is called the second time, and compare.

    Raises:
        TypeError: An argument that is no tensor can't be hashed; a tensor requires a gradient, or can't be used.
        RuntimeError: The second time it did something else.
        NotImplementedError: It fetches something, or sends a tensor to an actor.
    """
    if function is None:
        return lambda function: Recorded(function, verify)
    if not callable(function):
        raise TypeError(f"record takes a function, got {function!r}")
    return Recorded(function, verify)
