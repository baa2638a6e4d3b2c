"""`torch.distributed` on the ranks of a mesh: process groups, and `DTensor` there and back."""

# What torch returns here is more than its annotations say.
# mypy: disable-error-code="attr-defined, union-attr, no-untyped-call, arg-type"

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("torch", reason="distributed tensors need torch")

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

from monarch import inspect, no_mesh, remote
from monarch.actor import Actor, ProcMesh, endpoint, this_host
from monarch.tensor_engine import RemoteException

if TYPE_CHECKING:
    from conftest import Spawn

pytestmark = [
    pytest.mark.torch,
    pytest.mark.may_keep("threads", "descriptors"),  # torch's
    pytest.mark.processes("ranks of a process group"),
]


@pytest.fixture(scope="module")
def square(_booted: None) -> Iterator[ProcMesh]:
    """Four ranks, in two rows."""
    procs = this_host().spawn_procs(per_host={"rows": 2, "cols": 2})
    with procs.activate():
        inspect(torch.ones(1))
    yield procs
    procs.stop().get()


@pytest.fixture
def grid(square: ProcMesh, _process_test: None) -> Iterator[Any]:
    with square.activate() as mesh:
        yield mesh


def use_all(x: Any, group: Any, rank: Any) -> Any:
    import torch.distributed as dist

    members = dist.get_process_group_ranks(group)
    first = x.clone()
    dist.broadcast(first, src=members[0], group=group)
    total = x.clone()
    dist.all_reduce(total, group=group)
    parts = [torch.zeros_like(x) for _ in members]
    dist.all_gather(parts, x, group=group)
    sent = x.clone()
    if dist.get_rank(group) == 0:
        dist.send(sent, members[-1], group=group)
    elif dist.get_rank(group) == len(members) - 1:
        dist.recv(sent, members[0], group=group)
    dist.barrier(group)
    assert dist.get_rank() == rank.item()
    return (
        members,
        dist.get_rank(group),
        first.item(),
        total.item(),
        torch.cat(parts).tolist(),
        sent.item(),
    )


def test_a_process_group_is_one_of_torch(grid: Any) -> None:
    x = grid.process_idx().reshape(1).float()
    rows, everyone = grid.process_group("cols"), grid.process_group(("rows", "cols"))
    assert (rows.size(), everyone.size()) == (2, 4)
    answers = remote(use_all).call(x, rows, grid.process_idx()).get()
    assert answers.item(rows=1, cols=1) == ([2, 3], 1, 2.0, 5.0, [2.0, 3.0], 2.0)
    assert answers.item(rows=0, cols=0) == ([0, 1], 0, 0.0, 1.0, [0.0, 1.0], 0.0)
    answers = remote(use_all).call(x, everyone, grid.process_idx()).get()
    assert answers.item(rows=1, cols=0) == ([0, 1, 2, 3], 2, 0.0, 6.0, [0.0, 1.0, 2.0, 3.0], 2.0)


def test_a_process_group_of_a_slice_is_used_by_its_members_only(grid: Any) -> None:
    row = grid.slice(rows=1)
    group = row.process_group("cols")
    with row.activate():
        x = row.rank("cols").reshape(1).float()
        answers = remote(use_all).call(x, group, row.process_idx()).get()
        assert answers.item(cols=0) == ([2, 3], 0, 0.0, 1.0, [0.0, 1.0], 0.0)


@remote(propagate=lambda x, mesh: (torch.empty(4, 4), torch.empty(2, 2)))
def whole_and_transposed(x: Any, mesh: Any) -> Any:
    sharded = DTensor.from_local(x, mesh, [Shard(0), Shard(1)])
    assert sharded.shape == (4, 4)
    return sharded.full_tensor(), sharded.t().redistribute(placements=[Shard(0), Shard(1)])


