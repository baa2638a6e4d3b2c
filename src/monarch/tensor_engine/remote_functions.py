"""Functions of the user that run on every rank of a mesh, on the tensors that the rank has.

What the program goes on with are the *results*: their shapes must be known here before the function
has run. A rule says them (``propagate=``), run on fake tensors; without one the first call with
arguments of its kind waits for the ranks to tell what came out, and later ones go by that.
"""

from __future__ import annotations

import pickle
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar, overload

import torch
from torch.utils import _pytree as pytree

from .._core.plane import Shape, Slice, pickling
from ..actor import Future, ValueMesh
from . import call_sites, fakes, operand_checks
from .activation import active_mesh, get_active_mesh, no_mesh
from .fetching import raise_poison, rank_at, read_here
from .functions import find
from .instructions import CALL, UNPACK, Call, Expected, Found, Told
from .lru import LRU
from .plans import Output, Plan, Same, plan_of
from .rank_mesh import RankMesh
from .references import collecting
from .tensor import Tensor, new_tensor, new_value, view_of
from .tensor_base import TensorBase
from .worker import workers

P = ParamSpec("P")
R = TypeVar("R")
_PATTERNS = 4096  # kinds of arguments of one function of which it is known what comes out


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
        """In KiB."""
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
        tensor._value.storage.known = None  # what the function does to it nobody here sees
    return Arguments(
        leaves,
        tree,
        tensors,
        (payload, [pickle.PickleBuffer(each) for each in buffers]),
        bool(buffers),
    )


