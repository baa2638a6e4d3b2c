"""A simulated mesh: programs run on it as they are, nothing is executed, and time and memory come
out as the formulas say.
"""

from __future__ import annotations

import importlib.util
import json
import pickle
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

pytest.importorskip("torch", reason="distributed tensors need torch")

import torch
from torch import nn

import monarch
from monarch import Stream, coalescing, fetch_shard, inspect, reduce, reduce_, remote, to_mesh
from monarch.simulator import MACHINES, Link, Machine, Simulator, load, replay, set_meta
from monarch.tensor_engine import record

MB = 1024 * 1024
ROUND = Machine(
    name="round", source="numbers that are easy to reckon with", flops={"float32": 1e9}, vector=1e15, bandwidth=1e9, fresh=0.0,
    overhead=0.0, kernel=0.0, issue=0.0, delay=0.0, answer=0.0, fetch_bandwidth=1e12, host=Link(1e-3, 1e6),
    network=Link(2e-3, 1e5), trees=False, asynchronous=False, memory=1e9, block=1,
)  # fmt: skip


def simulator(hosts: int = 1, gpus: int = 2, **options: Any) -> Simulator:
    return Simulator(
        hosts, gpus, **{"machine": ROUND, "simulate_mode": "simulate_with_report_only", **options}
    )


@pytest.fixture
def sim() -> Iterator[Simulator]:
    made = simulator()
    with made.mesh.activate():
        yield made


def train(
    sim: Simulator, steps: int = 1, width: int = 64, batch: int = 8, reduced: bool = True
) -> Any:
    """A step of data-parallel training, as on any mesh."""
    with sim.mesh.activate():
        net = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
        optimizer = torch.optim.AdamW(net.parameters())
        for _ in range(steps):
            optimizer.zero_grad()
            loss = net(torch.randn(batch, width)).pow(2).mean()
            loss.backward()
            for parameter in net.parameters() if reduced else ():
                reduce_(parameter.grad, ("host", "gpu"), "avg")
            optimizer.step()
    return loss


# the program


def test_a_training_program_runs_with_no_process_and_reports_time_and_memory() -> None:
    before = psutil.Process().children()
    sim = simulator(2, 4, machine="h100")
    loss = train(sim, steps=2)
    seconds, megabytes = sim.step()
    assert seconds > 0
    assert megabytes > 0
    assert inspect(loss).shape == ()
    assert psutil.Process().children() == before


