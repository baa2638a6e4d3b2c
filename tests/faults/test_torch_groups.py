"""Process groups of torch on meshes, made while ranks die, start again or are stopped."""

# mypy: disable-error-code="no-untyped-call, attr-defined"

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from helpers.effort import shortened
from helpers.scripts import run_script
from helpers.waiting import wait_until

pytest.importorskip("torch", reason="process groups need torch")

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d
from torch.nn.parallel import DistributedDataParallel

from monarch import fetch_shard, inspect, remote
from monarch._core import plane
from monarch._core.plane import current_hub
from monarch._polled_store import PolledStore
from monarch.actor import (
    Actor,
    ActorError,
    Channel,
    Port,
    ProcMesh,
    SupervisionError,
    current_rank,
    endpoint,
)
from monarch.config import configured
from monarch.supervision import AllForOne, OneForOne
from monarch.tensor_engine import RemoteException, spawn_tensor_engine
from monarch.tensor_engine.tensors.mesh_groups import meeting_of

if TYPE_CHECKING:
    from conftest import Spawn
    from helpers.faults import Faults

pytestmark = [
    pytest.mark.torch,
    pytest.mark.may_keep("descriptors", "threads"),  # torch's
    pytest.mark.processes("torch has one default group in a process"),
]
RANKS = 3
PAUSE = 0.01  # seconds
ERRORS = (ActorError, SupervisionError)


class Member(Actor):
    """One rank. May die as its group is made: at a call of the store that torch is given."""

    def __init__(self, victim: int = -1, method: str = "", at: int = 0) -> None:
        self.group: Any = None
        if current_rank().rank != victim:
            return
        store: Any = PolledStore
        call, count = getattr(store, method), 0

        def counted(*args: Any) -> Any:
            nonlocal count
            count += 1
            if count == at:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args)

        setattr(store, method, counted)

    @endpoint
    def setup(self, group: Any) -> float:
        self.group = group
        return self._total()

    @endpoint
    def total(self) -> float:
        return self._total()

    def _total(self) -> float:
        x = torch.ones(1)
        dist.all_reduce(x, group=self.group)
        return x.item()

    @endpoint
    def unique_id(self) -> bytes:
        """As NCCL meets, at first use: rank 0 leaves word, and the others wait for it."""
        store = stores[-1]
        if dist.get_rank() == 0:
            store.set("id", "made")
        found: bytes = store.get("id")
        return found

    @endpoint
    def pid(self) -> int:
        return os.getpid()


def setup(procs: ProcMesh, members: Any) -> list[float]:
    with procs.activate() as mesh:
        totals: list[float] = members.setup.call(mesh.process_group("gpus")).get().values()
    return totals


def until_it_works(attempt: Callable[[], list[float]]) -> tuple[list[float], list[Exception]]:
    """Retry nearly at once: soon enough to meet the restart at any moment. No attempt hangs."""
    errors: list[Exception] = []
    while True:
        try:
            return attempt(), errors
        except ERRORS as error:
            errors.append(error)
            time.sleep(PAUSE)


@pytest.mark.parametrize("strategy", [AllForOne, OneForOne])
def test_a_group_is_made_again_however_soon_after_a_death(spawn: Spawn, strategy: Any) -> None:
    procs = spawn(RANKS, restart=strategy(max_restarts=1000, within=600))
    members = procs.spawn("members", Member)
    assert setup(procs, members) == [RANKS] * RANKS
    for number in range(shortened(20, 4)):
        victim = members.pid.call().get().values()[number % RANKS]
        os.kill(victim, signal.SIGKILL)
        totals, errors = until_it_works(lambda: setup(procs, members))
        assert totals == [RANKS] * RANKS
        assert errors  # else nothing had died
        assert members.total.call().get().values() == [RANKS] * RANKS


def test_each_attempt_may_come_from_another_thread(spawn: Spawn) -> None:
    procs = spawn(RANKS, restart=AllForOne(max_restarts=1000, within=600))
    members = procs.spawn("members", Member)
    assert setup(procs, members) == [RANKS] * RANKS
    for number in range(shortened(10, 3)):
        os.kill(members.pid.call().get().values()[number % RANKS], signal.SIGKILL)

        def attempt() -> list[float]:
            with ThreadPoolExecutor(1) as thread:
                return thread.submit(setup, procs, members).result()

        assert until_it_works(attempt)[0] == [RANKS] * RANKS


# at a call of the store: before its address is known; after it; where only connections are missing
MOMENTS = [("set", 1), ("get", 1), ("get", RANKS)]


