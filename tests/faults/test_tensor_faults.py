"""Bad days of programs with distributed tensors: ends of workers, operations that never return, no
memory, hasty exits.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import gc
import os
import signal
import threading
from typing import TYPE_CHECKING, Any

import pytest

from helpers.processes import agent_of
from helpers.scripts import run_script

pytest.importorskip("torch", reason="distributed tensors need torch")

import torch

from monarch import (
    Stream,
    fetch_shard,
    get_active_stream,
    inspect,
    reduce,
    remote,
    slice_mesh,
    to_mesh,
)
from monarch.actor import Actor, SupervisionError, endpoint
from monarch.supervision import OneForOne
from monarch.tensor_engine import RemoteException, record, spawn_tensor_engine

if TYPE_CHECKING:
    from conftest import Spawn
    from helpers.faults import Faults

pytestmark = [
    pytest.mark.torch,
    pytest.mark.may_keep("descriptors", "threads"),  # torch's
    pytest.mark.processes("ranks of a process group that are killed"),
]

PREAMBLE = """
import os, signal, threading, time
import torch
import monarch
from monarch import Stream, coalescing, fetch_shard, inspect, remote
from monarch.actor import this_host
from monarch.tensor_engine import record

sleep = remote("time.sleep", propagate="inspect")

def interrupt_soon():
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()

