"""A simulated mesh: predicts run time without executing.

Programs run on it unchanged.
"""

from __future__ import annotations

import json
import pickle
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from monarch.tensor_engine import DeviceMesh
from monarch.tensor_engine.groups.groups import Meeting
from monarch.tensor_engine.tensors.engine_meshes import mesh_over

from . import graph, history, picture, trace
from .history import History
from .interpreter import Cost
from .ir import IRGraph
from .machine import Machine, machine_of
from .model import Model
from .record import Event, InstructionNode, Recorder
from .utils import file_path_with_iter

MEGABYTE = 1024 * 1024
_simulators: weakref.WeakSet[Simulator] = weakref.WeakSet()


class SimulatorBackendMode(str, Enum):
    """The modes of a simulator; each member equals the text that `Simulator` takes."""

    SIMULATE = "simulate"
    SIMULATE_WITH_REPORT_ONLY = "simulate_with_report_only"
    COMMAND_HISTORY = "command_history"
    EVERYTHING = "everything"


class SimulatorTraceMode(str, Enum):
    """The contents of traces; each member equals the text that `Simulator` takes."""

    STREAM_ONLY = "stream_only"
    CONTROLLER_TRACE_ONLY = "controller_trace_only"
    CONTROLLER_ONLY = "controller_trace_only"  # noqa: PIE796  # programs write either
    EVERYTHING = "everything"

    @property
    def stream_enabled(self) -> bool:
        """True if traces show the ranks."""
        return self is not SimulatorTraceMode.CONTROLLER_TRACE_ONLY

    @property
    def controller_enabled(self) -> bool:
        """True if traces show the program."""
        return self is not SimulatorTraceMode.STREAM_ONLY


class Step(NamedTuple):
    """The predicted cost of a step.

    Attributes:
        seconds: From the end of the step before to the end of all that was issued.
        megabytes: The most memory that a rank had during the step, in units of 1024 * 1024 bytes.
    """

    seconds: float
    megabytes: float