@pytest.mark.parametrize(
    ("victim", "method", "at"),
    shortened(
        [(victim, *moment) for moment in MOMENTS for victim in range(RANKS)],
        [(0, *MOMENTS[0]), (1, *MOMENTS[1]), (2, *MOMENTS[2]), (0, *MOMENTS[2])],
    ),
)
def test_the_others_do_not_wait_for_one_that_dies_as_they_connect(
    spawn: Spawn, faults: Faults, victim: int, method: str, at: int
) -> None:
    procs = spawn(RANKS)
    members = procs.spawn("members", Member, victim, method, at)
    members.pid.call().get()  # it is there
    with procs.activate() as mesh:
        group = mesh.process_group("gpus")
        # its death, or what another rank says of it, where that comes first
        with pytest.raises(ERRORS, match=rf"\[{victim}\]|rank {victim} has ended"):
            members.setup.call(group).get()
        for rank in set(range(RANKS)) - {victim}:  # none is held up, neither actor nor worker
            with pytest.raises(ERRORS, match=rf"\[{victim}\] has failed|rank {victim} has ended"):
                members.slice(gpus=rank).setup.call_one(group).get()
            with mesh.slice(gpus=rank).activate():
                assert inspect(torch.ones(1)).item() == 1
    faults.wait_for(1)


def test_a_group_of_which_a_rank_has_yet_to_come_ends_with_its_mesh(spawn: Spawn) -> None:
    procs = spawn(RANKS)
    members = procs.spawn("members", Member)
    with procs.activate() as mesh:
        with mesh.slice(gpus=1).activate():
            remote("time.sleep", propagate="inspect")(3600)  # it does not come
        waiting = members.setup.call(mesh.process_group("gpus"))
    procs.stop().get()
    with pytest.raises(SupervisionError, match="stopped"):
        waiting.get()


class Owner(Actor):
    """Makes groups over procs that are not its own, with an engine of its own."""

    @endpoint
    def setup(self, procs: ProcMesh, members: Any) -> list[float]:
        return setup(procs, members)


def test_engines_over_the_same_procs_make_groups_at_the_same_time(spawn: Spawn) -> None:
    procs = spawn(RANKS)
    owners = spawn(4).spawn("owners", Owner)
    crews = [procs.spawn(f"crew{number}", Member) for number in range(len(owners))]
    for _ in range(shortened(5, 2)):
        calls = [
            owners.flatten("gpus").slice(gpus=number).setup.call_one(procs, crew)
            for number, crew in enumerate(crews)
        ]
        assert [call.get() for call in calls] == [[RANKS] * RANKS] * len(crews)
    members = procs.spawn("members", Member)
    second = spawn_tensor_engine(procs)
    group = second.process_group("gpus")
    assert members.setup.call(group).get().values() == [RANKS] * RANKS
    assert setup(procs, crews[0]) == [RANKS] * RANKS


stores: list[Any] = []
"""What the stand-in for NCCL was given, in this process."""


class StandIn(dist.ProcessGroupGloo):
    """In the place of torch's class for NCCL, where there is no GPU. Keeps the store it is given."""

    Options = SimpleNamespace  # type: ignore[assignment]

    def __init__(self, store: Any, rank: int, size: int, _: Any) -> None:
        stores.append(store)
        super().__init__(store, rank, size, timedelta(minutes=30))


def use_stand_in() -> None:
    """Have a stand-in for NCCL. Run on each proc first."""

    os.environ["CUDA_VISIBLE_DEVICES"] = "0"
    module: Any = c10d
    torch.cuda.is_available = lambda: True
    module.is_nccl_available = lambda: True
    module.ProcessGroupNCCL = StandIn


def test_what_nccl_waits_for_at_first_use_ends_with_the_rank_that_owes_it(
    spawn: Spawn, faults: Faults
) -> None:
    procs = spawn(RANKS, bootstrap=use_stand_in)
    members = procs.spawn("members", Member)
    assert setup(procs, members) == [RANKS] * RANKS
    waiting = members.slice(gpus=slice(1, RANKS)).unique_id.call()
    os.kill(members.slice(gpus=0).pid.call_one().get(), signal.SIGKILL)
    with pytest.raises(ActorError, match="rank 0 has ended"):
        waiting.get()
    faults.wait_for(1)


def test_what_nccl_leaves_at_first_use_is_found(spawn: Spawn) -> None:
    procs = spawn(RANKS, bootstrap=use_stand_in)
    members = procs.spawn("members", Member)
    assert setup(procs, members) == [RANKS] * RANKS
    assert members.unique_id.call().get().values() == [b"made"] * RANKS


