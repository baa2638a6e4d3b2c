"""Distributed tensors, and how an operation on them is issued.

A `Tensor` is a handle: it knows its mesh and its metadata, and a number under which each rank of
the mesh keeps an ordinary tensor. torch's own dispatcher does what lies above operators (autograd,
autocast, composite operations), here on the controller; what comes out at the bottom is
given to `dispatch`: checked, given handles for its results, and sent.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from contextlib import nullcontext
from math import prod
from typing import TYPE_CHECKING, Any, NoReturn, cast

import torch
from torch.autograd.grad_mode import set_multithreading_enabled
from torch.utils import _pytree as pytree

from .. import call_sites
from ..controller.engine import holder, holders
from ..instructions import CONSTANT, SMALL, Definition
from ..planning import fakes, plans, settings
from ..planning.fakes import Meta
from ..planning.plans import NUMBERS, Operator, Output, Plan, Same, operator, template_arguments
from . import generators, operand_checks, references
from .streams import active
from .tensor_base import Storage, TensorBase, Value

if TYPE_CHECKING:
    from ..controller.engine import Ranks
    from .device_mesh import DeviceMesh
    from .rank_mesh import RankMesh

_current_settings = settings.current
_AS_STRIDED = torch.ops.aten.as_strided.default
_LOCAL_SCALAR = torch.ops.aten._local_scalar_dense.default
_LIFTS = ("aten::lift_fresh", "aten::lift_fresh_copy", "aten::lift")
_REINTERPRETS = frozenset((
    "aten::view.dtype", "aten::_conj.default", "aten::_neg_view.default",
    "aten::view_as_real.default", "aten::view_as_complex.default",
))  # fmt: skip
# what printing, numpy, reading values and unpickling do
_PASSED_ON = (  # whole ones, too, as they come in inference mode
    "aten::_local_scalar_dense", "aten::detach", "aten::is_nonzero", "aten::item",
    "aten::resolve_conj", "aten::resolve_neg", "aten::set_", "prim::device", "prim::layout",
)  # fmt: skip


class Tensor(TensorBase):
    """A tensor on every rank of a mesh.

    Made by torch's own functions while a mesh is active, and by operations on others.

    Attributes:
        mesh: Where it lives.
        stream: The stream that may use it in operations.
    """

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]
    mesh: DeviceMesh

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return dispatch(func, args, kwargs or {}, None)

    def backward(self, *args: Any, **kwargs: Any) -> None:
        """As for any tensor, on this thread, as where a mesh is active: see `activation`."""
        with set_multithreading_enabled(False):
            super().backward(*args, **kwargs)

    @property
    def data(self) -> Any:
        return handle(self._value)

    @data.setter
    def data(self, new: Tensor) -> None:
        if not isinstance(new, Tensor):
            raise operand_checks.local_error("data =", new)
        if (held := holder()) is not None:
            held.moves(self)
        set_value(self, new._value)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        meta, grad = self._value.meta, ", requires_grad=True" if self.requires_grad else ""
        shape, mesh = tuple(self.shape), self.mesh.extent
        return (
            f"monarch.Tensor({shape}, dtype={meta.dtype}, device={str(meta.device)!r},"
            f" mesh={mesh}{grad})"
        )

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return repr(self)

    def tolist(self) -> Any:
        raise fakes.ValueNotHereError(_LOCAL_SCALAR)

    def numpy(self, *, force: bool = False) -> NoReturn:
        """Raise ValueNotHereError, always, even with `force`: the values are on the ranks."""
        raise fakes.ValueNotHereError(_LOCAL_SCALAR)

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any:
        raise fakes.ValueNotHereError(_LOCAL_SCALAR)  # others would read memory that is not there

    def __copy__(self) -> Tensor:
        """As of any tensor: another one of the same memory, and a leaf."""
        copied: Any = self.detach().requires_grad_(self.requires_grad)
        return copied

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        """Copied on the ranks, as torch copies a leaf.

        The copy has the gradient, and requires one if the leaf did.
        """
        if id(self) in memo:
            return memo[id(self)]
        if not self.is_leaf:
            raise RuntimeError(
                "only leaves of the graph can be deep-copied, as everywhere in torch; detach() it"
                " first"
            )
        copied: Any = self.detach().clone().requires_grad_(self.requires_grad)
        memo[id(self)] = copied
        copied.__dict__.update(
            {key: value for key, value in self.__dict__.items() if key != "_value"}
        )
        if self.grad is not None:
            copied.grad = self.grad.__deepcopy__(memo)
        return copied

    def __reduce_ex__(self, protocol: Any) -> Any:
        return references.reduce_tensor(self)


_wrap = torch.Tensor._make_wrapper_subclass


def handle(value: Value) -> Tensor:
    """A new handle of a value."""
    meta = value.meta
    made: Tensor = _wrap(
        Tensor, meta.shape, meta.stride, meta.offset, dtype=meta.dtype, device=meta.device
    )
    made._value = value
    return made


def set_value(tensor: TensorBase, value: Value) -> None:
    """Let a handle be one of another value. Autograd and other handles do not notice."""
    torch.Tensor.data.__set__(tensor, handle(value))
    tensor._value = value


def view_of(tensor: TensorBase, value: Value) -> Tensor:
    """A handle of a value that shares memory with a tensor.

    It has the tensor's versions, by which autograd tells who wrote to it.
    """
    made: Any = tensor.detach()
    set_value(made, value)
    return cast("Tensor", made)


def new_tensor(
    mesh: RankMesh, meta: Meta, storage: Storage | None = None, lane: Ranks | None = None
) -> Tensor:
    """A handle of a value that an instruction is about to make: see `new_value`."""
    return handle(new_value(mesh, meta, storage, lane))


def new_value(
    mesh: RankMesh, meta: Meta, storage: Storage | None = None, lane: Ranks | None = None
) -> Value:
    """A value that an instruction is about to make.

    Args:
        mesh: Where it will be.
        meta: Its metadata.
        storage: What it shares memory with; None for memory of its own.
        lane: Where that instruction goes; by default to the active stream.
    """
    value = Value(next(mesh.engine.ids), mesh, lane or mesh.lane, meta, storage or Storage())
    if (held := holder()) is not None:
        held.born(value)
    return value


def dispatch(
    func: Any, args: Any, kwargs: Any, active_mesh: RankMesh | None, mode: Any = None
) -> Any:
    """Issue one operation; the place where all of torch's end.

    Args:
        func: The operator of torch.
        args: Its arguments.
        kwargs: Its arguments by name.
        active_mesh: The active mesh, to which it belongs if no argument says otherwise.
        mode: The mode that has intercepted it, if one has.

    Raises:
        TensorError: Its tensors do not belong together; `OperatorError` where it is an operator.
        Exception: What torch raises for these shapes.
    """
    op = operator(func)
    if op.views and torch.is_inference_mode_enabled() and _is_normal(args):
        # a view has the version of what it is a view of; inference tensors have none
        with torch.inference_mode(False):
            return dispatch(func, args, kwargs, active_mesh)
    key: list[Any] = [op, _current_settings()]
    values: list[Value] = []
    numbers: list[Any] = []
    strangers = 0
    free = op.free
    for index, arg in enumerate(args):
        kind = type(arg)
        if kind is Tensor:
            value = arg._value
            key.append(value.meta)
            values.append(value)
        elif index in free and kind in NUMBERS:
            key.append(kind)
            numbers.append(arg)
        elif kind is list and index in op.free_lists:
            _scan_numbers(arg, key, numbers)
        else:
            strangers += _scan(arg, key, values)
    if kwargs:
        for name in sorted(kwargs):
            arg = kwargs[name]
            key.append(name)
            if name in free and type(arg) in NUMBERS:
                key.append(type(arg))
                numbers.append(arg)
            elif type(arg) is list and name in op.free_lists:
                _scan_numbers(arg, key, numbers)
            else:
                strangers += _scan(arg, key, values)
    if not values:
        if op.name.startswith("profiler::"):
            return func(*args, **kwargs)
        if strangers:
            return _local(op, func, args, kwargs, active_mesh)
        if active_mesh is None:
            raise operand_checks.local_error(op.path, None)
        mesh = active_mesh
        lane = mesh.lane
        if numbers and not op.without_tensors:
            key.extend(numbers)
            numbers = []
    else:
        mesh = values[0].mesh
        lane = values[0].lane
        for value in values:
            if value.lane is not lane or value.storage.barred is not None or value.mesh is not mesh:
                strangers = 1
        if strangers or lane.stream != active.get().number:
            operand_checks.admit(op.path, args, kwargs)
    held = holder() if holders else None
    if op.keeps:
        if held is not None:
            held.note(args[:1])
        return handle(values[0])
    if func is _LOCAL_SCALAR and (scalar := _known(values[0])) is not None:
        return scalar.item()
    engine = mesh.engine
    known_key = tuple(key)
    plan = engine.plans.get(known_key)
    if plan is None:
        plan = _new_plan(engine, op, args, kwargs, values, key[1])
        engine.plans[known_key] = plan
    if plan.constant:
        if not plan.same:
            return plan.result
        # In inference mode operators come whole that autograd takes apart elsewhere. That their
        # result is an argument may depend on numbers, which are not in the key.
        with mode or nullcontext():
            return func.decompose(*args, **kwargs)
    for index in plan.writes:
        if values[index].storage.frozen is not None:
            raise operand_checks.error(
                op.path, args, kwargs, [values[index].storage for index in plan.writes]
            )
    if kwargs and isinstance(generator := kwargs.get("generator"), torch.Generator):
        numbers.append(generators.take(generator, op.path))
    if held is not None:
        held.note(_tensors((args, kwargs)))
        held.changes(values[index].storage for index in plan.writes)
    if plan.moved:
        _rebase_all(plan, _tensors((args, kwargs)), values)
    if values and values[0].storage.known is not None and op.path in _REINTERPRETS:
        values[0].storage.known = None  # other handles read the same memory in another way
    known = _compute_known(op, plan, args, kwargs, values) if plan.known or plan.writes else None
    ids = engine.ids
    if plan.only is not None:
        output = plan.only
        storage = Storage(known) if output.shares is None else values[output.shares].storage
        number = next(ids)
        instruction = (
            plan.template, call_sites.here(), tuple([v.id for v in values]), number, tuple(numbers),
        )  # fmt: skip
        made: Tensor = _wrap(
            Tensor, *output.geometry, dtype=output.meta.dtype, device=output.meta.device
        )
        made._value = Value(number, mesh, lane, output.meta, storage)
        if held is not None:
            held.born(made._value)
        engine.submit(lane, instruction)
        return made
    results = [
        new_tensor(
            mesh,
            output.meta,
            None if output.shares is None else values[output.shares].storage,
            lane,
        )
        for output in plan.outputs
    ]
    outputs = plan.ids([each._value.id for each in results])
    engine.submit(
        lane,
        (plan.template, call_sites.here(), tuple([v.id for v in values]), outputs, tuple(numbers)),
    )
    given = _tensors((args, kwargs))
    for index, meta in plan.moved:
        values[index].meta = meta
        set_value(given[index], values[index])
    return build(plan.result, iter(results), given)


def _is_normal(args: Any) -> bool:
    """Return whether the first argument is a tensor that was not made in inference mode."""
    return bool(args) and isinstance(args[0], torch.Tensor) and not args[0].is_inference()


def build(result: Any, made: Any, given: Sequence[Any]) -> Any:
    """The result of an operation as the plan describes it."""
    if isinstance(result, Output):
        return next(made)
    if isinstance(result, Same):
        return given[result.index]
    if type(result) in (list, tuple):
        return type(result)([build(each, made, given) for each in result])
    return result


def _scan(arg: Any, key: list[Any], values: list[Value]) -> int:
    """Note an argument in the key and its tensors in `values`.

    It returns how many tensors are not distributed.
    """
    kind = type(arg)
    if kind is Tensor:
        key.append(arg._value.meta)
        values.append(arg._value)
        return 0
    if kind is list or kind is tuple or kind is torch.Size:
        key.append(len(arg))
        return sum([_scan(each, key, values) for each in arg])
    if isinstance(arg, torch.Tensor):
        return 1
    key.append(kind)
    key.append(arg.device if kind is torch.Generator else arg)
    return 0


def _scan_numbers(arg: Any, key: list[Any], numbers: list[Any]) -> None:
    """Note a list of numbers of which only the types matter."""
    key.append(len(arg))
    for each in arg:
        key.append(type(each))
        if type(each) in NUMBERS:
            numbers.append(each)
        else:
            key.append(each)


def _tensors(arg: Any) -> list[Tensor]:
    """The tensors among arguments, in the order of `_scan`."""
    if isinstance(arg, Tensor):
        return [arg]
    if isinstance(arg, (list, tuple)):
        return [tensor for each in arg for tensor in _tensors(each)]
    if isinstance(arg, dict):
        return [tensor for name in sorted(arg) for tensor in _tensors(arg[name])]
    return []


def _place(arg: Any, of: Any) -> Any:
    """Arguments with something else for each tensor."""
    count = itertools.count()

    def place(arg: Any) -> Any:
        if isinstance(arg, Tensor):
            return of(next(count))
        if type(arg) is dict:
            return {name: place(arg[name]) for name in sorted(arg)}
        if isinstance(arg, list):
            return [place(each) for each in arg]
        if type(arg) in (tuple, torch.Size):
            return tuple([place(each) for each in arg])
        return arg

    return place(arg)


def _new_plan(
    engine: Any, op: Operator, args: Any, kwargs: Any, values: list[Value], now: settings.Settings
) -> Plan:
    if any(isinstance(arg, torch.UntypedStorage) for arg in args):
        raise operand_checks.storage_error(op.path)
    plan = plans.make_plan(op, args, kwargs, [value.meta for value in values], _place)
    if not plan.constant:
        template = template_arguments(op, args, kwargs, _place, bool(values))
        engine.define(plan, Definition(op.path, *template, plan.writes, now, plan.layouts))
    return plan


# tensors that are not distributed


def _local(op: Operator, func: Any, args: Any, kwargs: Any, active_mesh: RankMesh | None) -> Any:
    """An operation on local tensors alone, which is a mistake, but for a few."""
    if active_mesh is not None and op.name in _LIFTS:
        return _constant(active_mesh, args[0])
    if op.name in _PASSED_ON or any(
        isinstance(leaf, fakes.FakeTensor) for leaf in pytree.tree_leaves((args, kwargs))
    ):  # fakes are the program's own: torch.export traces with them
        return func(*args, **kwargs)
    raise operand_checks.error(op.path, args, kwargs)


def _constant(mesh: RankMesh, data: torch.Tensor) -> Tensor:
    """Data that the program had at hand, the same for every rank: ``torch.tensor([1, 2])``."""
    size = data.numel() * data.element_size()
    small = size < SMALL
    if small:
        data = data.clone()
    storage = Storage(data.clone() if data.numel() == 1 else None)
    with fakes.faking():
        meta = fakes.meta_of(
            torch.empty_strided(data.shape, data.stride(), dtype=data.dtype, device=data.device)
        )
    made = new_tensor(mesh, meta, storage)
    mesh.engine.submit(
        mesh.lane, (CONSTANT, call_sites.here(), made._value.id, data), not small, size >> 10
    )
    return made


# values that the controller knows


def _known(value: Value) -> torch.Tensor | None:
    """Return the controller's copy of a value.

    During recording there is none: a recording serves other values as well.
    """
    known, shape = value.storage.known, value.meta.shape
    if known is None or ((held := holder()) is not None and not held.may_know(value)):
        return None
    if known.shape == shape:
        return known
    return known.view(shape) if prod(shape) == 1 else None  # a view of it


def _compute_known(
    op: Operator, plan: Plan, args: Any, kwargs: Any, values: list[Value]
) -> torch.Tensor | None:
    """Compute an operation here, on values that the controller has copies of.

    It returns the result if it is new.
    """
    knowns = [_known(value) for value in values]
    if plan.known and all(known is not None for known in knowns):
        local_args, local_kwargs = _place((args, kwargs), knowns.__getitem__)
        result: torch.Tensor = op.func(*local_args, **local_kwargs)
        return result if plan.only is not None and plan.only.shares is None else None
    for index in plan.writes:
        values[index].storage.known = None
    return None


# operations that change the geometry of a tensor in place: `t_`, `squeeze_`, those with an `out=`
# that they resize


def _rebase_all(plan: Plan, tensors: Sequence[Tensor], values: list[Value]) -> None:
    """Make tensors views of what they were; other handles of their values stay as they are."""
    for index, _ in plan.moved:
        tensor, meta = tensors[index], values[index].meta
        place = (tensor, meta.shape, meta.stride, meta.offset)
        view: Tensor = dispatch(_AS_STRIDED, place, {}, None)
        if (held := holder()) is not None:
            held.moves(tensor)
        values[index] = tensor._value = view._value
