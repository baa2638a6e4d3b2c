"""The graph of a program under the names of Monarch 0.7: commands of ranks, and which need which.

`Simulator.ir` makes one; `IRGraph.insert_node` adds to it by hand. What 0.7 tells of single tensors (borrows, sends, data events)
is in the graph that `Simulator.export_ir` writes, and memory in the trace of each step.
"""

from __future__ import annotations

import json
import re
import traceback as traceback_module
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from .communication_model import NetworkConfig, estimate_collective_time_us

if TYPE_CHECKING:
    from .record import Node

_WIDTH = 1000  # microseconds of each command, where no durations are shown


class Command(NamedTuple):
    """One instruction on one rank.

    Attributes:
        worker_rank: Where.
        stream_name: On which stream.
        command_id: Its number, the same on all ranks.
        command_name: What, for example ``aten.mm``.
        devices: The ranks that do it.
        control_dependencies: Numbers of the commands that come before.
        traceback: Where the program issued it.
        duration: Microseconds that it takes.
    """

    worker_rank: int
    stream_name: str
    command_id: int
    command_name: str
    devices: list[int]
    control_dependencies: list[int]
    traceback: Sequence[traceback_module.FrameSummary]
    duration: int = 0


class IRGraph:
    """Commands and what they depend on.

    Attributes:
        control_dag: The commands, in the order of issue.
    """

    def __init__(self) -> None:
        self.control_dag: list[Command] = []

    @classmethod
    def _of(cls, nodes: Iterable[Node], edges: Iterable[tuple[int, int]], streams: Mapping[int, str]) -> IRGraph:
        before: dict[int, list[int]] = {}
        for first, second in edges:
            before.setdefault(second, []).append(first)
        graph = cls()
        graph.control_dag = [
            Command(
                rank, streams[node.stream], node.id, node.name, [*node.ranks], before.get(node.id, []), (),
                round(node.seconds * 1e6),
            )
            for node in nodes
            for rank in node.ranks
        ]  # fmt: skip
        return graph

    def insert_node(
        self,
        worker_rank: int,
        stream_name: str,
        command_id: int,
        command_name: str,
        devices: list[int],
        control_dependencies: list[int],
        traceback: Sequence[traceback_module.FrameSummary],
    ) -> None:
        """Add a command; its duration is 0 until `import_timing`."""
        command = Command(worker_rank, stream_name, command_id, command_name, devices, control_dependencies, traceback)
        self.control_dag.append(command)

    def remove_dag_item_type(self, command_types: str | Sequence[str], print_removed_nodes: bool = False) -> int:
        """Remove the commands of some types: ``"CallFunction"`` is the type of ``CallFunction: aten.mm``. What came after them
        comes after what was before them.

        Returns:
            How many were removed.
        """
        types = {command_types} if isinstance(command_types, str) else set(command_types)
        removed = [command for command in self.control_dag if types & {command.command_name, _type_of(command)}]
        gone = {command.command_id: command.control_dependencies for command in removed}
        if print_removed_nodes:
            print(*removed, sep="\n")
        self.control_dag = [
            command._replace(control_dependencies=_around(command.control_dependencies, gone))
            for command in self.control_dag
            if command.command_id not in gone
        ]
        return len(removed)

    def export_command_types(
        self, output_file: str, include_timing: bool = False, network_config: NetworkConfig | None = None
    ) -> None:
        """Write the names of the commands as JSON, each with ``count`` and ``devices``; the file, with microseconds in place of
        these, is what `import_timing` reads.

        Args:
            include_timing: Add ``duration_us``; that of a collective without one is estimated for one element of each device.
            network_config: For those estimates; None for the default.
        """
        types: dict[str, dict[str, int]] = {}
        for command in self.control_dag:
            entry = types.setdefault(command.command_name, {"count": 0, "devices": len(command.devices)})
            entry["count"] += 1
            if include_timing:
                entry["duration_us"] = command.duration or _estimate(command, network_config)
        Path(output_file).write_text(json.dumps(types, indent=1) + "\n")

    def import_timing(self, timing: str | Mapping[str, int]) -> None:
        """Set durations.

        Args:
            timing: Microseconds by the names of commands, or a JSON file of them.
        """
        found = json.loads(Path(timing).read_text()) if isinstance(timing, str) else timing
        self.control_dag = [
            command._replace(duration=found.get(command.command_name, command.duration)) for command in self.control_dag
        ]

    def export_dag_json(self, output_file: str) -> None:
        """Write a trace in Chrome's format in which every command is as wide as any other."""
        self._export(output_file, timed=False)

    def export_dag_json_timed(self, output_file: str) -> None:
        """Write a trace in Chrome's format in which commands are as wide as their durations."""
        self._export(output_file, timed=True)

    def _export(self, output_file: str, timed: bool) -> None:
        ends: dict[tuple[int, int], int] = {}  # of a command on a rank
        free: dict[tuple[int, str], int] = {}  # of a stream of a rank
        events = []
        for command in self.control_dag:
            rank, stream = command.worker_rank, command.stream_name
            needed = [ends.get((rank, other), 0) for other in command.control_dependencies]
            start = max([free.get((rank, stream), 0), *needed])
            width = command.duration if timed else _WIDTH
            ends[rank, command.command_id] = free[rank, stream] = start + width
            args = {"id": command.command_id, "after": command.control_dependencies}
            events.append(
                {
                    "ph": "X",
                    "name": command.command_name,
                    "pid": rank,
                    "tid": stream,
                    "ts": start,
                    "dur": width,
                    "args": args,
                }
            )
        Path(output_file).write_text(json.dumps({"traceEvents": events}) + "\n")

    def __getattr__(self, name: str) -> NoReturn:
        if name in _OF_DATA:
            raise NotImplementedError(
                f"IRGraph.{name} tells of single tensors, which this graph does not have: Simulator.export_ir(path) writes a graph "
                "with what each instruction reads and writes, and step() the memory of each rank"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


_OF_DATA = {
    "add_borrow", "add_sendtensor", "convert_devices_to_meshes", "data_dag", "delete_tensor", "export_borrows_csv",
    "export_data_csv", "export_data_timeline_csv", "export_memory_viz", "export_sendtensors_csv", "update_tensor",
}  # fmt: skip


def _type_of(command: Command) -> str:
    return re.split(r"[:\s]", command.command_name, maxsplit=1)[0]


def _around(dependencies: Iterable[int], gone: Mapping[int, Sequence[int]]) -> list[int]:
    """The dependencies, and in place of those that are gone what these depended on."""
    kept: dict[int, None] = {}
    todo = [*dependencies]
    seen: set[int] = set()
    while todo:
        number = todo.pop(0)
        if number not in gone:
            kept[number] = None
        elif number not in seen:
            seen.add(number)
            todo = [*gone[number], *todo]
    return list(kept)


def _estimate(command: Command, config: NetworkConfig | None) -> int:
    try:
        kind = _type_of(command).replace("-", "_")
        return estimate_collective_time_us(kind, [1], "float32", max(1, len(command.devices)), config)
    except ValueError:  # it is no collective
        return 0
