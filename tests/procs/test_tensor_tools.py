"""What comes with tensors: logs, random numbers, timers, profiles, a mesh in one line."""

# What torch returns here is more than its annotations say.
# mypy: disable-error-code="attr-defined, union-attr, no-untyped-call, arg-type"

from __future__ import annotations

import importlib.util
import json
import logging
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("torch", reason="distributed tensors need torch")

import torch

import monarch.random
from helpers.perfetto_traces import shown_by
from monarch import get_active_mesh, inspect, no_mesh, remote
from monarch.actor import Actor, endpoint
from monarch.builtins import log_remote, set_logging_level_remote
from monarch.builtins import random as remote_random
from monarch.memory import dump_memory_snapshot, record_memory_history
from monarch.profiler import Schedule, profile, record_function
from monarch.python_local_mesh import python_local_mesh, world_mesh
from monarch.telemetry import Profile, read
from monarch.tensor_engine import RemoteException
from monarch.tensorboard import Tensorboard
from monarch.timer import ExecutionTimer

if TYPE_CHECKING:
    from conftest import Spawn

pytestmark = [
    pytest.mark.torch,
    pytest.mark.may_keep("threads", "descriptors"),  # torch's
]


def at(tensor: Any, rank: int) -> Any:
    return inspect(tensor, gpus=rank).tolist()


def keep_logs() -> None:
    """On the ranks: keep what is logged."""
    records: list[str] = []

    class Keeper(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record.getMessage())

    logging.kept = records
    logging.getLogger().addHandler(Keeper())


@pytest.mark.processes("a process has one logger")
def test_ranks_log_with_their_own_values(mesh: Any) -> None:
    remote(keep_logs, propagate="inspect")()
    log_remote("rank %s", mesh.rank("gpus"))
    set_logging_level_remote(logging.ERROR)
    log_remote("not shown")
    log_remote("shown", level=logging.ERROR)
    set_logging_level_remote(logging.WARNING)
    logs = remote(lambda: logging.kept).call().get()
    for rank in range(2):
        first, second = logs.item(gpus=rank)
        assert "rank" in first
        assert str(rank) in first
        assert second.endswith("shown")


def test_states_of_random_numbers_are_what_they_say(mesh: Any) -> None:
    remote_random.set_manual_seed_remote(1, mesh.process_idx())
    state = monarch.random.get_state()
    assert inspect(state.cpu).shape == state.cpu.shape
    assert len(state.cuda) == remote(torch.cuda.device_count).call().get().item(gpus=0)
    first = torch.rand(2)
    fresh = monarch.random.new_state(7)
    monarch.random.set_state(state)
    again = torch.rand(2)
    assert at(first, 1) == at(again, 1) != at(again, 0)
    monarch.random.set_state(fresh)
    seeded = torch.rand(2)
    torch.manual_seed(7)
    assert at(torch.rand(2), 1) == at(seeded, 1) == at(seeded, 0)
    apart = monarch.random.new_state(mesh.rank("gpus"))
    assert at(apart.cpu, 0) != at(apart.cpu, 1)


@pytest.mark.processes("random numbers of Python are the process's")
def test_the_rest_of_random(mesh: Any) -> None:
    remote_random.random_seed_remote(3)
    draws = remote("random.random").call().get()
    assert draws.item(gpus=0) == draws.item(gpus=1)
    remote_random.random_seed_remote()
    draws = remote("random.random").call().get()
    assert draws.item(gpus=0) != draws.item(gpus=1)
    remote_random.seed_remote()
    x = torch.rand(8)
    assert at(x, 0) != at(x, 1)
    remote_random.manual_seed_cuda_remote(1)
    remote_random.manual_seed_all_cuda_remote(1)
    states = remote_random.get_rng_state_all_cuda_remote()
    if states:
        remote_random.set_rng_state_all_cuda_remote(states)
    inspect(x)


def test_ranks_can_be_made_deterministic(mesh: Any) -> None:
    monarch.random.make_deterministic()
    assert set(remote(torch.are_deterministic_algorithms_enabled).call().get().values()) == {True}
    remote(torch.use_deterministic_algorithms, propagate="inspect")(False)
    inspect(None)


def test_a_timer_measures_by_name() -> None:
    ExecutionTimer.reset()
    for _ in range(3):
        with ExecutionTimer.time("step", use_cpu=True):
            sum(range(1000))
    ExecutionTimer.start("other")
    with pytest.raises(RuntimeError, match="'other' is running"):
        ExecutionTimer.start("other")
    ExecutionTimer.stop("other")
    with pytest.raises(RuntimeError, match="not running"):
        ExecutionTimer.stop("other")
    summary = ExecutionTimer.summary()
    assert sorted(summary) == ["other", "step"]
    step = summary["step"]
    assert step["count"] == 3
    assert 0 < step["min_ms"] <= step["mean_ms"] <= step["max_ms"] <= step["total_ms"]
    assert step["min_ms"] <= ExecutionTimer.get_latest_measurement("step") <= step["max_ms"]
    ExecutionTimer.reset("step")
    assert ExecutionTimer.get_latest_measurement("step") == 0.0  # as in 0.7


