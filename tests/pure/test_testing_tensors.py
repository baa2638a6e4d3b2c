"""Distributed tensors on procs of `monarch.testing.local`."""

from __future__ import annotations

import asyncio
import itertools
import re
import time
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="distributed tensors need torch")

import torch

from monarch import Stream, fetch_shard, get_active_mesh, inspect, reduce, remote, slice_mesh
from monarch.actor import Actor, SupervisionError, endpoint
from monarch.profiler import profile
from monarch.tensor_engine import RemoteException
from monarch.tensor_engine.groups import in_process
from monarch.tensor_engine.groups.groups import Meeting, RankGroup
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
        made: list[Any] = [both, there, rows, torch.rand(2)]
        return [inspect(each, dict.fromkeys(each.mesh.sizes, 0)) for each in made]


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


REFUSED: dict[str, Callable[[Any], object]] = {
    "a process for each rank: use reduce(), or": lambda mesh: mesh.process_group("gpus"),
    "groups of torch.distributed": lambda mesh: mesh.torch_mesh(),
    "one profiler for a process: spawn": lambda _: profile(),
}


def test_all_that_needs_processes_is_refused_at_once() -> None:
    with local() as hosts, hosts.spawn_procs({"gpus": 2}).activate() as mesh:
        for why, attempt in REFUSED.items():
            with pytest.raises(NotImplementedError, match=re.escape(why)) as raised:
                attempt(mesh)
            assert str(raised.value).endswith("spawn procs on the real this_host()")


def test_a_reduction_of_what_is_on_a_gpu_is_refused() -> None:
    in_process.begin("engine")
    group = RankGroup(Meeting("", engine="engine"), [0, 1], 0)
    in_process.end("engine")
    with pytest.raises(NotImplementedError, match="tensor on cuda:0 can't be reduced"):
        group.backend(torch.device("cuda:0"))


_noted: list[str] = []


def _note() -> None:
    _noted.append("run")


def test_what_is_issued_goes_out_by_the_clock_of_the_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    _noted.clear()
    with local() as hosts, hosts.spawn_procs().activate():
        inspect(torch.ones(1))  # sent just now, whatever the real clock says
        real = itertools.count(time.monotonic(), 10)
        monkeypatch.setattr(time, "monotonic", lambda: next(real))
        remote(_note, propagate="inspect")()
        hosts.advance(0.0005)
        assert _noted == []
        hosts.advance(0.002)
        assert _noted == ["run"]