class Simulator:
    """A mesh of `hosts` times `gpus` ranks that executes nothing and starts no process.

    The program is the same as on a real mesh: ``with simulator.mesh.activate():``. Operations cost
    only the time to issue them; fetched tensors are zeros of the right shape. `step` tells what the
    machine would have taken.

    Args:
        hosts: How many hosts there are.
        gpus: How many ranks are on each.
        machine: What they have: a `Machine`, the name of one of `MACHINES`, or a JSON file that
            ``python -m monarch.simulator profile`` has written.
        simulate_mode: ``"simulate"`` predicts, and writes traces; ``"simulate_with_report_only"``
            writes none; ``"command_history"`` only writes down the instructions, for `replay`;
            ``"everything"`` does all.
        trace_mode: What traces show: ``"stream_only"``, the ranks; ``"controller_trace_only"``, the
            program; ``"everything"``, both.
        upload_trace: Not supported.
        trace_path: Where traces go: ``trace.json`` stands for ``trace_0.json`` (Chrome's format)
            and ``trace_0_memory.pickle`` (torch's memory snapshots), one of each per step.
        command_history_path: Where instructions go.
        group_workers: In traces, let ranks that did the same share a row. They are computed
            together in any case.
        build_ir: Keep the graph of the program, for `export_ir`.

    Raises:
        ValueError: A number that is not positive, or an unknown mode or machine.
        NotImplementedError: `upload_trace`.

    Attributes:
        mesh: The mesh, with the dimensions ``host`` and ``gpu``.
        machine: What its ranks have.
    """

    def __init__(
        self,
        hosts: int,
        gpus: int,
        *,
        machine: str | Path | Machine = "h100",
        simulate_mode: str = "simulate",
        trace_mode: str = "stream_only",
        upload_trace: bool = False,
        trace_path: str | Path = "trace.json",
        command_history_path: str | Path = "command_history.pkl",
        group_workers: bool = False,
        build_ir: bool = False,
    ) -> None:
        _check(hosts, gpus, simulate_mode, trace_mode, upload_trace)
        self.machine = machine_of(machine)
        self._trace_mode = SimulatorTraceMode(trace_mode)
        self._trace_path = Path(trace_path)
        self._writes_traces = simulate_mode in ("simulate", "everything")
        self._each_rank = not group_workers
        self._recorder = Recorder(timed=self._writes_traces, graphed=build_ir)
        of_model = hosts, gpus, self.machine, self._recorder, f"simulated-{id(self):x}"
        self._model = Model(*of_model)
        if simulate_mode in ("command_history", "everything"):
            self._model = History(Path(command_history_path), *of_model)
        self.mesh: DeviceMesh = mesh_over(self._model, {"host": hosts, "gpu": gpus})
        self.mesh.engine.meeting = Meeting("")  # no ranks meet
        self.mesh.engine.end_meeting = self._end
        self._steps: list[Step] = []
        self._peaks: list[tuple[tuple[int, ...], int]] = []
        self._last: list[Event] = []
        _simulators.add(self)

    @property
    def _ctrl(self) -> Simulator:
        """The place where old programs look for `step`."""
        return self

    def step(self) -> Step:
        """End a step: what all that was issued since the last one would take.

        Writes the traces, if they are wanted. ``mesh.exit()`` ends the last step in any case.
        """
        self.mesh.engine.flush()
        return self._end_step()

    def _end(self) -> None:
        """End the last step with the mesh, where the program has not."""
        if any(event.kind in ("compute", "communication") for event in self._recorder.events):
            self._end_step()

    def _end_step(self) -> Step:
        if isinstance(self._model, History):
            self._model.note_step()
        seconds, self._peaks = self._model.step()
        step = Step(seconds, max(peak for _, peak in self._peaks) / MEGABYTE)
        if self._writes_traces:
            self._write_traces(len(self._steps))
        self._steps.append(step)
        return step

    @property
    def peaks(self) -> dict[int, float]:
        """The most memory that each rank had in the last step, in megabytes as in `Step`."""
        return {rank: peak / MEGABYTE for ranks, peak in self._peaks for rank in ranks}

    def set_cost(self, function: Any, cost: Cost) -> None:
        """Say what a function takes that ranks run for `monarch.remote`.

        Its cost is unknown: without this it counts as reading its tensors and writing its results
        once.

        Args:
            function: The function, what `remote` made of it, or its name.
            cost: Seconds on a rank; or a function that gets the metadata of the tensors among its
                arguments (`shape`, `dtype`) and returns seconds.
        """
        name = function if isinstance(function, str) else function.__name__
        self._model.costs[name.rpartition(".")[2]] = cost

    def report(self) -> str:
        """Return a text on the steps so far, and on the memory of the ranks in the last one."""
        lines = [f"{self.mesh.extent} of {self.machine.name}", "step  milliseconds  megabytes"]
        lines += [
            f"{i:4}  {step.seconds * 1e3:12.3f}  {step.megabytes:9.1f}"
            for i, step in enumerate(self._steps)
        ]
        for ranks, peak in self._peaks:
            over = "  more than there is" if peak > self.machine.memory else ""
            lines.append(f"{trace.named(ranks)}: {peak / MEGABYTE:.1f} MB{over}")
        return "\n".join(lines)

    @property
    def ir(self) -> IRGraph:
        """The graph of the program so far, as commands of each rank.

        Raises:
            RuntimeError: The simulator was made without ``build_ir=True``.
        """
        nodes = self._nodes()
        return IRGraph._of(
            nodes, graph.edges(nodes), self._recorder.streams, self._recorder.tensors
        )

    def export_ir(self, path: str | Path) -> None:
        """Write the graph of the program: instructions, what they cost, and which need which.

        Args:
            path: A name with ``.csv`` gives a table of the instructions, any other JSON.

        Raises:
            RuntimeError: The simulator was made without ``build_ir=True``.
        """
        graph.export(self._nodes(), Path(path))

    def _nodes(self) -> list[InstructionNode]:
        if not self._recorder.graphed:
            raise RuntimeError("there is no graph: it is kept with Simulator(..., build_ir=True)")
        self.mesh.engine.flush()
        return self._recorder.nodes

    def picture(self) -> str:
        """The last step as an SVG: a row per stream, time from left to right.

        Raises:
            RuntimeError: There was no step yet, or the mode keeps no events.
        """
        if not self._last:
            raise RuntimeError(
                "there is nothing to show: call step() first, with simulate_mode='simulate' or"
                " 'everything'"
            )
        return picture.svg(self._last, self._recorder.streams)

    def display(self) -> None:
        """Show `picture` in a notebook; elsewhere, print `report`."""
        try:
            shown: Any = import_module("IPython.display")
        except ImportError:
            print(self.report())
        else:
            shown.display(shown.SVG(self.picture()))

    def _write_traces(self, number: int) -> None:
        events, changes = self._recorder.take()
        mode = self._trace_mode
        events = [
            event
            for event in events
            if (mode.stream_enabled if event.ranks else mode.controller_enabled)
        ]
        self._last = events
        chrome = Path(file_path_with_iter(str(self._trace_path), number))
        stem, chrome = chrome.with_suffix(""), chrome.with_suffix(chrome.suffix or ".json")
        chrome.write_text(json.dumps(trace.chrome(events, self._recorder.streams, self._each_rank)))
        with stem.with_name(f"{stem.name}_memory.pickle").open("wb") as file:
            pickle.dump(trace.memory(changes, self._each_rank), file)


