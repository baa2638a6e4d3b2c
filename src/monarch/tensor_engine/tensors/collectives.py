"""Moving data between ranks.

Only these operations have results on one rank that depend on other ranks.

What they do is in `worker_collectives`; here is what they mean: meshes, shapes, gradients.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from ...actor import ProcMesh
from .. import call_sites, devices
from ..controller.engine import Engine
from ..controller.workers import Workers
from ..instructions import MOVE
from ..planning.fakes import Meta, contiguous
from ..worker.engine_transfer import ShardSource
from ..worker.worker_collectives import BITWISE, Reduction, TensorLook
from . import operand_checks
from .mesh_groups import groups_along, pairs, routes_between
from .streams import Stream
from .tensor import Tensor, new_tensor

if TYPE_CHECKING:
    from .device_mesh import DeviceMesh

_KINDS = ("stack", "sum", "avg", "product", "min", "max", "band", "bor", "bxor")
_LINEAR = ("stack", "sum", "avg")
STATE_BYTES = {"cpu": torch.get_rng_state().numel(), "cuda": 16}
"""How large the state of a generator of random numbers is, by device."""


def reduce(
    tensors: Any,
    dims: str | Iterable[str] = (),
    reduction: str = "sum",
    scatter: bool = False,
    mesh: DeviceMesh | ProcMesh | None = None,
    *,
    out: Tensor | None = None,
) -> Any:
    """Combine what the ranks along some dimensions of the mesh have, N of them.

    Each gets the result.

    ========================  ===============  ===================================  ===================
    reduction                 scatter=False    scatter=True, for shape ``[N, *S]``  is known as
    ========================  ===============  ===================================  ===================
    sum, avg, min, max,       shape as it is   ``[*S]``, the part of each           all-reduce;
    product, band, bor, bxor                                                        reduce-scatter
    stack                     ``[N, *shape]``  ``[N, *S]``                          all-gather;
                                                                                    all-to-all
    ========================  ===============  ===================================  ===================

    ``sum``, ``avg`` and ``stack`` pass gradients on: that of the sum over all ranks of what they
    compute from the result.

    Args:
        tensors: A tensor, or tensors in lists, tuples, dicts.
        dims: A label or several; none for all. Several only where each rank gets the same: not with
            ``stack`` or `scatter`.
        reduction: See above.
        scatter: See above.
        mesh: The part of the mesh that gets the result, such as ``mesh.slice(dp=0)``; by default
            the whole.
        out: One tensor that is overwritten with the result.

    Returns:
        Tensors of the results, nested as `tensors` is.

    Raises:
        KeyError: There is no such dimension.
        ValueError: A dimension twice, several where one is needed, an unknown reduction, or another
            mesh.
        TypeError: A tensor does not have the shape that it must have, or a type that can be reduced
            so, is a local one, or requires a gradient that can't be passed on.
    """
    return pytree.tree_map(
        lambda each: _reduce(each, dims, reduction, scatter, mesh, out, False), tensors
    )


def reduce_(
    tensors: Any,
    dims: str | Iterable[str] = (),
    reduction: str = "sum",
    scatter: bool = False,
    mesh: DeviceMesh | ProcMesh | None = None,
) -> Any:
    """As `reduce`, where the result has the shape of the input; overwrites it and returns it.

    Args:
        tensors: As for `reduce`.
        dims: As for `reduce`.
        reduction: As for `reduce`.
        scatter: As for `reduce`.
        mesh: As for `reduce`.

    Raises:
        ValueError: The result would have another shape.
    """
    return pytree.tree_map(
        lambda each: _reduce(each, dims, reduction, scatter, mesh, None, True), tensors
    )


def to_mesh(tensors: Any, mesh: DeviceMesh | ProcMesh, stream: Stream | None = None) -> Any:
    """Copy tensors to another mesh, rank to rank.

    The mesh may have other processes, that is, another engine.

    A rank of the destination gets what the rank with the same coordinates has; dimensions that only
    the destination has do not matter: all along them get the same. The result is a copy even where
    a rank sends to itself. Gradients are passed back.

    Args:
        tensors: A tensor, or tensors in lists, tuples, dicts; or what `slice_mesh` gave.
        mesh: The destination.
        stream: That of the result, on which it is received; by default the active one, from which
            it is sent.

    Returns:
        The copies, nested as `tensors` is.

    Raises:
        ValueError: The destination lacks a dimension, or has it in another size.
    """
    return pytree.tree_map(lambda each: _to_mesh(each, mesh, stream), tensors)


def slice_mesh(tensors: Any, **selection: int | slice) -> Any:
    """Select what some ranks have of tensors.

    Args:
        tensors: A tensor, or tensors in lists, tuples, dicts.
        **selection: As for `DeviceMesh.slice`.

    Returns:
        The same, for these ranks, to be moved with `to_mesh`, and for nothing else.
    """

    def cut(tensor: Any) -> MeshSliceTensor:
        operand_checks.check("slice_mesh", tensor)
        return MeshSliceTensor(tensor, tensor.mesh.slice(**selection))

    return pytree.tree_map(cut, tensors)


class MeshSliceTensor:
    """A part of the ranks of a tensor, on its way to another mesh."""

    def __init__(self, tensor: Tensor, mesh: DeviceMesh) -> None:
        self.tensor = tensor
        self.mesh = mesh

    def to_mesh(self, mesh: DeviceMesh | ProcMesh, stream: Stream | None = None) -> Tensor:
        """See `monarch.to_mesh`."""
        return _to_mesh(self, mesh, stream)

    def __reduce__(self) -> Any:
        raise TypeError(f"{self!r} can't be sent: move it with to_mesh, and send that")

    def __repr__(self) -> str:
        return f"<what {self.mesh.extent} has of {self.tensor!r}>"


def seed(mesh: DeviceMesh, number: int) -> None:
    """Start the random numbers of all ranks of a mesh anew, from the same number."""
    _submit(mesh, "seed", number)


def random_state(mesh: DeviceMesh, device: str) -> Tensor:
    """The state of each rank's generator of random numbers, for the CPU or ``"cuda"``."""
    made = new_tensor(mesh, contiguous((STATE_BYTES[device],), torch.uint8, torch.device("cpu")))
    _submit(mesh, "random_state", made._value.id, device)
    return made