@pytest.mark.processes("a process has one timer of a name")
def test_a_timer_measures_on_the_ranks(mesh: Any) -> None:
    timer = "monarch.timer.execution_timer"
    scalar = lambda name: torch.empty((), dtype=torch.float64)  # noqa: E731
    for _ in range(2):
        remote(f"{timer}.execution_timer_start", propagate="inspect")("op")
        torch.ones(10, 10) @ torch.ones(10, 10)
        remote(f"{timer}.execution_timer_stop", propagate="inspect")("op")
    latest = remote(f"{timer}.get_latest_timer_measurement", propagate=scalar)("op")
    average = remote(f"{timer}.get_execution_timer_average_ms", propagate=scalar)("op")
    assert at(latest, 1) > 0
    assert at(average, 1) > 0
    summary = remote(f"{timer}.ExecutionTimer.summary").call().get().item(gpus=0)
    assert summary["op"]["count"] == 2


@pytest.mark.processes("a process has one profiler of torch")
def test_each_rank_writes_its_own_trace(mesh: Any, tmp_path: Path) -> None:
    x = torch.ones(4, 4)
    schedule = Schedule(wait=1, warmup=0, active=1, repeat=1)
    with profile(on_trace_ready=str(tmp_path / "traces"), schedule=schedule) as profiler:
        for _ in range(2):
            with record_function("my block"):
                x = x @ x
            profiler.step()
    for rank in range(2):
        events = json.loads((tmp_path / "traces" / f"trace_{rank}.json").read_text())["traceEvents"]
        names = [event.get("name") for event in events if event.get("ph") == "X"]
        assert names.count("aten::mm") == 1
        assert "my block" in names
    with pytest.raises(TypeError, match="Schedule"):
        profile(schedule=(1, 2, 3))


class Computes(Actor):
    @endpoint
    def compute(self) -> None:
        ones = torch.ones(8, 8)
        for _ in range(5):
            ones = ones @ ones


@pytest.mark.processes("a process has one profiler of torch")
@pytest.mark.timeout(120)  # torch's profiler imports much
def test_a_profile_of_a_program_has_what_torch_sees_on_all_threads(spawn: Spawn) -> None:
    actors = spawn({"gpus": 2}, name="computing").spawn("computes", Computes)
    actors.compute.call().get()  # from then on they use torch
    with Profile(torch=True) as recorded:
        actors.compute.call().get()
    assert not [
        who
        for who in recorded.missing
        if who.startswith("computing") and "telemetry" not in recorded.missing[who]
    ]
    assert recorded.timeline is not None
    shown = [each for each in shown_by(recorded.timeline.content) if each.name == "aten::mm"]
    tracks = Counter(each.track.partition("proc ")[2].partition(" (")[0] for each in shown)
    assert tracks == {"computing[0]": 5, "computing[1]": 5} and {
        each.category for each in shown
    } == {"cpu_op"}
    found = read("torch_events").get().rows("torch_events")
    assert sum(row["name"] == "aten::mm" for row in found) == 10
    with Profile() as plain:
        actors.compute.call().get()
    assert plain.timeline is not None and not [
        each for each in shown_by(plain.timeline.content) if "aten" in each.name
    ]


@pytest.mark.processes("a process has one profiler of torch")
def test_a_profile_that_can_not_be_written_says_so(mesh: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RemoteException, match="NotADirectoryError|FileExistsError"):
        with profile(on_trace_ready=tmp_path / "file"):
            torch.ones(1)


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what is missing where there is no GPU")
def test_memory_of_a_cpu_has_no_history(mesh: Any, tmp_path: Path) -> None:
    record_memory_history()
    dump_memory_snapshot(dir_snapshots=tmp_path)
    with pytest.raises(RemoteException, match="no GPU"):
        mesh.exit()
    with no_mesh.activate(), pytest.raises(ValueError, match="no device mesh is active"):
        dump_memory_snapshot(tmp_path)
    with pytest.raises(TypeError):
        dump_memory_snapshot()  # type: ignore[call-arg]


@pytest.mark.skipif(
    importlib.util.find_spec("tensorboard") is not None, reason="says what is missing"
)
def test_tensorboard_says_what_to_install(mesh: Any, tmp_path: Path) -> None:
    with pytest.raises(ImportError, match="pip install tensorboard"):
        Tensorboard(mesh.slice(gpus=0), tmp_path)


def test_tensorboard_writes_values_of_the_ranks(mesh: Any, tmp_path: Path) -> None:
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    with Tensorboard(mesh.slice(gpus=1), tmp_path) as board:
        for step in range(3):
            board.log("loss", torch.tensor(float(step)) + mesh.rank("gpus"), step)
        board.log("number", 2.5, 0)
        board.flush()
        with pytest.raises(ValueError, match="one element"):
            board.log("loss", torch.ones(2))
    found = accumulators.EventAccumulator(str(tmp_path)).Reload()
    assert [event.value for event in found.Scalars("loss")] == [0.0, 1.0, 2.0]
    assert [event.value for event in found.Scalars("number")] == [2.5]


@pytest.mark.usefixtures("_process_test")
def test_a_mesh_in_one_line() -> None:
    mesh = python_local_mesh(gpus=2)
    assert mesh.sizes == {"host": 1, "gpu": 2}
    with mesh.activate():
        assert get_active_mesh() is mesh
        assert inspect(torch.ones(1) + mesh.rank("gpu"), host=0, gpu=1).item() == 2
    mesh.exit()
    with pytest.raises(ValueError, match="gpus=0"):
        python_local_mesh(gpus=0)
    with pytest.raises(NotImplementedError, match="spawn_procs"):
        world_mesh(None, 1, 2)