procs = this_host().spawn_procs(per_host={"gpus": 2})
mesh = procs.activate().__enter__()
inspect(torch.ones(1))
"""


def run(source: str, *printed: str) -> None:
    result = run_script(PREAMBLE + source)
    assert result.exit_code == 0, str(result)
    for text in printed:
        assert text in result.stdout, str(result)
    assert result.left_behind == [], str(result)


class Killer(Actor):
    @endpoint
    def die(self) -> None:
        import os

        os._exit(1)


# a worker that ends


@pytest.mark.parametrize("spread", [False, True])
def test_what_waits_for_a_dead_worker_is_told(spawn: Spawn, faults: Faults, spread: bool) -> None:
    procs = spawn(2)
    with procs.activate() as mesh:
        other = Stream("other") if spread else get_active_stream()
        with other.activate():
            x = torch.ones(1) * mesh.rank("gpus")
            inspect(x)
            remote("time.sleep", propagate="inspect")(60)
            waiting = [fetch_shard(x + step) for step in range(10)]
        barrier = fetch_shard(None)
        procs.slice(gpus=1).spawn("killer", Killer).die.broadcast()
        for future in (*waiting, barrier):
            with pytest.raises(SupervisionError):
                future.get()
        with other.activate(), pytest.raises(SupervisionError):
            inspect(x + 1)
    faults.wait_for(1)


def test_a_reduction_with_a_dead_rank_ends(spawn: Spawn, faults: Faults) -> None:
    procs = spawn(2)
    with procs.activate() as mesh:
        inspect(reduce(torch.ones(1), "gpus"))
        with mesh.slice(gpus=1).activate():
            remote("os._exit", propagate="inspect")(1)
        with pytest.raises(SupervisionError):  # by whichever hears of the death first
            inspect(reduce(torch.ones(1), "gpus"))
    faults.wait_for(1)


def test_ranks_that_do_not_reduce_with_a_dead_one_itself_do_not_wait(
    spawn: Spawn, faults: Faults
) -> None:
    procs = spawn(4)
    with procs.activate() as mesh:
        x = torch.ones(1) * mesh.rank("gpus")
        inspect(reduce(x, "gpus"))
        copies = [slice_mesh(x, gpus=rank).to_mesh(mesh.slice(gpus=rank)) for rank in range(4)]
        inspect(x)
        with mesh.slice(gpus=1).activate():
            remote("os._exit", propagate="inspect")(1)
        with pytest.raises(SupervisionError):  # by whichever hears of the death first
            inspect(reduce(x, "gpus"))
        for rank in (0, 2, 3):
            assert fetch_shard(copies[rank]).get().item() == rank
        with mesh.slice(gpus=slice(2, 4)).activate():
            assert fetch_shard(reduce(torch.ones(1), "gpus")).get().item() == 2
    faults.wait_for(1)


@pytest.mark.parametrize("how", ["reduce", "to_mesh", "process group"])
def test_ranks_that_have_yet_to_meet_a_dead_one_do_not_wait_for_it(
    spawn: Spawn, faults: Faults, how: str
) -> None:
    procs = spawn(2)
    with procs.activate() as mesh:
        living, dead = mesh.slice(gpus=0), mesh.slice(gpus=1)
        x = torch.ones(1)
        inspect(x)
        with dead.activate():
            remote("time.sleep", propagate="inspect")(60)  # it will not come to the meeting
        if how == "to_mesh":
            with dead.activate():
                moved = to_mesh(torch.ones(1), living)
            with living.activate():
                value = fetch_shard(moved)
        elif how == "reduce":
            value = fetch_shard(reduce(x, "gpus"), gpus=0)
        else:
            group = mesh.process_group(("gpus",))
            value = fetch_shard(
                remote(_size_of, propagate=lambda group: torch.ones(()))(group), gpus=0
            )
        procs.slice(gpus=1).spawn("killer", Killer).die.broadcast()
        with pytest.raises((RemoteException, SupervisionError), match=r"rank 1|tensor_engine\[1\]"):
            value.get()
        with living.activate():
            assert fetch_shard(torch.ones(1)).get().item() == 1
    faults.wait_for(1)


def _size_of(group: torch.distributed.ProcessGroup) -> torch.Tensor:
    return torch.tensor(float(group.size()))


CLOSED = "[gloo/transport/tcp/pair.cc:537] Connection closed by peer"


def lose(victim: int, late: float) -> None:
    """What gloo makes of the death of a peer; the agent, which tells of it, stands still meanwhile."""
    agent = agent_of(os.getpid())
    if victim:
        os.kill(agent, signal.SIGSTOP)
        threading.Timer(late, os.kill, (agent, signal.SIGCONT)).start()
        os.kill(victim, signal.SIGKILL)
    raise RuntimeError(CLOSED)


def by_fetch(victim: int) -> None:
    inspect(remote(lose, propagate=lambda victim, late: torch.ones(1))(victim, 0.5))


def by_call(victim: int) -> None:
    remote(lose).call(victim, 0.5).get()


def by_first_call(victim: int) -> None:
    remote(lose)(victim, 0.5)


@pytest.mark.parametrize("ask", [by_fetch, by_call, by_first_call])
def test_a_death_is_named_however_late_the_agent_tells_of_it(
    spawn: Spawn, faults: Faults, ask: Any
) -> None:
    with spawn(2).activate() as mesh:
        victim = remote("os.getpid").call().get().values()[1]
        with (
            mesh.slice(gpus=0).activate(),
            pytest.raises(SupervisionError, match=r"\[1\] has failed") as raised,
        ):
            ask(victim)
    assert isinstance(raised.value.__cause__, RemoteException)
    assert CLOSED in str(raised.value.__cause__)
    faults.wait_for(1)


@pytest.mark.parametrize("ask", [by_fetch, by_call, by_first_call])
def test_an_error_of_the_network_without_a_death_stays_what_it_is(spawn: Spawn, ask: Any) -> None:
    with spawn(1).activate(), pytest.raises(RemoteException, match="Connection closed by peer"):
        ask(0)


def test_a_loop_without_fetches_hears_of_a_dead_worker(spawn: Spawn, faults: Faults) -> None:
    procs = spawn(2)

    def run_on() -> None:
        x = torch.zeros(1)
        for _ in range(10_000_000):
            x.add_(1)

    with procs.activate():
        inspect(torch.ones(1))
        procs.slice(gpus=1).spawn("killer", Killer).die.broadcast()
        with pytest.raises(SupervisionError):
            run_on()
    faults.wait_for(1)


def test_a_recorded_program_hears_of_a_dead_worker(spawn: Spawn, faults: Faults) -> None:
    procs = spawn(2)

    @record
    def step(x: torch.Tensor) -> torch.Tensor:
        for _ in range(5):
            x = reduce(x + 1, "gpus", "avg")
        return x

    def run_on() -> None:
        x = torch.zeros(1)
        for _ in range(1_000_000):
            x = step(x)
        inspect(x)

    with procs.activate():
        inspect(step(step(torch.zeros(1))))
        procs.slice(gpus=1).spawn("killer", Killer).die.broadcast()
        with pytest.raises(SupervisionError):
            run_on()
    faults.wait_for(1)


@pytest.mark.parametrize("spread", [False, True])
def test_ranks_beside_a_dead_one_go_on(spawn: Spawn, faults: Faults, spread: bool) -> None:
    procs = spawn(3)
    with procs.activate() as mesh:
        living, dead = mesh.slice(gpus=slice(0, 2)), mesh.slice(gpus=2)
        stream = Stream("other") if spread else get_active_stream()
        with stream.activate(), living.activate():
            x = torch.ones(2) * living.rank("gpus")
            weight = torch.ones(2, requires_grad=True)
        with stream.activate(), dead.activate():
            lost = torch.ones(2)
        whole = torch.ones(2)
        inspect(whole)
        procs.slice(gpus=2).spawn("killer", Killer).die.broadcast()
        faults.wait_for(1)
        with stream.activate(), living.activate():
            for _ in range(20_000):  # farther than the controller may be ahead of a worker
                x = x + 1
            assert inspect(x, gpus=1).tolist() == [20_001.0] * 2
            assert inspect(reduce(x, "gpus")).tolist() == [40_001.0] * 2
            assert remote("os.getpid").call().get().size() == 2
            (weight * x).sum().backward()
            assert inspect(weight.grad, gpus=0).tolist() == [20_000.0] * 2
            assert fetch_shard(None).get() is None
        with procs.slice(gpus=slice(0, 2)).activate() as again:
            assert again is living
        for touch in (
            lambda: whole + 1,
            lambda: inspect(whole),
            lambda: torch.ones(1),
            lambda: inspect(lost),
        ):
            with pytest.raises(SupervisionError, match="rank 2"):
                touch()
        with stream.activate(), pytest.raises(SupervisionError, match="rank 2"):
            lost + 1
        with living.activate():
            assert inspect(torch.ones(1)).item() == 1
        mesh.exit()  # those that live


class Pids(Actor):
    @endpoint
    def pid(self) -> int:
        import os

        return os.getpid()


def test_ranks_that_were_started_again_are_lost_to_their_mesh_and_there_for_the_next(
    spawn: Spawn,
) -> None:
    procs = spawn(3, restart=OneForOne())
    pids = procs.spawn("pids", Pids).pid.options(retries=2)
    before = pids.call().get().values()
    with procs.activate() as mesh:
        x = torch.ones(2) * mesh.rank("gpus")
        inspect(x)

    def run_on() -> None:
        while True:  # until the death is known
            inspect(x, gpus=1)

    procs.slice(gpus=1).spawn("killer", Killer).die.broadcast()
    with mesh.activate(), pytest.raises(SupervisionError):
        run_on()
    after = pids.call().get().values()
    assert [one == other for one, other in zip(before, after, strict=True)] == [True, False, True]
    with mesh.activate(), pytest.raises(SupervisionError):
        inspect(x, gpus=1)  # though its process answers
    with procs.activate() as again:
        assert again is not mesh
        assert inspect(slice_mesh(x, gpus=2).to_mesh(again), gpus=1).tolist() == [2.0, 2.0]
        assert inspect(reduce(torch.ones(1), "gpus")).item() == 3


def test_a_rank_that_dies_after_the_end_of_an_engine_holds_up_no_other(
    spawn: Spawn, faults: Faults
) -> None:
    procs = spawn(2)
    with spawn_tensor_engine(procs).activate():
        inspect(reduce(torch.ones(1), "gpus"))
    gc.collect()  # nothing of the engine is left, and its ranks can meet no more
    procs.slice(gpus=1).spawn("killer", Killer).die.broadcast()
    faults.wait_for(1)
    assert procs.slice(gpus=0).spawn("pids", Pids).pid.call_one().get()


# no memory


def test_a_rank_without_memory_fails_what_needs_it_and_nothing_else(spawn: Spawn) -> None:
    procs = spawn(2)
    with procs.activate() as mesh:
        x = torch.ones(2)
        with mesh.slice(gpus=1).activate():
            huge = torch.empty(1 << 46)
            later = huge[:2] + 1
            small = torch.ones(2)
            with pytest.raises(RemoteException, match="empty") as caught:
                inspect(later)
            assert caught.value.rank == 1
            assert inspect(small).tolist() == [1, 1]
        assert inspect(x + 1, gpus=1).tolist() == [2, 2]
        assert inspect(reduce(x, "gpus")).tolist() == [2, 2]
        mesh.exit()  # nothing is left to tell


# operations that never return


@pytest.mark.slow
def test_ctrl_c_gives_the_prompt_back_and_leaving_has_a_bound() -> None:
    run(
        """
