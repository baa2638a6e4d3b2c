"""The simulator under the names of Monarch 0.7: modes, the graph of commands, times of collectives,
names of files.
"""

from __future__ import annotations

import csv
import json
import pickle
import sys
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
from monarch.simulator.ir import (  # noqa: E402
    Command,
    IRGraph,
    StorageCreationEvent,
    StorageDeletionEvent,
    TensorAccessEvent,
    TensorCreationEvent,
    TensorDeletionEvent,
    TensorMutationEvent,
)
from monarch.simulator.simulator import Simulator, SimulatorTraceMode  # noqa: E402
from monarch.simulator.tensor_events import TensorEvents  # noqa: E402
from monarch.simulator.utils import file_path_with_iter  # noqa: E402
from monarch.tensor_engine import Stream, record  # noqa: E402


@pytest.fixture
def simulator(tmp_path: Path) -> Simulator:
    """After a step of a small program."""
    made = Simulator(
        1,
        2,
        trace_mode=SimulatorTraceMode.EVERYTHING,
        trace_path=tmp_path / "t.json",
        build_ir=True,
    )
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
        ValueError,
        match="trace_mode is one of stream_only, controller_trace_only, everything; got 'all'",
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


def test_a_type_that_is_removed_leaves_the_order_of_what_was_around_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    graph = graph_of(
        "CallFunction: aten.mm",
        "DeleteRefs: 3",
        "DeleteRefs: 4",
        "CallFunction: aten.add",
        "Borrow: 1",
    )
    assert graph.remove_dag_item_type(["DeleteRefs", "Borrow: 1"], print_removed_nodes=True) == 3
    assert [
        (command.command_id, command.control_dependencies) for command in graph.control_dag
    ] == [(0, []), (3, [0])]
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
            (event["ts"], event["dur"])
            for event in json.loads((tmp_path / name).read_text())["traceEvents"]
        ]
    assert times == {"plain": [(0, 1000), (1000, 1000)], "timed": [(0, 7), (7, 5)]}


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_graph_tells_what_befell_each_tensor(tmp_path: Path) -> None:
    sim = Simulator(1, 2, simulate_mode="simulate_with_report_only", build_ir=True)
    with sim.mesh.activate():
        x = torch.ones(256, 256)
        y = x @ x
        y.add_(1)
        del x
        z = y.reduce_("gpu")
        del y, z
        kept = torch.zeros(1)  # what is freed goes with what comes next
    sim.step()
    ir = sim.ir
    numbers = {command.command_name: command.command_id for command in ir.control_dag}
    ones, mm, add, reduced = (numbers[name] for name in ("ones", "mm", "add_", "all-reduce sum"))
    assert "test_the_graph_tells_what_befell_each_tensor" in [
        frame.name for frame in ir.control_dag[0].traceback
    ]
    made = [event for event in ir.data_dag if isinstance(event, TensorCreationEvent)]
    assert [(event.command_id, event.dims, event.devices) for event in made[:2]] == [
        (ones, (256, 256), [0, 1]), (mm, (256, 256), [0, 1]),
    ]  # fmt: skip
    x_ref, y_ref = (event.DTensorRef for event in made[:2])
    changed = [event for event in ir.data_dag if isinstance(event, TensorMutationEvent)]
    assert (changed[0].command_id, changed[0].DTensorRef, changed[0].stream_name) == (
        add,
        y_ref,
        "main",
    )
    used = [
        event.command_id
        for event in ir.data_dag
        if isinstance(event, TensorAccessEvent) and event.DTensorRef == x_ref
    ]
    assert used == [ones, mm]
    ir.export_data_csv(str(tmp_path / "data.csv"))
    x_row, y_row, *_ = rows(tmp_path / "data.csv")
    assert (x_row["storage_create_id"], x_row["lastuse_id"], x_row["size"]) == (
        str(ones),
        str(mm),
        str(4 * 256 * 256),
    )
    assert int(x_row["storage_deletion_id"]) >= mm and int(y_row["storage_deletion_id"]) >= reduced
    ir.export_data_timeline_csv(str(tmp_path / "timeline.csv"))
    timeline = rows(tmp_path / "timeline.csv")
    assert [row["DataEvent"] for row in timeline[:3]] == [
        "StorageCreation",
        "TensorCreation",
        "TensorAccess",
    ]
    assert len(timeline) == len(ir.data_dag)
    ir.convert_devices_to_meshes()
    assert {event.mesh_ref for event in ir.data_dag} == {0}
    ir.export_memory_viz(str(tmp_path / "memory.pickle"))
    traces = pickle.loads((tmp_path / "memory.pickle").read_bytes())["device_traces"]
    assert len(traces) == 2 and kept.shape == (1,)
    assert [entry["action"] for entry in traces[0]].count("alloc") == len(
        {event.storage_id for event in ir.data_dag}
    )