def example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(
        name, Path(__file__).parents[2] / "examples" / f"{name}.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.STEPS = 3
    return module


def run_example(name: str, mesh: Any) -> Any:
    module = example(name)
    if name == "pipeline":
        return module.train_on_meshes(mesh.slice(stage=0), mesh.slice(stage=1))
    with mesh.activate():
        result = module.train_on_mesh(mesh)
    return result[1] if isinstance(result, tuple) else result


@pytest.mark.parametrize(
    ("name", "dims"),
    [
        ("ddp", ("dp",)),
        ("tensor_parallel", ("dp", "tp")),
        ("small_transformer", ("dp", "tp")),
        ("pipeline", ("stage", "dp")),
    ],
)
def test_the_examples_of_training_run_as_they_are(name: str, dims: tuple[str, ...]) -> None:
    sim = simulator(1, 4)
    split: Any = {"gpu": dims, **({dims[-1]: 2} if len(dims) > 1 else {})}
    losses = run_example(name, sim.mesh.slice(host=0).split(**split))
    assert losses == [0.0] * 3
    assert sim.step().seconds > 0


def test_what_is_fetched_is_zeros_of_the_right_shape_and_type(sim: Simulator) -> None:
    x = torch.ones(3, 4, dtype=torch.float64)
    value = fetch_shard({"x": x.t(), "n": 5}, host=0, gpu=1).get()
    assert value["n"] == 5
    assert value["x"].dtype == torch.float64
    assert value["x"].tolist() == [[0.0] * 3] * 4


def test_the_mesh_is_like_any_other(sim: Simulator) -> None:
    assert sim.mesh.names == ["host", "gpu"]
    assert inspect(sim.mesh.rank("gpu")).shape == ()
    assert sim.mesh.split(gpu=("dp", "tp"), tp=2).size("tp") == 2
    with pytest.raises(RuntimeError, match="no processes"):
        sim.mesh.procs
    with pytest.raises(RuntimeError, match="must have same reduction dim"):
        torch.ones(2, 3) @ torch.ones(2, 3)


def test_step_is_found_where_old_programs_look_for_it(sim: Simulator) -> None:
    torch.ones(1)
    assert len(sim._ctrl.step()) == 2


def test_a_step_begins_where_the_one_before_ended(sim: Simulator) -> None:
    a = torch.ones(1000, 1000)
    sim.step()
    a.add_(1)
    assert sim.step().seconds == pytest.approx(8e6 / 1e9)
    assert sim.step().seconds == 0


# time


def test_a_matrix_product_takes_its_arithmetic_and_its_memory(sim: Simulator) -> None:
    a = torch.ones(100, 200)
    b = torch.ones(200, 300)
    sim.step()
    a @ b
    flops, touched = 2 * 100 * 200 * 300, 4 * (100 * 200 + 200 * 300 + 100 * 300)
    assert sim.step().seconds == pytest.approx(flops / 1e9 + touched / 1e9)


def test_a_device_of_its_own_overlaps_arithmetic_and_memory() -> None:
    sim = simulator(machine=ROUND.replace(asynchronous=True))
    with sim.mesh.activate():
        a = torch.ones(100, 100)
        sim.step()
        a @ a
        assert sim.step().seconds == pytest.approx(2 * 100**3 / 1e9)


def test_views_cost_nothing_but_overhead() -> None:
    sim = simulator(machine=ROUND.replace(overhead=1e-6))
    with sim.mesh.activate():
        a = torch.ones(1000, 1000)
        sim.step()
        a.view(-1, 10).t()[3]
        assert sim.step().seconds == pytest.approx(3e-6)


def test_the_program_may_be_what_is_slow() -> None:
    sim = simulator(machine=ROUND.replace(issue=1e-3, asynchronous=True, overhead=1e-6))
    with sim.mesh.activate():
        a = torch.ones(4)
        sim.step()
        for _ in range(10):
            a.add_(1)
        assert sim.step().seconds == pytest.approx(10e-3, rel=0.01)


@pytest.mark.parametrize(
    ("kind", "scatter", "expected"),
    [
        ("sum", False, 2 * 3 * (1e-3 + 4000 / 4 / 1e6) + 2 * 4000 / 1e9),
        ("stack", False, 3 * (1e-3 + 4000 / 1e6) + 2 * 16000 / 1e9),
        ("sum", True, 3 * (1e-3 + 4000 / 4 / 1e6) + 2 * 1000 / 1e9),
        ("stack", True, 3 * (1e-3 + 4000 / 4 / 1e6) + 2 * 4000 / 1e9),
    ],
)
def test_a_reduction_takes_as_long_as_its_ring(kind: str, scatter: bool, expected: float) -> None:
    sim = simulator(1, 4)
    with sim.mesh.activate():
        a = torch.ones(4, 250)
        sim.step()
        result = reduce(a, "gpu", kind, scatter=scatter)
        assert sim.step().seconds == pytest.approx(expected)
    assert inspect(result).shape == result.shape


def test_between_hosts_the_slower_link_counts_and_all_shares_of_a_host_together() -> None:
    sim = simulator(2, 4)
    with sim.mesh.activate():
        a = torch.ones(250)
        sim.step()
        reduce_(a, "host")
        one = sim.step().seconds
        reduce_(a, ("host", "gpu"))
        both = sim.step().seconds
    assert one == pytest.approx(2 * (2e-3 + 1000 / 2 / 1e5), rel=0.01)
    assert both == pytest.approx(14 * (2e-3 + 1000 / 8 / 4e5), rel=0.01)


def test_many_ranks_use_trees_for_what_is_small_if_the_machine_does() -> None:
    seconds = {}
    for trees in (False, True):
        sim = simulator(100, 8, machine=ROUND.replace(trees=trees))
        with sim.mesh.activate():
            a = torch.ones(1)
            sim.step()
            reduce_(a, ("host", "gpu"))
            seconds[trees] = sim.step().seconds
    assert seconds[True] < seconds[False] / 20


def test_a_reduction_waits_for_the_slowest_of_its_ranks(sim: Simulator) -> None:
    first = sim.mesh.slice(host=0, gpu=0)
    with first.activate():
        a = torch.ones(1000, 1000)
        sim.step()
        for _ in range(5):
            a.add_(1)
    reduce_(torch.ones(1), ("host", "gpu"))
    assert sim.step().seconds == pytest.approx(5 * 8e6 / 1e9 + 2 * (1e-3 + 2 / 1e6), rel=0.01)


def test_parts_of_a_mesh_compute_side_by_side_and_data_passes_between_them() -> None:
    sim = simulator(1, 4)
    stages = sim.mesh.split(gpu=("stage", "dp"), stage=2)
    front, back = stages.slice(stage=0), stages.slice(stage=1)
    with front.activate():
        a = torch.ones(500, 500)
    with back.activate():
        b = torch.ones(500, 500)
    sim.step()
    for tensor in (a, b):
        tensor.add_(1)
    assert sim.step().seconds == pytest.approx(2e6 / 1e9)
    moved = to_mesh(a, back)
    assert sim.step().seconds == pytest.approx(1e-3 + 1e6 / 1e6)
    assert moved.mesh is back


def test_a_transfer_to_several_takes_as_many_messages() -> None:
    sim = simulator(1, 4)
    one = sim.mesh.slice(gpu=0)
    with one.activate():
        a = torch.ones(1000)
    sim.step()
    to_mesh(a, sim.mesh)
    assert sim.step().seconds == pytest.approx(3 * (1e-3 + 4e3 / 1e6))


def test_the_reader_of_an_answer_waits_for_it() -> None:
    sim = simulator(machine=ROUND.replace(answer=0.5, delay=0.1))
    with sim.mesh.activate():
        a = torch.ones(10)
        inspect(a)
        sim.step()
        inspect(a)
        assert sim.step().seconds == pytest.approx(0.5, rel=0.01)
        futures = [fetch_shard(a) for _ in range(3)]
        for future in futures:
            future.get()
        assert sim.step().seconds == pytest.approx(0.5, rel=0.01)


# streams


def overlapping(sim: Simulator, stream: Stream | None) -> float:
    """A reduction of a gradient, and work that does not need it; on another stream the one hides
    behind the other.
    """
    with sim.mesh.activate():
        gradient: Any = torch.ones(250)
        weights = torch.ones(1000, 1000)
        sim.step()
        if stream is None:
            reduce_(gradient, "gpu")
            weights.add_(1)
        else:
            lent, borrow = stream.borrow(gradient, mutable=True)
            with stream.activate():
                reduce_(lent, "gpu")
            del lent
            weights.add_(1)
            borrow.drop()
        gradient.add_(1)
        return sim.step().seconds


def test_communication_hides_behind_work_on_another_stream() -> None:
    reduction, work, last = 2 * (1e-3 + 500 / 1e6) + 4 * 1000 / 1e9, 8e6 / 1e9, 2000 / 1e9
    assert overlapping(simulator(), None) == pytest.approx(reduction + work + last, rel=1e-3)
    assert overlapping(simulator(), Stream("communication")) == pytest.approx(
        max(reduction, work) + last, rel=1e-3
    )


def test_streams_have_rows_of_their_own_and_show_who_waits(tmp_path: Path) -> None:
    sim = simulator(simulate_mode="simulate", trace_path=tmp_path / "trace.json")
    overlapping(sim, Stream("communication"))
    events = json.loads((tmp_path / "trace_1.json").read_text())["traceEvents"]
    rows = {
        event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"
    }
    assert sorted(rows.values()) == ["communication", "main"]
    where = {event["name"]: rows[event["tid"]] for event in events if event["ph"] == "X"}
    assert where["all-reduce sum"] == "communication"
    assert where["add_"] == where["take back"] == "main"
    assert ": communication" in sim.picture()


def test_streams_share_what_computes() -> None:
    sim = simulator()
    stream = Stream("other")
    with sim.mesh.activate():
        a = torch.ones(1000, 1000)
        with stream.activate():
            b = torch.ones(1000, 1000)
        sim.step()
        a.add_(1)
        with stream.activate():
            b.add_(1)
    assert sim.step().seconds == pytest.approx(2 * 8e6 / 1e9)


def test_a_transfer_to_another_stream_lets_its_own_go_on() -> None:
    sim = simulator(1, 2)
    front, back = sim.mesh.slice(gpu=0), sim.mesh.slice(gpu=1)
    stream = Stream("arrivals")
    with front.activate():
        a = torch.ones(1000)
    with back.activate():
        b = torch.ones(1000, 1000)
    sim.step()
    moved = to_mesh(a, back, stream=stream)
    with back.activate():
        b.add_(1)
    assert sim.step().seconds == pytest.approx(max(1e-3 + 4e3 / 1e6, 8e6 / 1e9), rel=1e-3)
    with back.activate(), stream.activate():
        assert inspect(moved + 1).shape == (1000,)


def test_a_borrow_takes_no_memory(sim: Simulator) -> None:
    stream = Stream("reader")
    a: Any = torch.ones(MB // 4)
    lent, borrow = stream.borrow(a)
    with stream.activate():
        assert inspect(lent.view(2, -1)).shape == (2, MB // 8)
    assert sim.step().megabytes == 1
    del lent
    borrow.drop()
    del a, borrow
    torch.ones(1)
    sim.step()
    torch.ones(1)
    assert sim.step().megabytes < 0.001


# coalescing and recording


def test_instructions_that_are_held_back_count_when_they_go_out(sim: Simulator) -> None:
    a = torch.ones(1000, 1000)
    sim.step()
    with coalescing():
        a.add_(1)
        b = a * 2
    assert sim.step().seconds == pytest.approx(8e6 / 1e9 + 8e6 / 1e9)
    del b


def test_a_recorded_function_takes_as_long_as_what_it_replays_and_is_issued_at_once() -> None:
    sim = simulator(machine=ROUND.replace(issue=1e-3))

    def compute(x: Any) -> Any:
        y = x
        for _ in range(10):
            y = (y + x) * 0.5
        reduce_(y, "gpu")
        return y, y.sum()

    work = 20 * 12e4 / 1e9  # at least
    with sim.mesh.activate():
        a, recorded = torch.ones(100, 100), record(compute)
        for _ in range(3):
            results = inspect(recorded(a))
        assert results[0].shape == (100, 100)
        sim.step()
        compute(a)
        plain = sim.step()
        recorded(a)
        replayed = sim.step()
    assert plain.seconds >= 22e-3
    assert work < replayed.seconds < plain.seconds - 10e-3
    assert replayed.megabytes <= plain.megabytes


def test_replays_give_back_the_memory_that_they_take(sim: Simulator) -> None:
    @record
    def compute(x: Any) -> Any:
        y = x + 1
        return (y * 2).sum()

    a = torch.ones(MB // 4)
    for _ in range(5):
        compute(a)
        torch.ones(1)
    sim.step()
    compute(a)
    assert sim.step().megabytes == pytest.approx(3, abs=1e-3)
    torch.ones(1)
    sim.step()
    torch.ones(1)
    assert sim.step().megabytes == pytest.approx(1, abs=1e-3)


def test_replays_outlive_the_templates_of_their_time(
    sim: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("monarch.tensor_engine.controller.engine._PLANS", 4)
    a = torch.ones(40)

    @record
    def recorded() -> Any:
        return sum(a[index] * index for index in range(20))

    for _ in range(3):
        assert recorded().shape == ()
        for index in range(40):
            a[index].add_(1)


def test_streams_of_a_recorded_function_run_side_by_side() -> None:
    stream = Stream("communication")
    sim = simulator()

    def compute(gradient: Any, weights: Any) -> None:
        lent, borrow = stream.borrow(gradient, mutable=True)
        with stream.activate():
            reduce_(lent, "gpu")
        del lent
        weights.add_(1)
        borrow.drop()
        gradient.add_(1)

    with sim.mesh.activate():
        recorded = record(compute)
        arguments = torch.ones(250), torch.ones(1000, 1000)
        for _ in range(3):
            recorded(*arguments)
        sim.step()
        recorded(*arguments)
        replayed = sim.step().seconds
        compute(*arguments)
        assert replayed == pytest.approx(sim.step().seconds)


def test_a_recording_in_which_parts_of_a_mesh_meet_is_not_simulated() -> None:
    sim = simulator(1, 4)
    first = sim.mesh.slice(gpu=slice(0, 2))

    @record
    def compute(x: Any, y: Any) -> None:
        x.add_(1)
        reduce_(y, "gpu")

    with first.activate():
        x = torch.ones(1)
    with sim.mesh.activate():
        y = torch.ones(1)

        def run() -> None:  # instructions may wait, until the step at the latest
            compute(x, y)
            sim.step()

        with pytest.raises(NotImplementedError, match="call the function itself"):
            run()


# memory


def test_the_peak_is_that_of_what_is_alive_at_once(sim: Simulator) -> None:
    a = torch.ones(MB // 4)
    assert sim.step().megabytes == 1
    b = a + a
    c = b * 2
    del b
    d = c + a
    assert sim.step().megabytes == 3
    del a, c, d
    torch.ones(1)
    sim.step()
    torch.ones(MB // 4)
    assert sim.step().megabytes == pytest.approx(1, abs=1e-4)


def test_what_shares_memory_counts_once(sim: Simulator) -> None:
    a = torch.ones(1024, 256)
    views = [a.t(), a[3:], a.view(-1), a.detach(), a.unsqueeze(0)]
    a.add_(1)
    a.t_()
    assert sim.step().megabytes == 1
    del a
    torch.ones(1)
    assert sim.step().megabytes == pytest.approx(1, abs=1e-4)
    del views
    torch.ones(1)
    sim.step()
    torch.ones(1)
    assert sim.step().megabytes < 0.001


def test_dropped_memory_is_given_back_once(sim: Simulator) -> None:
    a: Any = torch.ones(MB // 4)
    view = a[1:]
    a.drop()
    sim.step()
    del a, view
    torch.ones(MB // 2)
    torch.ones(1)
    assert sim.step().megabytes == pytest.approx(2, abs=1e-4)


def test_each_rank_has_a_peak_of_its_own() -> None:
    sim = simulator(1, 3)
    with sim.mesh.slice(gpu=1).activate():
        a = torch.ones(MB // 4)
    with sim.mesh.activate():
        b = torch.ones(MB // 4)
    assert sim.step().megabytes == 2
    assert sim.peaks == {0: 1, 1: 2, 2: 1}
    del a, b


def test_a_rule_that_returns_its_argument_shares_its_memory(sim: Simulator) -> None:
    a = torch.ones(MB // 4)
    remote("anything.at_all", propagate=lambda x: x.view(-1, 2))(a)
    assert sim.step().megabytes == 1
    remote("anything.at_all", propagate=lambda x: x.clone())(a)
    assert sim.step().megabytes == 2


# many ranks


def test_a_thousand_ranks_that_do_the_same_cost_little_more_than_one() -> None:
    def seconds(hosts: int, gpus: int) -> float:
        sim = simulator(hosts, gpus)
        train(sim)
        start = time.process_time()
        train(sim, steps=3)
        sim.step()
        return time.process_time() - start

    one = min(seconds(1, 1) for _ in range(2))
    thousand = min(seconds(125, 8) for _ in range(2))
    assert thousand < 30 * one


def random_program(sim: Simulator, seed: int) -> list[Any]:
    """Some operations on various parts of a mesh of 2 x 4 ranks."""
    dice = random.Random(seed)
    split = sim.mesh.split(gpu=("a", "b"), b=2)
    meshes = [
        sim.mesh,
        split,
        split.slice(a=0),
        split.slice(b=1),
        split.slice(host=1),
        split.slice(host=0, a=1),
    ]
    tensors = []
    for mesh in meshes:
        with mesh.activate():
            tensors.append(torch.ones(8, 100))
    steps = []
    for _ in range(30):
        mesh, tensor = dice.choice(list(zip(meshes, tensors, strict=True)))
        with mesh.activate():
            action = dice.randrange(4)
            if action == 0:
                tensor.add_(1)
            elif action == 1:
                _ = tensor @ tensor.t()
            elif action == 2 and mesh.names:
                reduce_(tensor, dice.choice(mesh.names))
            else:
                to_mesh(tensors[3], meshes[1])
        if dice.random() < 0.2:
            steps.append(sim.step())
    return [*steps, sim.step(), sim.peaks]


@pytest.mark.parametrize("seed", range(8))
def test_ranks_that_are_computed_together_come_out_as_if_each_was_computed_alone(seed: int) -> None:
    together, alone = simulator(2, 4), simulator(2, 4)
    alone._model.cohorts.regroup({rank: rank for rank in range(8)})
    expected, got = random_program(alone, seed), random_program(together, seed)
    for one, other in zip(expected, got, strict=True):
        assert one == pytest.approx(other)


# remote functions


def test_a_remote_function_costs_what_is_said(sim: Simulator) -> None:
    function = remote("some.where.compute", propagate=lambda x: x.clone())
    a = torch.ones(1000)
    sim.step()
    function(a)
    assert sim.step().seconds == pytest.approx(8e3 / 1e9)
    sim.set_cost("compute", 0.25)
    function(a)
    assert sim.step().seconds == pytest.approx(0.25)
    sim.set_cost(function, lambda x: x.shape[0] * 1e-3)
    function(a)
    assert sim.step().seconds == pytest.approx(1.0)


def test_a_remote_function_is_never_run(sim: Simulator) -> None:
    def fail() -> None:
        raise AssertionError

    remote(fail, propagate="inspect")()
    assert list(remote(fail).call().get().values()) == [None, None]
    assert sim.step()


def test_a_function_without_a_rule_is_refused(sim: Simulator) -> None:
    with pytest.raises(NotImplementedError, match="propagate=rule"):
        remote("some.where.compute")(torch.ones(1))


# what is written


def test_traces_have_rows_for_each_rank_and_say_which_line_issued_what(tmp_path: Path) -> None:
    sim = simulator(1, 3, simulate_mode="simulate", trace_path=tmp_path / "trace.json")
    with sim.mesh.activate():
        a = torch.ones(1000)
        sim.step()
        with set_meta("optimizer"):
            a.add_(1)
        reduce_(a, ("host", "gpu"))
    sim.step()
    trace = json.loads((tmp_path / "trace_1.json").read_text())
    done = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    adds = [event for event in done if event["name"] == "add_"]
    assert len(adds) == 3
    assert {event["args"]["meta"] for event in adds} == {"optimizer"}
    assert all(__file__ in event["args"]["line"] for event in adds)
    assert adds[0]["dur"] == pytest.approx(8e3 / 1e9 * 1e6)
    assert [event["cat"] for event in done if event["name"] == "all-reduce sum"] == [
        "communication"
    ] * 3
    assert not any("meta" in event["args"] for event in done if event["name"] != "add_")
    with (tmp_path / "trace_0_memory.pickle").open("rb") as file:
        snapshot = pickle.load(file)
    assert [[entry["size"] for entry in device] for device in snapshot["device_traces"]] == [
        [4000]
    ] * 3


def test_ranks_that_did_the_same_can_share_a_row(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    sim = simulator(
        5, 8, simulate_mode="simulate", trace_path=path, group_workers=True, trace_mode="everything"
    )
    with sim.mesh.activate():
        torch.ones(1)
    sim.step()
    events = json.loads((tmp_path / "trace_0.json").read_text())["traceEvents"]
    names = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert names == ["controller", "ranks 0 to 39"]


def test_the_program_has_a_trace_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    sim = simulator(simulate_mode="simulate", trace_path=path, trace_mode="controller_trace_only")
    with sim.mesh.activate():
        inspect(torch.ones(1000))
    sim.step()
    events = json.loads((tmp_path / "trace_0.json").read_text())["traceEvents"]
    assert {event["cat"] for event in events if event["ph"] == "X"} == {"issue", "wait"}


def test_no_files_are_written_for_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sim = simulator()
    train(sim)
    sim.step()
    assert list(tmp_path.iterdir()) == []
    assert "ranks 0 to 1" in sim.report()
    with pytest.raises(RuntimeError, match="step"):
        sim.picture()


def test_a_step_can_be_seen(tmp_path: Path) -> None:
    sim = simulator(simulate_mode="simulate", trace_path=tmp_path / "trace.json")
    train(sim)
    sim.step()
    picture = sim.picture()
    assert picture.startswith("<svg")
    assert "ranks 0 to 1" in picture


def test_the_graph_of_a_program_has_an_edge_for_each_need(tmp_path: Path) -> None:
    sim = simulator(build_ir=True)
    with sim.mesh.activate():
        a = torch.ones(2)
        b = a + 1
        a.add_(1)
        reduce_(b, "gpu")
    sim.export_ir(tmp_path / "graph.json")
    graph = json.loads((tmp_path / "graph.json").read_text())
    names = [node["name"] for node in graph["nodes"]]
    assert names == ["ones", "add", "add_", "all-reduce sum"]
    assert sorted(map(tuple, graph["edges"])) == [(0, 1), (0, 2), (1, 2), (1, 3)]
    sim.export_ir(tmp_path / "graph.csv")
    assert len((tmp_path / "graph.csv").read_text().splitlines()) == 5


def test_what_functions_write_to_has_edges(tmp_path: Path) -> None:
    change = remote(lambda x: x.add_(1), propagate=lambda x: x.add_(1))
    sim = simulator(build_ir=True)
    with sim.mesh.activate():
        recorded = record(lambda x: change(x).detach(), verify=False)
        a = torch.ones(2)
        recorded(a)
        change(a)
        a.sum()
    sim.export_ir(tmp_path / "graph.json")
    graph = json.loads((tmp_path / "graph.json").read_text())
    assert len(graph["nodes"]) == 4
    assert sorted(map(tuple, graph["edges"])) == [(0, 1), (1, 2), (2, 3)]


def test_a_graph_must_have_been_kept(sim: Simulator) -> None:
    with pytest.raises(RuntimeError, match="build_ir"):
        sim.export_ir("nowhere.json")


def test_a_program_can_be_replayed_on_another_machine(tmp_path: Path) -> None:
    path = tmp_path / "history.pkl"
    sim = simulator(2, 2, simulate_mode="command_history", command_history_path=path)
    steps = []
    for _ in range(2):
        inspect(train(sim))
        steps.append(sim.step())
    assert replay(path, ROUND) == steps
    faster = replay(path, ROUND.replace(flops={"float32": 1e12}, bandwidth=1e12))
    assert [step.megabytes for step in faster] == [step.megabytes for step in steps]
    assert all(fast.seconds < slow.seconds for fast, slow in zip(faster, steps, strict=True))


def test_what_is_no_history_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "history.pkl"
    path.write_bytes(pickle.dumps([1, 2]))
    with pytest.raises(ValueError, match="not a command history"):
        replay(path)


# machines and mistakes


def test_machines_are_kept_in_files(tmp_path: Path) -> None:
    path = tmp_path / "machine.json"
    ROUND.save(path)
    assert load(path) == ROUND
    assert simulator(machine=str(path)).machine == ROUND
    path.write_text("[]")
    with pytest.raises(ValueError, match="does not describe a machine"):
        load(path)


def test_a_type_without_a_rate_of_its_own_gets_that_of_one_as_wide() -> None:
    machine = MACHINES["h100"]
    assert machine.flops_of("float64") == machine.flops["float32"]
    assert machine.flops_of("float8_e4m3fn") == machine.flops["bfloat16"]


def test_faster_machines_and_links_are_predicted_to_be_faster() -> None:
    def seconds(machine: Any) -> float:
        sim = simulator(4, 8, machine=machine)
        train(sim, width=4096, batch=4096)
        return sim.step().seconds

    slow, fast = seconds("v100"), seconds("h100")
    assert fast < slow
    assert seconds(MACHINES["h100"].replace(network=Link(1e-3, 1e6))) > 10 * fast


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"hosts": 0}, "hosts is a positive number"),
        ({"gpus": -1}, "gpus is a positive number"),
        ({"machine": "abacus"}, "there is no machine 'abacus'"),
        ({"simulate_mode": "dream"}, "simulate_mode is one of"),
        ({"trace_mode": "nothing"}, "trace_mode is one of"),
    ],
)
def test_bad_arguments_are_named(options: dict[str, Any], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        Simulator(**{"hosts": 1, "gpus": 1, **options})


def test_two_simulated_meshes_do_not_mix(sim: Simulator) -> None:
    with pytest.raises(TypeError, match="WRONG_MESH"):
        with simulator().mesh.activate():
            torch.ones(1).add(with_other(sim))


def with_other(sim: Simulator) -> Any:
    with sim.mesh.activate():
        return torch.ones(1)


def test_the_names_are_where_programs_import_them_from() -> None:
    assert monarch.Simulator is Simulator
    assert monarch.set_meta is set_meta
