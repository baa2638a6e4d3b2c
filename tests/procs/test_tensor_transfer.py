"""Tensors that move to the processes of another engine."""

# What torch returns here is more than its annotations say.
# mypy: disable-error-code="attr-defined, union-attr, no-untyped-call, arg-type"

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("torch", reason="distributed tensors need torch")

import torch

from helpers.waiting import wait_until
from monarch import fetch_shard, inspect, no_mesh, remote, slice_mesh, to_mesh
from monarch.actor import ProcMesh, this_host
from monarch.tensor_engine import RemoteException, spawn_tensor_engine

if TYPE_CHECKING:
    from conftest import Spawn

pytestmark = [
    pytest.mark.torch,
    pytest.mark.may_keep("threads", "descriptors"),  # torch's
]


@pytest.fixture(scope="module")
def others(_booted: None) -> Iterator[ProcMesh]:
    """Two other ranks."""
    procs = this_host().spawn_procs(per_host={"gpus": 2})
    with procs.activate():
        inspect(torch.ones(1))
    yield procs
    procs.stop().get()


def test_a_tensor_moves_rank_to_rank(mesh: Any, others: ProcMesh) -> None:
    x = torch.arange(3.0) + 10 * mesh.rank("gpus")
    there = x.to_mesh(others)
    x.zero_()  # is not seen there
    assert there.mesh is others._device_mesh
    assert inspect(there, gpus=1).tolist() == [10.0, 11.0, 12.0]
    assert inspect((there + 1).sum(), gpus=0).item() == 6.0
    back = (there * 2).to_mesh(mesh)
    assert inspect(back + torch.ones(3), gpus=1).tolist() == [21.0, 23.0, 25.0]


def test_all_kinds_of_tensors_move(mesh: Any, others: ProcMesh) -> None:
    tensors = {
        "turned": torch.arange(6).reshape(2, 3).t(),
        "scalar": torch.tensor(5),
        "half": torch.full((4,), 1.5, dtype=torch.bfloat16),
        "flags": torch.tensor([True, False]),
        "complex": torch.tensor([1 + 2j]).conj(),
        "empty": torch.zeros(0, 3),
        "large": torch.arange(2_000_000),
    }
    moved = to_mesh(tensors, others)
    for name, tensor in tensors.items():
        arrived, expected = inspect(moved[name], gpus=1), inspect(tensor, gpus=1)
        with no_mesh.activate():
            assert torch.equal(arrived, expected), name


def test_a_slice_moves_and_is_repeated(mesh: Any, others: ProcMesh) -> None:
    x = torch.ones(2) + mesh.rank("gpus")
    there = slice_mesh(x, gpus=1).to_mesh(others)
    assert [inspect(there, gpus=rank).tolist() for rank in range(2)] == [[2.0, 2.0]] * 2
    with pytest.raises(ValueError, match="does not have dimensions"):
        x.to_mesh(others.slice(gpus=0))


def test_gradients_come_back(mesh: Any, others: ProcMesh) -> None:
    x = torch.ones(2, requires_grad=True)
    loss = (x.to_mesh(others) * 3).sum()
    loss.backward()
    assert inspect(x.grad, gpus=1).tolist() == [3.0, 3.0]


def test_a_failure_moves_along(mesh: Any, others: ProcMesh) -> None:
    bad = torch.zeros(2).index_select(0, mesh.rank("gpus").reshape(1) * 9)
    there = bad.to_mesh(others) + 1
    with pytest.raises(RemoteException, match="index_select") as caught:
        inspect(there, gpus=1)
    assert caught.value.rank == 1
    assert inspect(torch.ones(1).to_mesh(others), gpus=1).item() == 1.0


def test_two_engines_of_the_same_processes_exchange_tensors(mesh: Any, pair: ProcMesh) -> None:
    second = spawn_tensor_engine(pair)
    x = torch.ones(2) * mesh.rank("gpus")
    assert inspect(x.to_mesh(second), gpus=1).tolist() == [1.0, 1.0]
    with second.activate():
        assert inspect((torch.ones(2) + 4).to_mesh(mesh), gpus=0).tolist() == [5.0, 5.0]
    second.exit()


def buffers() -> int:
    from monarch._core.actors.context import current_hub
    from monarch.rdma.plane import plane_of

    return plane_of(current_hub()).registry.statistics().buffers


def test_nothing_is_set_aside_for_an_engine_that_has_exited(mesh: Any, others: ProcMesh) -> None:
    engine = spawn_tensor_engine(others)
    engine.exit()
    with pytest.raises(RuntimeError, match="has exited"):
        torch.ones(1000).to_mesh(engine)
    assert set(remote(buffers).call().get().values()) == {0}


def test_what_was_moved_is_freed_by_the_sender(mesh: Any, others: ProcMesh) -> None:
    moved = [torch.ones(1000).to_mesh(others) for _ in range(5)]
    fetch_shard(moved).get()
    gc.collect()
    wait_until(
        lambda: set(remote(buffers).call().get().values()) == {0}, what="the end of all copies"
    )


def test_a_sender_that_dies_fails_the_move_and_not_the_receiver(
    mesh: Any, spawn: Spawn, faults: Any
) -> None:
    sender = spawn({"gpus": 2})
    with sender.activate():
        pids = remote(os.getpid).call().get()
        x = torch.ones(2)
        remote("time.sleep", propagate="inspect")(60)
        moved = x.to_mesh(mesh)
    os.kill(pids.item(gpus=1), signal.SIGKILL)
    os.kill(pids.item(gpus=0), signal.SIGKILL)
    with pytest.raises(RemoteException, match="is gone"):
        inspect(moved)
    assert inspect(torch.ones(1), gpus=1).item() == 1.0
    faults.wait_for(1)


def wait_for_file(path: str) -> None:
    import time

    while not os.path.exists(path):
        time.sleep(0.01)


def test_a_sender_whose_engine_ends_is_not_waited_for(
    mesh: Any, others: ProcMesh, tmp_path: Any
) -> None:
    engine = spawn_tensor_engine(others)
    with engine.activate():
        moved = torch.ones(1)
    remote(wait_for_file, propagate="inspect")(str(tmp_path / "go"))
    moved = moved.to_mesh(mesh)
    engine.exit()
    (tmp_path / "go").touch()
    with pytest.raises(RemoteException, match="engine that it comes from has ended"):
        inspect(moved)