def test_the_graph_tells_of_borrows_and_moves(tmp_path: Path) -> None:
    sim = Simulator(1, 2, simulate_mode="simulate_with_report_only", build_ir=True)
    other = Stream("other")
    with sim.mesh.activate():
        x = torch.ones(4, 4)
        borrowed, borrow = other.borrow(x)
        with other.activate():
            y = borrowed + 1
        borrow.drop()
    with sim.mesh.slice(gpu=0).activate():
        z = torch.ones(2, 2)
    moved = z.to_mesh(sim.mesh.slice(gpu=1))
    sim.step()
    ir = sim.ir
    ir.export_borrows_csv(str(tmp_path / "borrows.csv"))
    (row,) = rows(tmp_path / "borrows.csv")
    assert (row["devices"], row["src_stream_name"], row["dst_stream_name"]) == (
        "[0, 1]",
        "main",
        "other",
    )
    order = [int(row[name]) for name in ("create_id", "firstuse_id", "lastuse_id", "drop_id")]
    assert order == sorted(set(order))
    names = {command.command_id: command.command_name for command in ir.control_dag}
    assert [names[number] for number in order] == ["lend", "borrow", "give back", "take back"]
    ones, lent = (
        event
        for event in ir.data_dag
        if isinstance(event, TensorCreationEvent) and event.storage_id == 0
    )
    assert (ones.stream_name, lent.stream_name) == ("main", "other")
    ir.export_sendtensors_csv(str(tmp_path / "sends.csv"))
    (sent,) = rows(tmp_path / "sends.csv")
    assert (sent["src_devices"], sent["dst_devices"], sent["result_tensor_dims"]) == (
        "[0]",
        "[1]",
        "(2, 2)",
    )
    assert y.shape == (4, 4) and moved.shape == (2, 2)


def test_a_replayed_recording_is_in_the_graph_with_tensors_of_its_own(tmp_path: Path) -> None:
    sim = Simulator(1, 2, simulate_mode="simulate_with_report_only", build_ir=True)
    with sim.mesh.activate():
        double = record(lambda x: (x @ x) + 1)
        x = torch.ones(4, 4)
        results = [double(x) for _ in range(3)]
        sim.step()
    made = [event for event in sim.ir.data_dag if isinstance(event, TensorCreationEvent)]
    assert len({event.DTensorRef for event in made}) == len(made) >= 1 + 2 * len(results)


def test_a_graph_that_is_made_by_hand_merges_what_ranks_do(tmp_path: Path) -> None:
    graph = IRGraph()
    for rank in (0, 1):
        graph.update_tensor(
            100, 7, torch.float32, (10, 10), rank, "main", 1, tensor_size=400, mesh_ref=3
        )
    for rank in (0, 1):
        graph.update_tensor(100, 8, torch.float32, (100,), rank, "main", 2)  # a view
        graph.add_borrow(5, rank, "main", "side", 3)
    graph.update_tensor(
        200, 9, torch.float32, (10, 10), 0, "side", 3, mutate=True, borrow_src_tensor_ref=7
    )
    graph.add_sendtensor(11, [0], "main", [1], "side", (4,))
    graph.delete_tensor(7, [0, 1], "main", 4, [])
    graph.delete_tensor(8, [0, 1], "main", 4, [])
    assert not any(isinstance(event, StorageDeletionEvent) for event in graph.data_dag)
    graph.delete_tensor(9, [0], "side", 5, [])
    with pytest.raises(KeyError):
        graph.delete_tensor(9, [0], "side", 6, [])
    assert graph.data_dag[0] == StorageCreationEvent(1, 0, 400, [0, 1], None, "main")
    assert graph.data_dag[-1] == StorageDeletionEvent(5, 0, 400, [0, 1], None, "side")
    assert {event.storage_id for event in graph.data_dag} == {0}
    graph.convert_devices_to_meshes()
    assert [event.mesh_ref for event in graph.data_dag if getattr(event, "DTensorRef", 0) == 7] == [
        3
    ] * 3
    graph.export_data_csv(str(tmp_path / "data.csv"))
    (row,) = rows(tmp_path / "data.csv")
    assert (row["DTensorRefs"], row["mutation_ids"], row["lastuse_id"]) == ("[7, 8, 9]", "[3]", "3")
    graph.export_borrows_csv(str(tmp_path / "borrows.csv"))
    assert rows(tmp_path / "borrows.csv")[0]["devices"] == "[0, 1]"


def test_sizes_of_tensors_follow_the_dtype() -> None:
    assert tensor_size_bytes([1024, 1024], "float32") == 4 * 2**20
    assert tensor_size_bytes([3], "torch.bfloat16") == 6
    assert tensor_size_bytes([], "int64") == 8
    assert tensor_size_bytes([0], "float32") == 0


def test_times_of_collectives_follow_the_network() -> None:
    shape = [1024, 1024]
    for kind in ("all_reduce", "sum", "all_gather", "reduce_scatter", "all_to_all"):
        alone, host, hosts = (
            estimate_collective_time_us(kind, shape, "float32", count) for count in (1, 8, 64)
        )
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
    ("path", "expected"),
    [("trace.json", "trace_3.json"), ("a/b.c.json", "a/b.c_3.json"), ("trace", "trace_3")],
)
def test_files_of_iterations_have_their_number(path: str, expected: str) -> None:
    assert file_path_with_iter(path, 3) == expected


def test_tensors_that_one_command_frees_cost_as_much_as_the_first() -> None:
    """Counted in the lines of Python that ran: each tensor looks at no other."""
    events = TensorEvents()
    for ref in range(400):
        events.update(ref, ref, torch.float32, (1,), [0], "main", ref)

    def lines_for(refs: range) -> int:
        count = 0

        def trace(frame: Any, kind: str, argument: object) -> Any:
            nonlocal count
            count += kind == "line"
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            for ref in refs:
                events.delete(ref, [0], "main", 400)
        finally:
            sys.settrace(before)
        return count

    first, _, last = lines_for(range(100)), lines_for(range(100, 300)), lines_for(range(300, 400))
    assert last < 1.5 * first
    freed = [event for event in events.events if isinstance(event, TensorDeletionEvent)]
    assert [event.DTensorRef for event in freed] == [*range(400)]