class Trainer(Actor):
    """Trains a replica without end."""

    @endpoint
    def setup(self, group: Any) -> None:
        torch.set_num_threads(1)
        self.model = DistributedDataParallel(torch.nn.Linear(4, 1), process_group=group)

    @endpoint
    def train(self, started: Port[None]) -> None:
        for step in itertools.count():
            self.model(torch.ones(2, 4)).sum().backward()
            if step == 2:
                started.send(None)

    @endpoint
    def pid(self) -> int:
        return os.getpid()


def test_a_rank_that_dies_in_a_collective_is_named_by_the_call(spawn: Spawn) -> None:
    # DistributedDataParallel needs it, in each process that starts again
    with configured(preload=["torch._dynamo"]):
        procs = spawn(RANKS, restart=AllForOne(max_restarts=1000, within=600))
    trainers = procs.spawn("trainers", Trainer)

    def setup_all() -> list[float]:
        with procs.activate() as mesh:
            trainers.setup.call(mesh.process_group("gpus")).get()
        return []

    causes = []
    for number in range(shortened(10, 4)):
        until_it_works(setup_all)
        victim, pids = number % RANKS, trainers.pid.call().get().values()
        port, started = Channel[None].open()
        training = trainers.train.call(port)
        for _ in range(RANKS):
            started.recv().get()
        os.kill(pids[victim], signal.SIGKILL)
        with pytest.raises(SupervisionError, match=rf"\[{victim}\] has failed") as raised:
            training.get()
        causes.append(raised.value.__cause__)
    assert any(isinstance(cause, ActorError) and "gloo" in str(cause) for cause in causes)


def test_a_process_group_is_no_argument_of_a_call_that_may_be_repeated(spawn: Spawn) -> None:
    procs = spawn(2)
    members = procs.spawn("members", Member)
    with procs.activate() as mesh:
        group = mesh.process_group("gpus")
        with pytest.raises(
            TypeError, match=r"members\.setup\(\) with retries: .* Leave `retries` out"
        ):
            members.setup.options(retries=3).call(group)
        assert members.setup.options(timeout=60).call(group).get().values() == [2.0, 2.0]


KILLED = """
import os, signal
import torch
from monarch import inspect
from monarch.actor import this_host
mesh = this_host().spawn_procs({"gpus": 2}).activate()
with mesh as active:
    assert inspect(torch.ones(1).reduce("gpus")).item() == 2
    print(active.engine.meeting.path, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_ranks_met_at_goes_with_a_program_that_is_killed() -> None:
    killed = run_script(KILLED)
    assert killed.exit_code == -signal.SIGKILL, str(killed)
    assert killed.left_behind == []
    path = Path(killed.stdout.strip())
    assert path.suffix == ".meeting"
    wait_until(lambda: not path.parent.exists(), what="the end of its folder")


def test_ranks_of_one_host_that_is_not_the_controllers_meet_in_its_store(
    spawn: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    procs = spawn(RANKS)
    hub = current_hub()
    with procs.activate() as mesh:
        with monkeypatch.context() as patch:
            # as where it is on another machine, where no file of ours is seen
            patch.setattr(
                plane, "current_hub", lambda: SimpleNamespace(address=hub.address, hosts=set())
            )
            meeting = meeting_of(mesh.engine)
        assert (meeting.path, meeting.one_host) == ("", True)
        for _ in range(2):
            assert inspect(torch.ones(1).reduce("gpus")).item() == RANKS
        group = mesh.process_group("gpus")
        reduced = remote(reduce_in, propagate=lambda x, group: x)(torch.ones(1), group)
        assert inspect(reduced).item() == RANKS


def reduce_in(x: Any, group: Any) -> Any:
    dist.all_reduce(x, group=group)
    return x


def reduce_for_long(x: Any) -> Any:
    for _ in range(1_000_000):
        dist.all_reduce(x)
    return x


def test_a_rank_that_dies_in_a_collective_is_named_by_a_fetch_from_another(
    spawn: Spawn, faults: Faults
) -> None:
    procs = spawn(RANKS)
    pids = procs.spawn("members", Member).pid.call().get().values()
    reduced = remote(reduce_for_long, propagate=lambda x: x)
    with procs.activate() as mesh:
        inspect(
            remote(reduce_in, propagate=lambda x, _: x)(torch.ones(1), mesh.process_group("gpus"))
        )
    results = []
    for rank in range(RANKS):
        with mesh.slice(gpus=slice(rank, rank + 1)).activate():
            results.append(reduced(torch.ones(1)))
    fetched = fetch_shard(results[0])
    os.kill(pids[1], signal.SIGKILL)
    with pytest.raises(SupervisionError, match=r"\[1\] has failed") as raised:
        fetched.get()
    assert isinstance(raised.value.__cause__, RemoteException)
    assert "gloo" in str(raised.value.__cause__)
    faults.wait_for(1)