def set_random_state(state: Tensor, device: str) -> None:
    """Let the generators of all ranks go on from these states."""
    operand_checks.check("set_rng_state", state)
    _submit(state.mesh, "set_random_state", state._value.id, device)


def _submit(mesh: DeviceMesh, name: str, *args: Any) -> None:
    mesh.engine.submit(mesh.lane, (MOVE, call_sites.here(), name, args))


# reductions


def _reduce(
    tensor: Any, dims: Any, kind: str, scatter: bool, mesh: Any, out: Any, in_place: bool
) -> Tensor:
    name = "reduce_" if in_place else "reduce"
    operand_checks.check(name, tensor)
    names = _dims(tensor.mesh, dims)
    if kind not in _KINDS:
        raise ValueError(f"reduction must be one of {', '.join(_KINDS)}, got {kind!r}")
    _check_type(tensor.dtype, kind)
    if len(names) > 1 and (scatter or kind == "stack"):
        what = "scatter" if scatter else "stack"
        raise ValueError(
            f"{what} is not valid for multiple dimensions {names}; flatten them into one first"
        )
    shape = _shape(tensor, names, kind, scatter)
    if in_place and shape != tuple(tensor.shape):
        raise ValueError(
            f"reduce_ can't change the shape {tuple(tensor.shape)} in place to {shape}; use reduce"
        )
    if in_place:
        operand_checks.check_write(name, tensor)
    if out is not None:
        _check_out(tensor, out, shape)
    keep = None if mesh is None else _destination(mesh)
    if keep is not None and (out is not None or in_place or not _is_part(keep, tensor.mesh)):
        raise ValueError(
            f"mesh must be a part of the tensor's mesh, {tensor.mesh!r}, and not be combined with"
            f" out; got {keep!r}"
        )
    if torch.is_grad_enabled() and tensor.requires_grad:
        if kind not in _LINEAR or in_place or out is not None or keep is not None:
            raise operand_checks.grad_error(name, tensor)
        result: Tensor = _Reduce.apply(tensor, names, kind, scatter)
        return result
    return _issue_reduce(tensor, names, kind, scatter, shape, tensor if in_place else out, keep)