def test_shards_become_a_dtensor_and_come_back(grid: Any) -> None:
    x = torch.ones(2, 2) * grid.process_idx()
    whole, transposed = whole_and_transposed(x, grid.torch_mesh())
    assert inspect(whole, rows=1, cols=0).tolist() == [
        [0, 0, 1, 1],
        [0, 0, 1, 1],
        [2, 2, 3, 3],
        [2, 2, 3, 3],
    ]
    assert transposed.shape == (2, 2)
    assert inspect(transposed, rows=0, cols=1).tolist() == [[2, 2], [2, 2]]
    assert inspect((transposed + 1).sum(), rows=1, cols=0).item() == 8


def test_a_dtensor_of_a_product_is_that_of_one_process(grid: Any) -> None:
    def product(a: Any, b: Any, mesh: Any) -> Any:
        left = DTensor.from_local(a, mesh, [Replicate(), Shard(1)])
        right = DTensor.from_local(b, mesh, [Replicate(), Shard(0)])
        result = left @ right
        assert result.placements[1] == Partial()
        return result.redistribute(placements=[Replicate(), Shard(0)])

    a = torch.arange(6.0).reshape(2, 3) + grid.rank("cols")
    b = torch.arange(6.0).reshape(3, 2) * (1 + grid.rank("cols"))
    result = remote(product)(a, b, grid.torch_mesh())
    pairs = [(inspect(a, rows=0, cols=col), inspect(b, rows=0, cols=col)) for col in range(2)]
    with no_mesh.activate():
        expected = sum(left @ right for left, right in pairs).tolist()
    assert result.shape == (1, 2)
    for col in range(2):
        assert inspect(result, rows=1, cols=col).tolist() == expected[col : col + 1]


class Trainer(Actor):
    @endpoint(propagate=lambda x, mesh: x.clone())
    def double(self, x: Any, mesh: Any) -> Any:
        return DTensor.from_local(x, mesh, [Shard(0), Replicate()]) * 2

    @endpoint
    def total(self, x: Any, mesh: Any) -> float:
        total: float = DTensor.from_local(x, mesh, [Shard(0), Shard(0)]).sum().full_tensor().item()
        return total

    @endpoint
    def rank_in(self, group: Any) -> tuple[int, int]:
        return dist.get_rank(group), dist.get_world_size(group)


def test_actors_work_with_dtensors(grid: Any, square: ProcMesh) -> None:
    trainers = square.spawn("trainers", Trainer)
    x = torch.ones(2) * grid.process_idx()
    assert set(trainers.total.call(x, grid.torch_mesh()).get().values()) == {12.0}
    assert inspect(trainers.double.rref(x, grid.torch_mesh()), rows=1, cols=1).tolist() == [
        6.0,
        6.0,
    ]
    answers = trainers.rank_in.call(grid.process_group("rows")).get()
    assert answers.item(rows=1, cols=0) == (1, 2)
    trainers.stop().get()


def test_a_mesh_without_dimensions_can_not_shard(grid: Any) -> None:
    with pytest.raises(ValueError, match="no dimensions"):
        grid.slice(rows=0, cols=0).torch_mesh()
    with pytest.raises(KeyError):
        grid.process_group("depth")


def test_the_default_group_of_the_user_is_used_or_the_reason_is_told(
    spawn: Spawn, tmp_path: Any
) -> None:
    def join(path: str, rank: Any, count: int) -> None:
        dist.init_process_group(
            "gloo", init_method=f"file://{path}", rank=rank.item() % count, world_size=count
        )

    procs = spawn(2)
    with procs.activate() as mesh:
        x = torch.ones(1)
        remote(join, propagate="inspect")(str(tmp_path / "one"), mesh.process_idx() * 0, 1)
        group = mesh.process_group(mesh.names)
        with pytest.raises(
            RemoteException, match="rank 0 of 1, is not that of the mesh, in which it is rank"
        ):
            remote(lambda x, group: x).call(x, group).get()
    other = spawn(2)
    with other.activate() as mesh:
        remote(join, propagate="inspect")(str(tmp_path / "two"), mesh.process_idx(), 2)
        group = mesh.process_group(mesh.names)
        sizes = remote(lambda group: dist.get_world_size(group)).call(group).get()
        assert set(sizes.values()) == {2}
        mesh.exit()
        with other.activate():
            assert set(remote(dist.is_initialized).call().get().values()) == {True}
