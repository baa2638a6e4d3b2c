"""Functions of the user that run on every rank of a mesh, on the tensors that the rank has.

What the program goes on with are the *results*: their shapes must be known here before the function
has run. A rule says them (``propagate=``), run on fake tensors; without one the first call with
arguments of its kind waits for the ranks to tell what came out, and later ones go by that.
"""

from __future__ import annotations

import functools
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, ParamSpec, TypeVar, overload

import torch
from torch.utils import _pytree as pytree

from ..._core.plane import Shape, Slice, pickling
from ...actor import Future, Port, ValueMesh
from .. import call_sites
from ..instructions import CALL, UNPACK, Call
from ..lru import LRU
from ..planning.plans import Plan
from ..tensors import operand_checks
from ..tensors.activation import active_mesh, get_active_mesh
from ..tensors.fetching import raise_poison, rank_at, read_here
from ..tensors.rank_mesh import RankMesh
from ..tensors.tensor import Tensor
from ..worker.functions import find
from ..worker.worker import workers
from .call_arguments import Arguments, pack
from .propagation import built, outputs_of, propagated, results, told_by

P = ParamSpec("P")
R = TypeVar("R")
_PATTERNS = 4096  # kinds of arguments of one function of which it is known what comes out


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
        """Run it on the mesh of its arguments, or on the active one.

        It returns its results as distributed tensors.

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
        return read_here(answers, lambda replies: ValueMesh(shape, _values(replies.values(), mesh)))

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
        return iter(
            [read_here(answer, lambda reply: _values([reply], mesh)[0]) for answer in answers]
        )

    def broadcast(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Run it on the active mesh and want no answer."""
        mesh = get_active_mesh()
        arguments = self._pack_for(mesh, args, kwargs)
        call = self._asked(arguments)
        mesh.engine.submit(
            mesh.lane, (CALL, call_sites.here(), call), arguments.changing, arguments.weight
        )

    def send(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], port: Port[R] | None, selection: str
    ) -> None:
        """Run it on the active mesh; each result, or error, goes to a port: `monarch.actor.send`.

        Args:
            args: Arguments of the function.
            kwargs: The same by name.
            port: Where the results go, with the rank in the active mesh; None wants none.
            selection: ``"all"``, or ``"choose"`` for one rank.
        """
        mesh = get_active_mesh()
        ranks = mesh.group.ranks
        if port is None and selection == "all":
            self.broadcast(*args, **kwargs)
            return
        for place in range(len(ranks)) if selection == "all" else [random.randrange(len(ranks))]:
            answer = self._on_one(mesh, ranks[place], args, kwargs)
            if port is not None:
                answer.add_done_callback(functools.partial(_pass_on, port._of_rank(place)))

    def on_shard(self, mesh: RankMesh, rank: int, args: Any, kwargs: Any) -> Future[R]:
        """Run it on one rank; a future of what it returned.

        Args:
            mesh: The mesh of the rank.
            rank: The rank in it.
            args: Arguments of the function.
            kwargs: Arguments of the function by name.
        """
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
            raise_poison(replies.values(), engine)
            plan, tree = told_by(
                self.__name__, dict(zip(lane.ranks, replies.values(), strict=True))
            )
            made = results(mesh, plan, arguments.tensors)
        except Exception:
            lane.freed.append(bundle)
            raise
        if key is not None:
            self._patterns[key] = (plan, tree)
        engine.submit(lane, (UNPACK, bundle, outputs_of(plan, made)[0]))
        return pytree.tree_unflatten(built(plan, made, arguments.tensors), tree)

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
        lane = mesh.engine.group([rank], mesh.lane.stream)
        answers = mesh.engine.call(lane, "invoke", (call_sites.here(), call), f"{self.__name__}()")
        return read_here(answers, lambda replies: _values(replies.values(), mesh)[0])

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
    """Make a function run on ranks.

    Use ``remote(f)``, ``@remote``, ``@remote(propagate=rule)`` or
    ``remote("package.module.f")``.

    Args:
        function: A function, an operator of torch, or the dotted name of one, which need not be
            importable here.
        propagate: Says what results look like:

            * a function with the same arguments, which gets fake tensors and returns fake tensors:
              what it does to its arguments in place, and which of them its results share memory
              with, counts as well. An argument that it returns as it is says what a result looks
              like, not that it is the argument;
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
    """Run a remote function on one rank of the active mesh, or of that of its arguments.

    It returns a future of the result.

    Args:
        function: What `remote` gave.
        *args: Arguments of the function.
        shard: Coordinates of the rank: all of them, or none for the first.
        **kwargs: As `args`.
    """
    found: Remote[..., Any] = function if isinstance(function, Remote) else remote(function)
    tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    mesh = tensors[0].mesh if tensors else get_active_mesh()
    return found.on_shard(mesh, rank_at(mesh, shard or {}), args, kwargs)


def _pass_on(port: Port[Any], answer: Future[Any]) -> None:
    try:
        port.send(answer.get())
    except Exception as error:
        port.exception(error)


# how functions are found on workers

Resolver = Callable[[Any], Any]


def _operator(function: Any) -> Any:
    if isinstance(function, torch._ops.OpOverload):
        return f"{function._schema.name}.{function._overloadname}"
    return None


def _dotted(function: Any) -> Any:
    return function if isinstance(function, str) and "." in function else None


def _decorated(function: Any) -> Any:
    """A function found by a name that refers to its `remote` wrapper."""
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


def _values(replies: Iterable[Any], mesh: RankMesh) -> list[Any]:
    pairs = list(replies)
    raise_poison((poison for _, poison in pairs), mesh.engine)
    return [value for value, _ in pairs]