def _check_type(dtype: torch.dtype, kind: str) -> None:
    if dtype.is_complex and kind in ("min", "max"):
        raise TypeError(
            f"{kind} needs an order, which {dtype} does not have; reduce its abs(), or the real"
            " part"
        )
    if kind == "avg" and dtype == torch.bool:
        raise TypeError("avg is for numbers, got a torch.bool tensor; reduce its float()")
    if kind in BITWISE and (dtype.is_complex or dtype.is_floating_point):
        raise TypeError(f"{kind} is for integers and booleans, got a {dtype} tensor")


def _is_part(mesh: DeviceMesh, whole: DeviceMesh) -> bool:
    return mesh.engine is whole.engine and mesh.group.members <= whole.group.members


def _issue_reduce(
    tensor: Tensor,
    names: tuple[str, ...],
    kind: str,
    scatter: bool,
    shape: tuple[int, ...],
    write: Tensor | None,
    keep: DeviceMesh | None,
) -> Tensor:
    mesh, meta = tensor.mesh, tensor._value.meta
    result = new_tensor(keep or mesh, contiguous(shape, meta.dtype, meta.device))
    groups = groups_along(mesh, names)
    reduction = Reduction(
        tensor._value.id, result._value.id, write._value.id if write is not None else 0, _look(meta), groups, kind, scatter,
        None if keep is None else keep.group.ranks,
    )  # fmt: skip
    _submit(mesh, "reduce", reduction)
    if write is None:
        return result
    write._value.storage.known = None
    torch.autograd.graph.increment_version(write)
    return write


def _dims(mesh: DeviceMesh, dims: Any) -> tuple[str, ...]:
    names = (dims,) if isinstance(dims, str) else tuple(dims)
    mesh.size(names)
    if len(set(names)) < len(names):
        raise ValueError(f"a dimension appears twice in {names}")
    return names or mesh._labels


def _shape(tensor: Tensor, names: tuple[str, ...], kind: str, scatter: bool) -> tuple[int, ...]:
    shape, count = tuple(tensor.shape), tensor.mesh.size(names)
    if scatter and (not shape or shape[0] != count):
        raise TypeError(
            f"When scattering, the first dimension must have the size of {names[0]!r}, {count}; it"
            f" is {shape[:1]}"
        )
    return reduced_shape(shape, count, kind, scatter)


def reduced_shape(shape: tuple[int, ...], count: int, kind: str, scatter: bool) -> tuple[int, ...]:
    """The shape of what each of `count` members gets."""
    if kind == "stack":
        return shape if scatter else (count, *shape)
    return shape[1:] if scatter else shape


def _check_out(tensor: Tensor, out: Any, shape: tuple[int, ...]) -> None:
    operand_checks.check("reduce(out=...)", out)
    if tuple(out.shape) != shape or out.dtype != tensor.dtype:
        raise ValueError(
            f"Reduce expects the shape to be {shape} and the type {tensor.dtype}; `out` is"
            f" {tuple(out.shape)}, {out.dtype}"
        )
    if out.mesh is not tensor.mesh:
        raise operand_checks.error("reduce", (tensor, out), {})
    operand_checks.check_write("reduce(out=...)", out)


