"""Events of torch's profiler for a process, on all its threads and devices, while a profile runs.

It runs on a thread of its own, which ends with the profile.
"""

from __future__ import annotations

import importlib
import json
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from .ids import proc_id
from .registry import Asked, produces

Row = tuple[Any, ...]

_MOST = 100_000  # events of a process; the longest are kept
_events: list[Row] = []
_running: _Run | None = None


def watch(profile: str, seconds: float, answer: Callable[[str], None]) -> None:
    """Begin for so long; or end what runs, for 0. It runs for one profile at a time.

    Args:
        profile: Which one.
        seconds: At most.
        answer: Called when that is done, with an error text; empty for none.
    """
    global _running
    run = _running
    if seconds > 0:
        if run is not None and run.thread.is_alive():
            answer("torch's profiler runs for another profile")
        else:
            _running = _Run(profile, seconds, answer)
    elif run is not None and run.profile == profile:
        _running = None
        run.finish(answer)
    else:
        answer(
            "torch's profiler has not run: torch came after the begin, or it was taken by another"
            " profile"
        )


class _Run:
    def __init__(self, profile: str, seconds: float, begun: Callable[[str], None]) -> None:
        self.profile = profile
        self._seconds = seconds
        self._begun = begun
        self._ended: Callable[[str], None] = lambda note: None
        self._end = threading.Event()
        self.thread = threading.Thread(target=self._run, name="monarch-torch-profiler", daemon=True)
        self.thread.start()

    def finish(self, ended: Callable[[str], None]) -> None:
        self._ended = ended
        self._end.set()

    def _run(self) -> None:
        try:
            profiler = _profiler()
            profiler.start()
        except Exception as error:  # another profiler runs, or the library is of another version
            self._begun(f"torch's profiler did not start: {error}")
            self._end.wait(self._seconds)
            self._ended("")
            return
        self._begun("")
        self._end.wait(self._seconds)
        note = ""
        try:
            profiler.stop()
            note = _keep(profiler)
        except Exception as error:
            note = f"torch's profiler has kept nothing: {error}"
        self._ended(note)


def _profiler() -> Any:
    torch: Any = importlib.import_module("torch.profiler")
    inner: Any = importlib.import_module("torch._C._profiler")
    try:
        everywhere = inner._ExperimentalConfig(profile_all_threads=True)
    except TypeError:  # before torch 2.7: only what runs on devices is seen
        everywhere = None
    return torch.profile(activities=torch.supported_activities(), experimental_config=everywhere)


def _keep(profiler: Any) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        profiler.export_chrome_trace(str(path))
        trace = json.loads(path.read_bytes())
    found = list(_rows(trace))
    left_out = len(found) - _MOST
    if left_out > 0:
        found = sorted(found, key=lambda row: int(row[-1]))[left_out:]
    _events[:] = found
    return f"{left_out:,} events of torch were left out: too many" if left_out > 0 else ""


def _rows(trace: Any) -> Iterator[Row]:
    base = trace.get("baseTimeNanoseconds", 0) // 1000
    names = {
        (event["pid"], event["tid"]): event["args"]["name"]
        for event in trace["traceEvents"]
        if event.get("ph") == "M" and event.get("name") == "thread_name"
    }
    for event in trace["traceEvents"]:
        if event.get("ph") != "X" or event.get("cat") in (None, "Trace"):
            continue
        begin, end = float(event["ts"]), float(event["ts"]) + float(event["dur"])
        thread = names.get((event["pid"], event["tid"]), f"thread {event['tid']}")
        yield base + int(begin), thread, event["name"], event["cat"], int(end) - int(begin)


@produces("torch_events", own_thread=True)
def _torch_events(asked: Asked) -> Iterator[Row]:
    here = proc_id(asked.service.hub.address)
    for at, *rest in _events.copy():
        yield at, here, *rest