@contextmanager
def set_meta(value: Any) -> Iterator[None]:
    """Return a context that notes `value` with all that is issued on simulated meshes.

    Traces and graphs show it. It has no effect on other meshes.

    Args:
        value: Anything, such as the name of a phase.
    """
    before = [(simulator, simulator._recorder.tag) for simulator in _simulators]
    for simulator, _ in before:
        _tag(simulator, value)
    try:
        yield
    finally:
        for simulator, tag in before:
            _tag(simulator, tag)


def _tag(simulator: Simulator, value: Any) -> None:
    simulator.mesh.engine.flush()  # instructions issued before must not get this tag
    if isinstance(simulator._model, History):
        simulator._model.note_tag(value)
    simulator._recorder.tag = value


def replay(path: str | Path, machine: str | Path | Machine = "h100") -> list[Step]:
    """Predict the cost of a program's steps on another machine.

    It uses the instructions that the program has recorded.

    Args:
        path: What a simulator with ``simulate_mode="command_history"`` has written. It is
            unpickled: read only your own.
        machine: As for `Simulator`.

    Returns:
        The steps of the program, with their times and memory.
    """
    entries = history.read(Path(path))
    _, hosts, gpus = next(entries)
    model = Model(
        hosts, gpus, machine_of(machine), Recorder(timed=False, graphed=False), "replayed"
    )
    steps = []
    for entry in entries:
        if entry[0] == "step":
            seconds, peaks = model.step()
            steps.append(Step(seconds, max(peak for _, peak in peaks) / MEGABYTE))
        else:
            history.repeat(model, entry)
    return steps


def _check(hosts: int, gpus: int, simulate_mode: str, trace_mode: str, upload_trace: bool) -> None:
    for name, value in (("hosts", hosts), ("gpus", gpus)):
        if not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} is a positive number, got {value!r}")
    modes: tuple[tuple[str, str, type[Enum]], ...] = (
        ("simulate_mode", simulate_mode, SimulatorBackendMode),
        ("trace_mode", trace_mode, SimulatorTraceMode),
    )
    for name, mode, kind in modes:
        known = [member.value for member in kind]
        if mode not in known:
            raise ValueError(f"{name} is one of {', '.join(known)}; got {mode!r}")
    if upload_trace:
        raise NotImplementedError(
            "there is nowhere to upload a trace to; it is written to trace_path"
        )
