"""Distributed tensors on procs of `monarch.testing.local`."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import torch

from monarch import Stream, fetch_shard, get_active_mesh, inspect, reduce, slice_mesh
from monarch.actor import Actor, SupervisionError, endpoint
from monarch.tensor_engine import RemoteException
from monarch.testing import LocalHosts, local

pytestmark = pytest.mark.may_keep("threads", "descriptors")  # torch's


def _program(hosts: LocalHosts) -> list[Any]:
    procs = hosts.spawn_procs({"dp": 2, "tp": 2})
    with procs.activate() as mesh:
        x = torch.ones(2) + mesh.rank("dp") + 10 * mesh.rank("tp")
        both = reduce(x, ("dp", "tp"), "sum")
        there = slice_mesh(x, dp=1).to_mesh(mesh.slice(dp=0))
        with Stream("other").activate():
            y = torch.ones(2) + mesh.rank("dp")
            rows = reduce(y, "dp", "stack")
        drawn = torch.rand(2)
        return [
            inspect(each, **dict(zip(each.mesh.sizes, [0] * len(each.mesh.sizes), strict=True)))
            for each in (both, there, rows, drawn)
        ]


@pytest.mark.parametrize("seed", [None, 0, 1, 2, 3])
def test_a_tensor_program_computes_the_same_in_any_order_of_messages(seed: int | None) -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    with local(seed=seed) as hosts:
        both, there, rows, drawn = _program(hosts)
    assert both.tolist() == [26.0, 26.0]
    assert there.tolist() == [2.0, 2.0]
    assert rows.tolist() == [[1.0, 1.0], [2.0, 2.0]]
    # what ranks draw is theirs: the numbers of a new process, and none of this program's
    assert drawn.tolist() == torch.rand(2, generator=torch.Generator()).tolist()
    assert torch.equal(torch.get_rng_state(), before)


def test_a_rank_whose_input_has_failed_fails_a_reduction_for_all() -> None:
    with local() as hosts, hosts.spawn_procs({"gpus": 2}).activate() as mesh:
        picked = torch.zeros(2).index_select(0, mesh.rank("gpus").reshape(1) * 5)
        with pytest.raises(RemoteException, match="index_select") as raised:
            inspect(reduce(picked, "gpus", "sum"), hosts=0, gpus=0)
        assert raised.value.rank == 1
        assert inspect(torch.ones(1)).tolist() == [1.0]


class Sleeper(Actor):
    @endpoint
    async def sleep(self, tensor: Any) -> None:
        await asyncio.sleep(1e6)


def test_a_rank_that_is_killed_ends_the_wait_of_others_in_a_reduction() -> None:
    with local() as hosts:
        procs = hosts.spawn_procs({"gpus": 3})
        sleepers = procs.spawn("sleepers", Sleeper)
        with procs.activate() as mesh:
            rest = mesh.slice(gpus=slice(0, 2))
            assert inspect(reduce(torch.ones(1), "gpus", "sum"), hosts=0, gpus=0).item() == 3.0
            sleepers.slice(gpus=2).sleep.call_one(torch.ones(1))  # its rank waits for that
            total = reduce(torch.ones(1), "gpus", "sum")  # so the others wait for this rank
            hosts.advance(1)
            procs.slice(gpus=2).kill().get()
            with pytest.raises(SupervisionError):
                fetch_shard(total, hosts=0, gpus=0).get()
            with rest.activate():
                assert get_active_mesh() is rest
                assert inspect(reduce(torch.ones(1), "gpus", "sum"), hosts=0, gpus=0).item() == 2.0


def test_groups_of_torch_are_refused_at_once() -> None:
    with local() as hosts, hosts.spawn_procs({"gpus": 2}).activate() as mesh:
        with pytest.raises(NotImplementedError, match=r"reduce\(\) works here"):
            mesh.process_group("gpus")
        with pytest.raises(NotImplementedError, match=r"spawn procs on the real this_host\(\)"):
            mesh.torch_mesh()