class Remote(Generic[P, R]):
    """A function to be run on ranks; made by `remote`. Calling it is `rref`."""

    def __init__(self, function: Any, propagate: Any) -> None:
        if propagate == "mocked":
            raise NotImplementedError("propagate='mocked' is not supported; give a function")
        if not (propagate in (None, "cached", "inspect") or callable(propagate)):
            raise TypeError(
                f"propagate is a function, 'cached', 'inspect' or None; got {propagate!r}"
            )
        self._function = function
        self._propagate = propagate
        self._patterns: LRU[Any, tuple[Plan, Any]] = LRU(_PATTERNS)
        self._wire: Any = None
        self.__doc__ = getattr(function, "__doc__", None)
        self.__name__ = (
            function if isinstance(function, str) else getattr(function, "__name__", repr(function))
        )

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """`rref`; on a rank, where one remote function calls another, the function itself."""
        if (
            workers
            and active_mesh() is None
            and not any(isinstance(leaf, Tensor) for leaf in pytree.tree_leaves((args, kwargs)))
        ):
            return find(self._wired())(*args, **kwargs)
        return self.rref(*args, **kwargs)

    def rref(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Run it on the mesh of its arguments, or on the active one; returns its results as
        distributed tensors.

        Results do not require gradients.

        Raises:
            ValueError: There is no tensor among the arguments, and no active mesh.
            TypeError: The tensors do not belong together.
            RemoteException: Without a rule: the first call failed.
        """
        arguments = pack(self.__name__, args, kwargs)
        mesh = arguments.tensors[0].mesh if arguments.tensors else get_active_mesh()
        for tensor in arguments.tensors:
            if tensor.mesh is not mesh:
                raise operand_checks.error(self.__name__, arguments.tensors, {})
        if self._propagate == "inspect":
            self._submit(mesh, arguments, None, ())
            return None
        if callable(self._propagate):
            plan, tree = propagated(self._propagate, arguments)
        else:
            key = self._key(mesh, arguments)
            pattern = self._patterns.get(key) if key is not None else None
            if pattern is None:
                return self._first(mesh, arguments, key)
            plan, tree = pattern
        made = results(mesh, plan, arguments.tensors)
        self._submit(mesh, arguments, plan, made)
        return pytree.tree_unflatten(built(plan, made, arguments.tensors), tree)

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Future[ValueMesh[R]]:
        """Run it on the active mesh; a future of what each rank returned, tensors on the CPU.

        Raises:
            ValueError: No mesh is active, or a tensor is not on all of its ranks.
        """
        mesh = get_active_mesh()
        shape = Shape(mesh._labels, Slice.new_row_major(mesh._ndslice.sizes))
        call = self._asked(self._pack_for(mesh, args, kwargs))
        answers = mesh.engine.call(
            mesh.lane, "invoke", (call_sites.here(), call), f"{self.__name__}()"
        )
        return read_here(answers, lambda replies: ValueMesh(shape, _values(replies.values())))

    def call_one(self, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """As `call`, on an active mesh of one rank.

        Raises:
            ValueError: It has more.
        """
        mesh = get_active_mesh()
        if len(mesh) != 1:
            raise ValueError(
                f"call_one requires exactly 1 rank, but the active mesh has {len(mesh)}:"
                f" {mesh.extent}"
            )
        return self._on_one(mesh, mesh.group.ranks[0], args, kwargs)

    def choose(self, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Run it on one rank of the active mesh, picked at random; a future of what it returned."""
        mesh = get_active_mesh()
        return self._on_one(mesh, random.choice(mesh.group.ranks), args, kwargs)

    def stream(self, *args: P.args, **kwargs: P.kwargs) -> Iterator[Future[R]]:
        """As `call`; an iterator of one future per rank, in the order in which they answer."""
        mesh = get_active_mesh()
        call = self._asked(self._pack_for(mesh, args, kwargs))
        answers = mesh.engine.stream(
            mesh.lane, "invoke", (call_sites.here(), call), f"{self.__name__}()"
        )
        return iter([read_here(answer, lambda reply: _values([reply])[0]) for answer in answers])

    def broadcast(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Run it on the active mesh and want no answer."""
        mesh = get_active_mesh()
        arguments = self._pack_for(mesh, args, kwargs)
        call = self._asked(arguments)
        mesh.engine.submit(
            mesh.lane, (CALL, call_sites.here(), call), arguments.changing, arguments.weight
        )

    def on_shard(self, mesh: RankMesh, rank: int, args: Any, kwargs: Any) -> Future[R]:
        """Run it on one rank; a future of what it returned."""
        return self._on_one(mesh, rank, args, kwargs)

    # one way

    def _submit(
        self, mesh: RankMesh, arguments: Arguments, plan: Plan | None, made: Sequence[Tensor]
    ) -> None:
        call = self._as_call(arguments, plan, made)
        mesh.engine.submit(
            mesh.lane, (CALL, call_sites.here(), call), arguments.changing, arguments.weight
        )

    def _as_call(
        self, arguments: Arguments, plan: Plan | None, made: Sequence[Tensor] | None
    ) -> Call:
        ids = arguments.ids
        writes = () if plan is None else tuple(ids[index] for index in plan.writes)
        if plan is None or made is None:
            return Call(self._wired(), arguments.payload, ids, writes)
        return Call(self._wired(), arguments.payload, ids, writes, *outputs_of(plan, made))

    def _wired(self) -> Any:
        """The function as workers find it; made once."""
        if self._wire is None:
            found = resolve(self._function)
            self._wire = found if isinstance(found, str) else self._pickled(found)
        return self._wire

    def _pickled(self, function: Any) -> bytes:
        try:
            return pickling.dumps_inline(function)
        except TypeError as error:
            raise TypeError(
                f"{self.__name__} can't be sent to the ranks, with what it refers to: {error}. Open"
                " files, locks and functions made by torch.compile are made inside of it, or in a"
                " module that the ranks import"
            ) from error

    # without a rule

    def _key(self, mesh: RankMesh, arguments: Arguments) -> Any:
        """Return the key that results depend on; None if an argument can't be hashed."""
        parts: list[Any] = [mesh.engine.uid, arguments.tree]
        parts += [
            type(leaf) if isinstance(leaf, Tensor) else (type(leaf), leaf)
            for leaf in arguments.leaves
        ]
        values = [tensor._value for tensor in arguments.tensors]
        storages = [value.storage for value in values]
        # which of them are the same tensor, or share memory, is a part of it: so may the results
        parts += [
            (value.meta, values.index(value), storages.index(value.storage)) for value in values
        ]
        try:
            hash(tuple(parts))
        except TypeError:
            return None
        return tuple(parts)

    def _first(self, mesh: RankMesh, arguments: Arguments, key: Any) -> Any:
        """Run it and wait for the pattern of its results."""
        engine, lane = mesh.engine, mesh.lane
        bundle = next(engine.ids)
        call = self._as_call(arguments, None, None)
        frozen = tuple(
            tensor._value.id
            for tensor in arguments.tensors
            if tensor._value.storage.frozen is not None
        )
        replies = engine.call(
            lane, "run_and_tell", (call_sites.here(), call, bundle, frozen), f"{self.__name__}()"
        ).get()
        try:
            raise_poison(replies.values())
            plan, tree = self._pattern(dict(zip(lane.ranks, replies.values(), strict=True)))
            made = results(mesh, plan, arguments.tensors)
        except Exception:
            lane.freed.append(bundle)
            raise
        if key is not None:
            self._patterns[key] = (plan, tree)
        engine.submit(lane, (UNPACK, bundle, outputs_of(plan, made)[0]))
        return pytree.tree_unflatten(built(plan, made, arguments.tensors), tree)

    def _pattern(self, told: dict[int, Told]) -> tuple[Plan, Any]:
        """The plan of a call, with the leaves of its result as a list, and their structure, from
        what each rank has told.

        Raises:
            ValueError: The ranks do not agree.
        """
        first = next(iter(told.values()))
        if any(_kind(each) != _kind(first) for each in told.values()):
            shown = "\n".join(f"  rank {rank}: {_text(each)}" for rank, each in told.items())
            raise ValueError(
                f"{self.__name__} gave other results on one rank than on another, so they can't be"
                " distributed tensors; give all ranks the same shapes and types, or ask for values"
                f" with call():\n{shown}"
            )
        leaves = [
            Same(leaf) if isinstance(leaf, int) else _output(leaf) if leaf is not None else None
            for leaf in first.leaves
        ]
        written = sorted({index for each in told.values() for index in each.written})
        return Plan(leaves, tuple(written), known=False), pytree.tree_structure(first.skeleton)

    # asking

    def _pack_for(self, mesh: RankMesh, args: Any, kwargs: Any) -> Arguments:
        arguments = pack(self.__name__, args, kwargs)
        for tensor in arguments.tensors:
            if (
                tensor.mesh.engine is not mesh.engine
                or not mesh.group.members <= tensor.mesh.group.members
            ):
                raise ValueError(
                    f"the active mesh, {mesh!r}, is not a subset of the mesh of {tensor!r}"
                )
        return arguments

    def _asked(self, arguments: Arguments) -> Call:
        plan = propagated(self._propagate, arguments)[0] if callable(self._propagate) else None
        return self._as_call(arguments, plan, None)

    def _on_one(self, mesh: RankMesh, rank: int, args: Any, kwargs: Any) -> Future[R]:
        call = self._asked(self._pack_for(mesh, args, kwargs))
        engine = mesh.engine
        answers = engine.call(
            engine.group([rank], mesh.lane.stream),
            "invoke",
            (call_sites.here(), call),
            f"{self.__name__}()",
        )
        return read_here(answers, lambda replies: _values(replies.values())[0])

    def __repr__(self) -> str:
        return f"<remote {self.__name__}>"


@overload
def remote(function: Callable[P, R], *, propagate: Any = ...) -> Remote[P, R]: ...
@overload
def remote(
    function: None = ..., *, propagate: Any = ...
) -> Callable[[Callable[P, R]], Remote[P, R]]: ...
@overload
def remote(function: Any, *, propagate: Any = ...) -> Remote[..., Any]: ...
def remote(function: Any = None, *, propagate: Any = None) -> Any:
    """Make a function run on ranks: ``remote(f)``, ``@remote``, ``@remote(propagate=rule)``,
    ``remote("package.module.f")``.

    Args:
        function: A function, an operator of torch, or the dotted name of one, which need not be
            importable here.
        propagate: Says what results look like:

            * a function with the same arguments, which gets fake tensors and returns fake tensors:
              what it does to its arguments in place, and which of them its results share memory
              with, counts as well;
            * ``"inspect"``: there are no results;
            * ``None`` or ``"cached"``: found out by the first call with such arguments, which waits
              for the ranks. Other arguments than tensors should be hashable, or every call is a
              first one.

    Returns:
        A `Remote`: call it, or use ``rref``, ``call``, ``call_one``, ``choose``, ``stream`` and
        ``broadcast``.
    """
    if function is None:
        return lambda function: Remote(function, propagate)
    return Remote(function._function if isinstance(function, Remote) else function, propagate)


def call_on_shard_and_fetch(
    function: Any, *args: Any, shard: dict[str, int] | None = None, **kwargs: Any
) -> Future[Any]:
    """Run a remote function on one rank of the active mesh, or of that of its arguments; a future
    of what it returned.

    Args:
        function: What `remote` gave.
        shard: Coordinates of the rank: all of them, or none for the first.
    """
    found: Remote[..., Any] = function if isinstance(function, Remote) else remote(function)
    tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    mesh = tensors[0].mesh if tensors else get_active_mesh()
    return found.on_shard(mesh, rank_at(mesh, shard or {}), args, kwargs)


# how functions are found on workers

Resolver = Callable[[Any], Any]


def _operator(function: Any) -> Any:
    if isinstance(function, torch._ops.OpOverload):
        return f"{function._schema.name}.{function._overloadname}"
    return None


def _dotted(function: Any) -> Any:
    return function if isinstance(function, str) and "." in function else None


def _decorated(function: Any) -> Any:
    """A function whose name stands for what `remote` made of it."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "<")
    if module in (None, "__main__") or "<" in name:
        return None
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return f"{module}.{name}" if isinstance(found, Remote) and found._function is function else None


function_resolvers: list[Resolver] = [_operator, _dotted, _decorated]
"""Each gets what `remote` was given and returns how workers find it, a dotted name or a picklable
function, or None if that is not its business. The first that answers counts; without an answer the
function is pickled.
"""


def resolve(function: Any) -> Any:
    """Return the reference by which workers find a function.

    Raises:
        TypeError: It is neither callable nor a dotted name.
    """
    for resolver in function_resolvers:
        found = resolver(function)
        if found is not None:
            return found
    if not callable(function):
        raise TypeError(f"remote takes a function or the dotted name of one, got {function!r}")
    return function


# results


def propagated(rule: Callable[..., Any], arguments: Arguments) -> tuple[Plan, Any]:
    """Apply a user's rule; return the plan, with the leaves of the result as a list, and their
    structure.
    """
    with no_mesh.activate(), fakes.faking():
        stand_ins = [tensor._value.meta.fake() for tensor in arguments.tensors]
        versions = [fake._version for fake in stand_ins]
        fake = iter(stand_ins)
        args, kwargs = pytree.tree_unflatten(
            [next(fake) if isinstance(leaf, Tensor) else leaf for leaf in arguments.leaves],
            arguments.tree,
        )
        leaves, tree = pytree.tree_flatten(rule(*args, **kwargs))
        written = tuple(
            index for index, fake in enumerate(stand_ins) if fake._version != versions[index]
        )
        _check_shapes(arguments.tensors, stand_ins)
        return plan_of(leaves, stand_ins, written), tree


def _check_shapes(tensors: Sequence[TensorBase], stand_ins: Sequence[Any]) -> None:
    for tensor, fake in zip(tensors, stand_ins, strict=True):
        if fakes.meta_of(fake).geometry != tensor._value.meta.geometry:
            raise NotImplementedError(
                "a rule changes the shape or the strides of an argument in place, from"
                f" {tuple(tensor.shape)} to {tuple(fake.shape)}, and handles of it would not know:"
                " return a view of it"
            )


def results(mesh: RankMesh, plan: Plan, tensors: Sequence[TensorBase]) -> list[Tensor]:
    """Handles of what is about to be made; what shares memory with an argument shares its storage
    here.
    """
    for index in plan.writes:
        operand_checks.check_write("a remote function", tensors[index])
    for index in plan.writes:
        torch.autograd.graph.increment_version(tensors[index])
    return [
        (
            new_tensor(mesh, output.meta)
            if output.shares is None
            else _sharing(mesh, output.meta, tensors[output.shares])
        )
        for output in plan.outputs
    ]


def _sharing(mesh: RankMesh, meta: fakes.Meta, tensor: TensorBase) -> Tensor:
    return view_of(tensor, new_value(mesh, meta, tensor._value.storage))


def outputs_of(
    plan: Plan, made: Sequence[Tensor]
) -> tuple[tuple[int, ...], tuple[Expected | None, ...]]:
    """The id of each leaf of a result, 0 for what is not new, and what it is expected to be."""
    ids = plan.ids([tensor._value.id for tensor in made]) or (0,) * len(plan.result)
    expected = [
        (
            Expected(leaf.meta.shape, leaf.meta.dtype, leaf.shares)
            if isinstance(leaf, Output)
            else None
        )
        for leaf in plan.result
    ]
    return ids, tuple(expected)


def built(plan: Plan, made: Sequence[Tensor], tensors: Sequence[TensorBase]) -> list[Any]:
    """The leaves of a result."""
    new = iter(made)
    return [
        (
            next(new)
            if isinstance(leaf, Output)
            else tensors[leaf.index]
            if isinstance(leaf, Same)
            else leaf
        )
        for leaf in plan.result
    ]


def _kind(told: Told) -> Any:
    """Return the part of a report that must be equal on all ranks.

    Memory layout need not be: a part of a tensor may differ by rank.
    """
    leaves = [
        (leaf.shape, leaf.dtype, leaf.device.type, leaf.shares) if isinstance(leaf, Found) else leaf
        for leaf in told.leaves
    ]
    return pytree.tree_structure(told.skeleton), leaves


def _text(told: Told) -> str:
    texts = []
    for leaf in told.leaves:
        if isinstance(leaf, Found):
            shares = (
                ""
                if leaf.shares is None
                else f" that shares memory with tensor {leaf.shares} of its arguments"
            )
            texts.append(
                f"a {leaf.dtype} tensor of shape {leaf.shape} on {leaf.device.type}{shares}"
            )
        else:
            texts.append("no tensor" if leaf is None else f"tensor {leaf} of its arguments")
    many = pytree.tree_structure(told.skeleton).is_leaf()
    return (
        ", ".join(texts)
        if many
        else f"{type(told.skeleton).__name__} of {', '.join(texts) or 'nothing'}"
    )


def _output(leaf: Found) -> Output:
    return Output(fakes.interned(tuple(leaf[:-1])), leaf.shares)


def _values(replies: Iterable[Any]) -> list[Any]:
    pairs = list(replies)
    raise_poison(poison for _, poison in pairs)
    return [value for value, _ in pairs]
