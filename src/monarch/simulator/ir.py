"""The graph of a program under the names of Monarch 0.7: commands of ranks, and which need which.

`Simulator.ir` makes one, with all that befell the tensors of the program; `IRGraph.insert_node`,
`update_tensor` and the like add to it by hand.
"""

from __future__ import annotations

import csv
import json
import pickle
import re
import traceback as traceback_module
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from monarch.tensor_engine import call_sites

from .communication_model import NetworkConfig, estimate_collective_time_us
from .record import Change
from .tensor_events import (
    BorrowInfo,
    DataEvent,
    SendTensorInfo,
    StorageCreationEvent,
    StorageDeletionEvent,
    TensorAccessEvent,
    TensorCreationEvent,
    TensorDeletionEvent,
    TensorEvents,
    TensorMutationEvent,
)
from .trace import memory

if TYPE_CHECKING:
    import torch

    from .record import InstructionNode

__all__ = [
    "BorrowInfo", "Command", "DataEvent", "IRGraph", "SendTensorInfo", "StorageCreationEvent", "StorageDeletionEvent",
    "TensorAccessEvent", "TensorCreationEvent", "TensorDeletionEvent", "TensorMutationEvent",
]  # fmt: skip

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
        self._tensors = TensorEvents()

    @property
    def data_dag(self) -> list[DataEvent]:
        """The events of tensors and their memory, in order."""
        return self._tensors.events

    @classmethod
    def _of(
        cls,
        nodes: Iterable[InstructionNode],
        edges: Iterable[tuple[int, int]],
        streams: Mapping[int, str],
        tensors: TensorEvents,
    ) -> IRGraph:
        before: dict[int, list[int]] = {}
        for first, second in edges:
            before.setdefault(second, []).append(first)
        graph = cls()
        graph._tensors = deepcopy(tensors)  # the program goes on
        graph.control_dag = [
            Command(
                rank, streams[node.stream], node.id, node.name, [*node.ranks], before.get(node.id, []), _stack(node.site),
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
        command = Command(
            worker_rank, stream_name, command_id, command_name, devices, control_dependencies,
            traceback,
        )  # fmt: skip
        self.control_dag.append(command)

    def remove_dag_item_type(
        self, command_types: str | Sequence[str], print_removed_nodes: bool = False
    ) -> int:
        """Remove the commands of some types.

        ``"CallFunction"`` is the type of ``CallFunction: aten.mm``. Commands after the removed ones
        depend on those before them.

        Returns:
            How many were removed.
        """
        types = {command_types} if isinstance(command_types, str) else set(command_types)
        removed = [
            command
            for command in self.control_dag
            if types & {command.command_name, _type_of(command)}
        ]
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
        self,
        output_file: str,
        include_timing: bool = False,
        network_config: NetworkConfig | None = None,
    ) -> None:
        """Write the names of the commands as JSON, each with ``count`` and ``devices``.

        `import_timing` reads the same file with microseconds in place of these.

        Args:
            output_file: Path of the JSON file to write.
            include_timing: Add ``duration_us``; that of a collective without one is estimated for
                one element of each device.
            network_config: For those estimates; None for the default.
        """
        types: dict[str, dict[str, int]] = {}
        for command in self.control_dag:
            entry = types.setdefault(
                command.command_name, {"count": 0, "devices": len(command.devices)}
            )
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
            command._replace(duration=found.get(command.command_name, command.duration))
            for command in self.control_dag
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
                    "ph": "X", "name": command.command_name, "pid": rank, "tid": stream,
                    "ts": start, "dur": width, "args": args,
                }
            )  # fmt: skip
        Path(output_file).write_text(json.dumps({"traceEvents": events}) + "\n")

    # tensors

    def update_tensor(
        self, temp_id: int, ref: int, dtype: torch.dtype, dims: tuple[int, ...], worker_rank: int, stream_name: str,
        command_id: int, mutate: bool = False, borrow_src_tensor_ref: int | None = None, tensor_size: int | None = None,
        mesh_ref: int | None = None,
    ) -> None:  # fmt: skip
        """Say that a command makes, reads or changes a tensor on one rank.

        Args:
            temp_id: Of its memory: tensors with the same share it.
            ref: Number of the tensor.
            dtype: Its type.
            dims: Its shape.
            worker_rank: The rank.
            stream_name: Name of the stream.
            command_id: Number of the command.
            mutate: Whether it is changed in place.
            borrow_src_tensor_ref: The tensor that it is borrowed from, and shares memory with.
            tensor_size: Bytes of its memory.
            mesh_ref: Number of its mesh.
        """
        self._tensors.update(
            temp_id, ref, dtype, dims, [worker_rank], stream_name, command_id, mutate, borrow_src_tensor_ref, tensor_size,
            mesh_ref,
        )  # fmt: skip

    def delete_tensor(
        self,
        ref: int,
        mesh_ranks: list[int],
        stream_name: str,
        command_id: int,
        tb: Sequence[traceback_module.FrameSummary],
    ) -> None:
        """Say that a tensor is not used any more; the last one in its memory gives that back.

        Raises:
            KeyError: There is no tensor with this number.
        """
        self._tensors.delete(ref, mesh_ranks, stream_name, command_id, tb)

    def add_borrow(
        self,
        borrow_id: int,
        device: int,
        src_stream_name: str,
        dst_stream_name: str,
        create_id: int,
    ) -> None:
        """Say that a stream lends a tensor to another on one rank."""
        found = self._tensors.borrows.setdefault(
            borrow_id, BorrowInfo(borrow_id, [], src_stream_name, dst_stream_name, create_id)
        )
        if device not in found.devices:
            found.devices.append(device)

    def add_sendtensor(
        self,
        result_tensor_id: int,
        src_devices: list[int],
        src_stream_name: str,
        dst_devices: list[int],
        dst_stream_name: str,
        result_tensor_dims: tuple[int, ...],
    ) -> None:
        """Say that a tensor is moved."""
        sent = SendTensorInfo(
            result_tensor_id, src_devices, src_stream_name, dst_devices, dst_stream_name,
            result_tensor_dims,
        )  # fmt: skip
        self._tensors.sends.append(sent)

    def convert_devices_to_meshes(self) -> None:
        """Number the meshes of the events (`mesh_ref`).

        The number is the one given to `update_tensor`, else one for each list of ranks.
        """
        self._tensors.number_meshes()

    def export_data_csv(self, filename: str) -> None:
        """Write a table of the storages.

        It has the tensors in each, and the commands that make, use and drop them.
        """
        _write(filename, self._tensors.storages())

    def export_data_timeline_csv(self, filename: str) -> None:
        """Write a table of the events of tensors, in order."""
        _write(filename, self._tensors.timeline())

    def export_borrows_csv(self, filename: str) -> None:
        """Write a table of what streams lend to each other."""
        _write(filename, [vars(borrow) for borrow in self._tensors.borrows.values()])

    def export_sendtensors_csv(self, filename: str) -> None:
        """Write a table of the moved data."""
        _write(filename, [sent._asdict() for sent in self._tensors.sends])

    def export_memory_viz(self, filename: str) -> None:
        """Write a snapshot of memory for pytorch.org/memory_viz.

        It has a device for each rank, where each command takes 1 µs, and the storages of known
        size.
        """
        changes = [
            Change(
                tuple(event.devices), event.command_id / 1e6, event.storage_id,
                event.size if isinstance(event, StorageCreationEvent) else -event.size, f"storage {event.storage_id}", -1,
            )
            for event in self._tensors.events
            if isinstance(event, (StorageCreationEvent, StorageDeletionEvent)) and event.size
        ]  # fmt: skip
        with Path(filename).open("wb") as file:
            pickle.dump(memory(changes, each_rank=True), file)


def _write(filename: str, rows: Sequence[Mapping[str, object]]) -> None:
    with Path(filename).open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]) if rows else [])
        writer.writeheader()
        writer.writerows(rows)


def _stack(site: int) -> Sequence[traceback_module.FrameSummary]:
    return [
        traceback_module.FrameSummary(line.file, line.line, line.function)
        for line in call_sites.lines(site)
    ]


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
        return estimate_collective_time_us(
            kind, [1], "float32", max(1, len(command.devices)), config
        )
    except ValueError:  # it is no collective
        return 0