class _Reduce(torch.autograd.Function):
    """A reduction that passes gradients on."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, names: tuple[str, ...], kind: str, scatter: bool) -> Any:
        ctx.how = names, kind, scatter
        return _issue_reduce(
            tensor, names, kind, scatter, _shape(tensor, names, kind, scatter), None, None
        )

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        names, kind, scatter = ctx.how
        (grad,) = grads
        if kind == "stack":
            back = grad.reduce(names, "stack" if scatter else "sum", scatter=True)
        else:
            back = grad.reduce(names, "stack" if scatter else kind)
            if scatter and kind == "avg":
                back = back / grad.mesh.size(names)
        return back, None, None, None


# transfers


def _to_mesh(what: Any, mesh: Any, stream: Stream | None) -> Tensor:
    whole = isinstance(what, Tensor)
    tensor: Tensor = what.tensor if isinstance(what, MeshSliceTensor) else what
    operand_checks.check("to_mesh", tensor)
    source = tensor.mesh if whole else what.mesh
    destination = _destination(mesh)
    _check_destination(source, destination)
    if torch.is_grad_enabled() and tensor.requires_grad:
        if not whole:
            raise operand_checks.grad_error("to_mesh", tensor)
        moved: Tensor = _ToMesh.apply(tensor, destination, stream)
        return moved
    return _issue_transfer(tensor, source, destination, stream)


def _destination(mesh: Any) -> DeviceMesh:
    found: Any = mesh._device_mesh if isinstance(mesh, ProcMesh) else mesh
    if not isinstance(getattr(found, "engine", None), Engine):
        raise TypeError(f"a mesh is a DeviceMesh or a ProcMesh, got {mesh!r}")
    return found


def _check_destination(source: DeviceMesh, destination: DeviceMesh) -> None:
    missing = [label for label in source._labels if label not in destination._labels]
    if missing:
        raise ValueError(f"{destination!r} does not have dimensions {missing} of {source!r}")
    for label, size in source.sizes.items():
        if destination.size(label) != size:
            raise ValueError(
                f"dimension {label!r} has a different length: {size}, and {destination.size(label)}"
                " in the destination"
            )


def _issue_transfer(
    tensor: Tensor, source: DeviceMesh, destination: DeviceMesh, stream: Stream | None
) -> Tensor:
    meta, engine = tensor._value.meta, source.engine
    before = tensor._value.lane.stream
    after = before if stream is None else stream.number
    lane = destination.engine.group(destination.group.ranks, after)
    result = new_tensor(destination, contiguous(meta.shape, meta.dtype, meta.device), lane=lane)
    if destination.engine is not engine:
        _issue_crossing(tensor, result, source, destination)
        return result
    look, routes = _look(meta), routes_between(source, destination)
    if before == after:
        everyone = engine.group(sorted(source.group.members | destination.group.members), before)
        args = (tensor._value.id, result._value.id, look, routes)
        engine.submit(everyone, (MOVE, call_sites.here(), "transfer", args))
        return result
    ticket, link = next(engine.ids), f"stream{before}to{after}"
    senders = engine.group(source.group.ranks, before)
    engine.submit(
        senders, (MOVE, call_sites.here(), "send", (tensor._value.id, look, routes, ticket, link))
    )
    engine.submit(
        lane, (MOVE, call_sites.here(), "receive", (result._value.id, look, routes, ticket, link))
    )
    return result


def _issue_crossing(
    tensor: Tensor, result: Tensor, source: DeviceMesh, destination: DeviceMesh
) -> None:
    """A transfer to another engine, which tells its workers on its own."""
    engine, meta = source.engine, tensor._value.meta
    if not (
        isinstance(engine.executor, Workers) and isinstance(destination.engine.executor, Workers)
    ):
        raise ValueError(
            f"{source!r} and {destination!r}: tensors move between engines only where both have"
            " processes"
        )
    destination.engine.check_open()  # before memory is set aside for it
    engine.executor.wait_until_there()  # the receivers will ask them
    ticket = next(engine.ids)
    takers = dict.fromkeys(source.group.ranks, 0)
    procs = {}
    address = dict(zip(source.group.ranks, source.group.procs, strict=True))
    for sender, receiver in pairs(source, destination):
        takers[sender] += 1
        procs[receiver] = address[sender]
    export = tensor._value.id, ticket, takers
    senders = engine.group(source.group.ranks, tensor._value.lane.stream)
    engine.submit(senders, (MOVE, call_sites.here(), "export", export), now=True)
    where = ShardSource(engine.uid, ticket, procs)
    look = result._value.id, meta.shape, meta.dtype, meta.device, where
    destination.engine.submit(result._value.lane, (MOVE, call_sites.here(), "import", look))


class _ToMesh(torch.autograd.Function):
    """A move that passes gradients back, to the stream where it came from.

    What went to several ranks comes back as a sum.
    """

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, destination: DeviceMesh, stream: Stream | None) -> Any:
        ctx.source, ctx.destination, ctx.stream = tensor.mesh, destination, tensor.stream
        return _issue_transfer(tensor, tensor.mesh, destination, stream)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        source, destination = ctx.source, ctx.destination
        (grad,) = grads
        with grad.stream.activate():
            added = tuple(label for label in destination._labels if label not in source._labels)
            if added:
                grad = grad.reduce(added, "sum")
                destination = destination.slice(**dict.fromkeys(added, 0))
            return _issue_transfer(grad, destination, source, ctx.stream), None, None


def _look(meta: Meta) -> TensorLook:
    return TensorLook(meta.shape, meta.dtype, devices.of_rank(meta.device))
