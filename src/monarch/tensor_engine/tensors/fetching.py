"""Getting values: the only way from the workers to the program; and the way from it to them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ..._core.plane import FailedCall, Promise, after, await_cause, block, is_of_network
from ...actor import Future, SupervisionError
from ..controller.engine import Engine
from ..errors import RemoteException
from ..instructions import ALL, Poison
from ..trees import filled
from . import operand_checks
from .activation import get_active_mesh, no_mesh
from .collectives import MeshSliceTensor
from .device_mesh import DeviceMesh
from .tensor import Tensor

# what torch makes of data that a program has at hand: `torch.tensor([1, 2])`
_LIFT = torch.ops.aten.lift_fresh_copy.default


def fetch_shard(obj: Any, shard: dict[str, int] | None = None, **coords: int) -> Future[Any]:
    """`obj` with the values that one rank has.

    The future is done when all ranks of the mesh have run the operations issued before; nothing
    waits for what comes later.

    Args:
        obj: Anything, with distributed tensors in lists, tuples, dicts; all of one mesh and one
            stream, which need not be the active one. None fetches nothing: a barrier over all
            streams.
        shard: Coordinates of the rank, by label: all of them, or none for the first rank.
        **coords: The same.

    Returns:
        A future of `obj` with a tensor on the CPU for each distributed one. It raises
        `RemoteException` where one of them, or what it was made from, failed on any rank of its
        mesh, each time it is read.

    Raises:
        ValueError: A coordinate is missing, or there is no mesh: no tensor in `obj`, and none
            active.
        KeyError: There is no such dimension.
        IndexError: There is no such coordinate.
        TypeError: The tensors are of several meshes or streams, or one is a local tensor, or is in
            something that is not looked into, such as a module; `shard` is no dict.
    """
    leaves, tree = _leaves("fetch_shard", obj)
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor):
            operand_checks.check("fetch_shard", leaf, any_stream=True)
    mesh = tensors[0].mesh if tensors else get_active_mesh()
    lane = tensors[0]._value.lane if tensors else mesh.engine.group(mesh.group.ranks, ALL)
    if any(tensor.mesh is not mesh or tensor._value.lane is not lane for tensor in tensors):
        raise operand_checks.error("fetch_shard", tensors, {}, stream=lane.stream)
    if shard is not None and not isinstance(shard, Mapping):
        raise TypeError(
            f"coordinates are a dict or keywords, one for each dimension of {mesh.extent}; got"
            f" {shard!r}"
        )
    wanted = rank_at(mesh, {**(shard or {}), **coords})
    ids = tuple(tensor._value.id for tensor in tensors)
    answers = mesh.engine.call(lane, "fetch", (ids, wanted), "fetch_shard()")
    position = mesh.group.ranks.index(wanted)

    def read(answer: Any) -> Any:
        replies = list(answer.values())
        raise_poison(replies, mesh.engine)
        return filled(leaves, tree, Tensor, replies[position])

    return read_here(answers, read)


def inspect(obj: Any, shard: dict[str, int] | None = None, **coords: int) -> Any:
    """Fetch a value of one rank: ``fetch_shard(...).get()``.

    It waits until the ranks have run the operations issued before.

    Args:
        obj: Anything, with distributed tensors in lists, tuples, dicts.
        shard: Coordinates of the rank, as a dict.
        **coords: The same by name.

    Returns:
        The same structure, with local tensors on the CPU.
    """
    return fetch_shard(obj, shard, **coords).get()


def distribute(obj: Any, split: str | Mapping[str, int] | None = None) -> Any:
    """`obj` with a distributed tensor on the active mesh for each local one.

    Each rank has a copy of it, or a part.

    For batches of a data loader, and for states that were saved. Where tensors share memory, their
    copies do not. With `split` the whole tensor travels all the same, to each host once, and each
    rank keeps its part.

    Args:
        obj: Anything, with local tensors in lists, tuples, dicts; without `split`, distributed
            tensors stay as they are.
        split: Dimension of the mesh: the first dimension of each tensor is cut into equal parts,
            one for each rank along it; or a dict of dimensions of the mesh to dimensions of the
            tensors. None gives each rank the whole.

    Returns:
        The same structure, with distributed tensors.

    Raises:
        ValueError: No mesh is active, or a tensor can't be cut into equal parts, or is distributed
            already.
        KeyError: The mesh has no such dimension.
        TypeError: There is a module with parameters, or an optimizer, in it.

    Example:
        ``inputs, labels = distribute(next(batches), split="dp")``
    """
    mesh = get_active_mesh()
    cuts = {} if split is None else {split: 0} if isinstance(split, str) else dict(split)
    for label in cuts:
        if label not in mesh._labels:
            raise KeyError(
                f"there is no dimension {label!r} to split along; the mesh has {mesh.extent}"
            )

    def place(leaf: Any) -> Any:
        if isinstance(leaf, Tensor) and cuts:
            raise ValueError(
                "distribute(split=...) cuts local tensors, and this one is distributed already, as"
                " it was made while a mesh was active. Make it before that, or under"
                " no_mesh.activate()"
            )
        if not isinstance(leaf, torch.Tensor) or isinstance(leaf, Tensor):
            return leaf
        with no_mesh.activate():
            data = leaf.detach()
        with mesh.activate():
            placed = _LIFT(data)
            for label, dim in cuts.items():
                placed = _part(placed, mesh, label, dim)
            return placed.requires_grad_(leaf.requires_grad)

    leaves, tree = _leaves("distribute", obj)
    return pytree.tree_unflatten(map(place, leaves), tree)


def _leaves(name: str, obj: Any) -> tuple[list[Any], Any]:
    """Take a tree apart.

    Raises:
        TypeError: There are tensors in it that would not be seen.
    """
    leaves, tree = pytree.tree_flatten(obj)
    for leaf in filter(_hides_tensors, leaves):
        raise TypeError(
            f"{name} takes tensors, in lists, tuples and dicts, got a {type(leaf).__name__}. Of a"
            " module and an optimizer give the state, and load it into one that was made while the"
            " mesh is active: new.load_state_dict(distribute(old.state_dict())); of an iterator a"
            " list, of slice_mesh what to_mesh makes of it"
        )
    return leaves, tree


def _hides_tensors(leaf: Any) -> bool:
    if isinstance(leaf, (torch.nn.Module, torch.optim.Optimizer)):
        return bool(leaf.state_dict())
    if isinstance(leaf, AbstractSet):
        return any(isinstance(each, torch.Tensor) for each in leaf)
    return isinstance(leaf, (MeshSliceTensor, Iterator))


def _part(tensor: torch.Tensor, mesh: DeviceMesh, label: str, dim: int) -> torch.Tensor:
    """Return each rank's part of a tensor that is cut along a dimension of the mesh."""
    ranks, shape = mesh.size(label), list(tensor.shape)
    if not -len(shape) <= dim < len(shape):
        raise ValueError(
            f"cannot split dimension {dim} of a tensor of shape {shape} along {label!r}: it has no"
            " such dimension"
        )
    dim %= len(shape)
    if shape[dim] % ranks:
        raise ValueError(
            f"cannot split a tensor of shape {shape} along {label!r}: {ranks} ranks can't share the"
            f" {shape[dim]} elements of dimension {dim} evenly. Drop or pad the rest; a DataLoader"
            " has drop_last=True"
        )
    return (
        tensor.unflatten(dim, (ranks, -1))
        .index_select(dim, mesh.rank(label).reshape(1))
        .squeeze(dim)
    )