import monarch.tensor_engine.tensors.device_mesh as device_mesh

def interrupted(run):
    interrupt_soon()
    try:
        run()
    except KeyboardInterrupt:
        print("interrupted", run.__name__)

def fetch():
    inspect(x + 1)

def run_far_ahead():
    monarch.tensor_engine.controller.engine._STRETCH = 100
    while True:
        x.add_(1)

x = torch.ones(1)
sleep(600)
interrupted(fetch)
print("goes on", (x + 1).shape)
interrupted(run_far_ahead)
print("and on", (x + 1).shape)
device_mesh._EXIT_TIMEOUT = 0.2
try:
    mesh.exit()
except TimeoutError:
    print("took too long")
procs.stop().get()
print("stopped")
""",
        "interrupted fetch",
        "goes on torch.Size([1])",
        "interrupted run_far_ahead",
        "and on torch.Size([1])",
        "took too long",
        "stopped",
    )


# programs that end with work in flight


@pytest.mark.parametrize(
    "work",
    [
        "for _ in range(20_000): x = x + 1",
        (
            "s = Stream('s')\nlent, borrow = s.borrow(x, mutable=True)\nwith s.activate():"
            " lent.add_(1); sleep(600)"
        ),
        (
            "sleep(600); later = [fetch_shard(x + 1) for _ in range(10)]\nblock = coalescing();"
            " block.__enter__(); x = x + 1"
        ),
        "f = record(lambda x: [x + 1 for _ in range(100)][-1])\nfor _ in range(1000): x = f(x)",
    ],
    ids=["operations", "a borrow", "fetches and a block", "replays"],
)
@pytest.mark.slow
def test_a_program_may_end_with_work_in_flight(work: str) -> None:
    run(f"x = torch.ones(1)\n{work}\nprint('at the end')\n", "at the end")


@pytest.mark.slow
def test_an_error_of_the_program_ends_it_with_work_in_flight() -> None:
    result = run_script(PREAMBLE + "sleep(600)\nraise ValueError('on purpose')\n")
    assert result.exit_code == 1, str(result)
    assert "on purpose" in result.stderr, str(result)
    assert result.left_behind == [], str(result)


@pytest.mark.slow
def test_a_fork_of_the_program_that_ends_takes_nothing_from_its_ranks() -> None:
    run(
        """
torch.ones(1).reduce_("gpus")
child = os.fork()
if not child:
    raise SystemExit
assert os.waitpid(child, 0) == (child, 0)
print(inspect(torch.ones(1).reduce("gpus")))
""",
        "tensor([2.])",
    )
