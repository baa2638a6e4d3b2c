"""Traces of a simulation, as files that known tools show.

`chrome` is the JSON of ``chrome://tracing``, which https://ui.perfetto.dev opens as well: a process
per rank, a thread per stream. `memory` is what ``torch.cuda.memory._snapshot()`` gives, for
https://pytorch.org/memory_viz.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from monarch.tensor_engine import call_sites

from .record import Change, Event

_MICRO = 1e6
_CONTROLLER = 0  # its process in a trace; ranks follow
_COLOURS = {"communication": "thread_state_iowait", "wait": "grey", "issue": "generic_work"}


def chrome(events: Iterable[Event], streams: Mapping[int, str], each_rank: bool) -> dict[str, Any]:
    """Return the events as a trace in Chrome's format.

    Args:
        events: What the ranks and the controller did.
        streams: The name of each stream.
        each_rank: Whether each rank has rows of its own, or those that did the same share them.
    """
    written: list[dict[str, Any]] = []
    rows: dict[int, tuple[str, set[int]]] = {}
    for event in events:
        for process, title in _rows(event.ranks, each_rank):
            rows.setdefault(process, (title, set()))[1].add(event.stream)
            written.append(_complete(event, process))
    return {"displayTimeUnit": "ms", "traceEvents": [*_names(rows, streams), *written]}


def _rows(ranks: tuple[int, ...], each_rank: bool) -> list[tuple[int, str]]:
    if not ranks:
        return [(_CONTROLLER, "controller")]
    if each_rank:
        return [(1 + rank, f"rank {rank}") for rank in ranks]
    return [(1 + ranks[0], named(ranks))]


def named(ranks: Sequence[int]) -> str:
    """Return ranks in words."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if list(ranks) == list(range(ranks[0], ranks[-1] + 1)):
        return f"ranks {ranks[0]} to {ranks[-1]}"
    return f"rank {ranks[0]} and {len(ranks) - 1} more"


def _complete(event: Event, process: int) -> dict[str, Any]:
    args: dict[str, Any] = {}
    line = call_sites.user_line(event.site)
    if line is not None:
        args["line"] = f"{line.file}:{line.line}"
    if event.tag is not None:
        args["meta"] = str(event.tag)
    written: dict[str, Any] = {
        "ph": "X", "name": event.name, "cat": event.kind, "pid": process, "tid": event.stream,
        "ts": event.start * _MICRO, "dur": (event.end - event.start) * _MICRO, "args": args,
    }  # fmt: skip
    if event.kind in _COLOURS:
        written["cname"] = _COLOURS[event.kind]
    return written


def _names(
    rows: dict[int, tuple[str, set[int]]], streams: Mapping[int, str]
) -> Iterable[dict[str, Any]]:
    for process, (title, used) in sorted(rows.items()):
        yield {"ph": "M", "name": "process_name", "pid": process, "args": {"name": title}}
        yield {
            "ph": "M",
            "name": "process_sort_index",
            "pid": process,
            "args": {"sort_index": process},
        }
        for stream in sorted(used):
            title = "program" if process == _CONTROLLER else streams[stream]
            yield {
                "ph": "M", "name": "thread_name", "pid": process, "tid": stream,
                "args": {"name": title},
            }  # fmt: skip


def memory(changes: Iterable[Change], each_rank: bool) -> dict[str, Any]:
    """A snapshot, with a device for each rank, or for those that did the same."""
    devices: dict[int, list[dict[str, Any]]] = {}
    for change in changes:
        ranks = change.ranks if each_rank else change.ranks[:1]
        for rank in ranks:
            devices.setdefault(rank, []).append(_entry(change))
    last = max(devices, default=-1)
    return {"segments": [], "device_traces": [devices.get(rank, []) for rank in range(last + 1)]}


def _entry(change: Change) -> dict[str, Any]:
    frames = [
        {"filename": line.file, "line": line.line, "name": line.function}
        for line in reversed(call_sites.lines(change.site))
    ]
    if change.name:
        frames.insert(0, {"filename": "simulated", "line": 0, "name": change.name})
    return {
        "action": "alloc" if change.bytes > 0 else "free_completed", "addr": change.storage << 32,
        "size": abs(change.bytes), "stream": 0, "time_us": round(change.seconds * _MICRO), "frames": frames,
    }  # fmt: skip