def show(obj: Any, shard: dict[str, int] | None = None, **coords: int) -> Any:
    """Fetch and show as pictures, with the package `torchshow`.

    Args:
        obj: As for `inspect`.
        shard: As for `inspect`.
        **coords: As for `inspect`.

    Returns:
        What `torchshow` returns.
    """
    import torchshow

    values = inspect(obj, shard, **coords)
    with no_mesh.activate():
        return torchshow.show(values)


def rank_at(mesh: DeviceMesh, coords: dict[str, int]) -> int:
    """The rank at some coordinates of a mesh: all of them, or none for the first rank."""
    if not coords:
        return mesh.group.ranks[0]
    for label in coords:
        if label not in mesh._labels:
            raise KeyError(f"there is no dimension {label!r}; the mesh has {mesh.extent}")
    missing = [label for label in mesh._labels if label not in coords]
    if missing:
        raise ValueError(f"give all coordinates or none; missing: {', '.join(missing)}")
    return mesh.slice(**coords).group.ranks[0]


def raise_poison(replies: Iterable[Any], engine: Engine) -> None:
    """Raise if a rank has answered with an error; the death behind it, if it is of the network."""
    poison = next((reply for reply in replies if type(reply) is Poison), None)
    if poison is None:
        return
    error, why = RemoteException(poison), poison.error
    if is_of_network(why):
        settled: Promise[None] = Promise()
        mate, call = engine.executor.address(poison.rank), FailedCall("the tensor engine")
        await_cause(call, mate, why, partial(settled.resolve, None))
        block(settled.future, None)  # not `get`: an event loop waits as well
        try:
            engine.executor.check(engine.everyone)
        except SupervisionError as death:
            raise death from error
    raise error


def read_here(answers: Future[Any], read: Any) -> Future[Any]:
    """A future of ``read(answer)``, run in the thread of the first reader.

    No mesh is active meanwhile.
    """

    def read_in_no_mesh() -> Any:
        with no_mesh.activate():
            return read(answers.get())

    return after(answers, read_in_no_mesh)
