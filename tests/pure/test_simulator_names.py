"""The simulator under the names of Monarch 0.7: modes, the graph of commands, times of collectives, names of files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from monarch.simulator.communication_model import (  # noqa: E402  # they need torch
    NetworkConfig,
    estimate_collective_time_us,
    estimate_send_time_us,
    tensor_size_bytes,
)
from monarch.simulator.ir import Command, IRGraph  # noqa: E402
from monarch.simulator.simulator import Simulator, SimulatorTraceMode  # noqa: E402
from monarch.simulator.utils import file_path_with_iter  # noqa: E402


@pytest.fixture
def simulator(tmp_path: Path) -> Simulator:
    """After a step of a small program."""
    made = Simulator(1, 2, trace_mode=SimulatorTraceMode.EVERYTHING, trace_path=tmp_path / "t.json", build_ir=True)
    with made.mesh.activate():
        x = torch.ones(10, 10)
        (x @ x).reduce_("gpu")
    made.step()
    return made


def named(path: Path) -> set[str]:
    events = json.loads(path.read_text())["traceEvents"]
    return {event["args"]["name"] for event in events if event["name"] == "process_name"}


def test_modes_are_the_texts_that_a_simulator_takes(simulator: Simulator, tmp_path: Path) -> None:
    assert named(tmp_path / "t_0.json") == {"controller", "rank 0", "rank 1"}
    assert SimulatorTraceMode["CONTROLLER_ONLY"] is SimulatorTraceMode["CONTROLLER_TRACE_ONLY"]
    assert [mode.stream_enabled for mode in SimulatorTraceMode] == [True, False, True]
    assert [mode.controller_enabled for mode in SimulatorTraceMode] == [False, True, True]
    with pytest.raises(
        ValueError, match="trace_mode is one of stream_only, controller_trace_only, everything; got 'all'"
    ):
        Simulator(1, 1, trace_mode="all")


def test_the_graph_of_a_program_has_a_command_for_each_rank(simulator: Simulator) -> None:
    commands = simulator.ir.control_dag
    assert [(command.worker_rank, command.command_name) for command in commands] == [
        (rank, name) for name in ("ones", "mm", "all-reduce sum") for rank in (0, 1)
    ]
    ones, mm, reduced = commands[::2]
    assert mm.control_dependencies == [ones.command_id]
    assert reduced.control_dependencies == [mm.command_id]
    assert reduced.devices == [0, 1]
    assert reduced.duration > 0
    with pytest.raises(RuntimeError, match="build_ir=True"):
        Simulator(1, 1).ir


def graph_of(*names: str) -> IRGraph:
    """Each command comes after the one before."""
    graph = IRGraph()
    for number, name in enumerate(names):
        graph.insert_node(0, "main", number, name, [0], [number - 1] if number else [], ())
    return graph


def test_a_type_that_is_removed_leaves_the_order_of_what_was_around_it(capsys: pytest.CaptureFixture[str]) -> None:
    graph = graph_of("CallFunction: aten.mm", "DeleteRefs: 3", "DeleteRefs: 4", "CallFunction: aten.add", "Borrow: 1")
    assert graph.remove_dag_item_type(["DeleteRefs", "Borrow: 1"], print_removed_nodes=True) == 3
    assert [(command.command_id, command.control_dependencies) for command in graph.control_dag] == [(0, []), (3, [0])]
    assert "DeleteRefs: 4" in capsys.readouterr().out


def test_traces_are_as_wide_as_durations_that_were_imported(tmp_path: Path) -> None:
    graph = graph_of("mm", "all_reduce")
    types = tmp_path / "types.json"
    graph.export_command_types(str(types), include_timing=True)
    found = json.loads(types.read_text())
    assert found["mm"] == {"count": 1, "devices": 1, "duration_us": 0}
    types.write_text(json.dumps({"mm": 7}))
    graph.import_timing(str(types))
    graph.import_timing({"all_reduce": 5})
    assert graph.control_dag[0] == Command(0, "main", 0, "mm", [0], [], (), 7)
    times: dict[str, Any] = {}
    for name, export in (("plain", graph.export_dag_json), ("timed", graph.export_dag_json_timed)):
        export(str(tmp_path / name))
        times[name] = [
            (event["ts"], event["dur"]) for event in json.loads((tmp_path / name).read_text())["traceEvents"]
        ]
    assert times == {"plain": [(0, 1000), (1000, 1000)], "timed": [(0, 7), (7, 5)]}


def test_what_the_graph_does_not_tell_says_who_does() -> None:
    with pytest.raises(NotImplementedError, match=r"export_borrows_csv.*Simulator\.export_ir"):
        IRGraph().export_borrows_csv("x")
    assert not hasattr(IRGraph(), "no_such_name")


def test_sizes_of_tensors_follow_the_dtype() -> None:
    assert tensor_size_bytes([1024, 1024], "float32") == 4 * 2**20
    assert tensor_size_bytes([3], "torch.bfloat16") == 6
    assert tensor_size_bytes([], "int64") == 8
    assert tensor_size_bytes([0], "float32") == 0


def test_times_of_collectives_follow_the_network() -> None:
    shape = [1024, 1024]
    for kind in ("all_reduce", "sum", "all_gather", "reduce_scatter", "all_to_all"):
        alone, host, hosts = (estimate_collective_time_us(kind, shape, "float32", count) for count in (1, 8, 64))
        assert alone == 0 < host < hosts
    slow = NetworkConfig(inter_node_bandwidth_gbs=5)
    assert estimate_send_time_us(shape, "float32") == 86  # 2 µs, and 4 MiB at 50 GB/s
    assert estimate_send_time_us(shape, "float32", slow) == 841
    free = NetworkConfig(contention_factor=1.0)
    crowded = estimate_collective_time_us("all_to_all", shape, "float32", 16)
    assert estimate_collective_time_us("all_to_all", shape, "float32", 16, free) < crowded
    with pytest.raises(ValueError, match="reduce_type is one of all_reduce.*got 'bogus'"):
        estimate_collective_time_us("bogus", shape, "float32", 8)
    with pytest.raises(ValueError, match="num_devices"):
        estimate_collective_time_us("sum", shape, "float32", 0)


@pytest.mark.parametrize(
    ("path", "expected"), [("trace.json", "trace_3.json"), ("a/b.c.json", "a/b.c_3.json"), ("trace", "trace_3")]
)
def test_files_of_iterations_have_their_number(path: str, expected: str) -> None:
    assert file_path_with_iter(path, 3) == expected
