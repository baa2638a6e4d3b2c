"""py-spy at the host of a process, by the agent there.

It makes a dump of its threads with all that py-spy tells, or a flame graph.

What ends the wait: py-spy has ended, or was killed when its time was over; the host is lost.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from .. import config
from .._answering import answer_on_thread
from .._commands import run_caught
from .._core import plane
from .._namedtuple import NamedTuple
from .dump import py_spy

_MODES: tuple[tuple[str, list[str]], ...] = (
    ("native_all", ["--native-all"]),
    ("native", ["--native"]),
    ("python_only", []),
)
"""Ways to look; the next where one fails."""

_MORE = 30.0  # seconds in which py-spy must end beside those for which it looks
_MOST_BYTES = 32 << 20  # of a flame graph


class RunPySpy(NamedTuple):
    """Look at a process with py-spy.

    A client beside the program ──▶ the host agent of the process. Answer: a dict with one key, as
    in Monarch 0.7: ``Ok``, ``BinaryNotFound``, or ``Failed``; None if there is no such process.

    Attributes:
        address: Of the process.
        limit: Seconds for a dump.
        seconds: Of a profile; 0 for a dump.
        rate: Of a profile, looks per second.
        native: With the functions of C libraries.
        threads: Of a profile: threads apart from each other.
        nonblocking: Do not stop the process for each look.
    """

    address: plane.ProcAddress
    limit: float = 10.0
    seconds: int = 0
    rate: int = 100
    native: bool = True
    threads: bool = False
    nonblocking: bool = False


@plane.handles(RunPySpy)
def _run_py_spy(
    service: plane.ControlService, request: plane.ControlRequest, record: RunPySpy
) -> None:
    here = service.describe_host()
    pid = {**here.pids, here.agent: here.pid}.get(record.address, 0)
    if not pid:
        request.answer(None)
        return
    answer_on_thread(request, "monarch-py-spy", _look, record, pid)


def _look(record: RunPySpy, pid: int) -> dict[str, Any]:
    program = config.value("pyspy_bin") or py_spy()
    if not program:
        return {"BinaryNotFound": {"searched": ["PYSPY_BIN", "PATH", "the package py-spy"]}}
    return _profile(program, pid, record) if record.seconds else _dump(program, pid, record)


def _dump(program: str, pid: int, record: RunPySpy) -> dict[str, Any]:
    """Dump with what can be had: all native frames, or fewer, or none."""
    warnings: list[str] = []
    failed: dict[str, Any] = {}
    end = time.monotonic() + record.limit
    for mode, options in _MODES if record.native else _MODES[-1:]:
        left = max(0.1, end - time.monotonic())
        failed, said = _run([program, "dump", "--json", "--pid", str(pid), *options], pid, left)
        if not failed:
            return {"Ok": {**_described(program, pid, mode, said), "warnings": warnings}}
        warnings.append(f"{mode}: {failed['stderr'].strip().partition(chr(10))[0]}")
    return {"Failed": failed}


def _described(program: str, pid: int, mode: str, said: str) -> dict[str, Any]:
    traces = [
        {
            "pid": pid,
            "thread_id": each["thread_id"],
            "thread_name": each.get("thread_name"),
            "os_thread_id": each.get("os_thread_id"),
            "active": bool(each.get("active")),
            "owns_gil": bool(each.get("owns_gil")),
            "frames": [
                {
                    "name": frame["name"],
                    "filename": frame["filename"],
                    "module": frame.get("module"),
                    "short_filename": frame.get("short_filename"),
                    "line": frame.get("line") or 0,
                    "locals": None,  # they may hold secrets
                    "is_entry": bool(frame.get("is_entry")),
                }
                for frame in each["frames"]
            ],
        }
        for each in json.loads(said)
    ]
    return {"pid": pid, "binary": program, "capture_mode": mode, "stack_traces": traces}


def _profile(program: str, pid: int, record: RunPySpy) -> dict[str, Any]:
    chosen = {
        "--native": record.native,
        "--threads": record.threads,
        "--nonblocking": record.nonblocking,
    }
    options = [name for name, wanted in chosen.items() if wanted]
    with tempfile.TemporaryDirectory(prefix="monarch-profile-") as folder:
        graph = Path(folder, "graph.svg")
        command = [
            program, "record", "--pid", str(pid), "--format", "flamegraph", "--output", str(graph),
        ]  # fmt: skip
        command += ["--duration", str(record.seconds), "--rate", str(record.rate), *options]
        failed, _ = _run(command, pid, record.seconds + _MORE)
        if "No stack counts found" in failed.get("stderr", ""):
            return {"Failed": {**failed, "exit_code": 0, "stderr": "no thread has run meanwhile"}}
        if failed:
            return {"Failed": failed}
        if not graph.is_file() or not 0 < graph.stat().st_size <= _MOST_BYTES:
            return {"Failed": _failed(pid, program, 0, "py-spy has left no graph")}
        return {"Ok": {"pid": pid, "svg": graph.read_text(errors="replace")}}


def _failed(pid: int, binary: str, exit_code: int | None, stderr: str) -> dict[str, Any]:
    return {"pid": pid, "binary": binary, "exit_code": exit_code, "stderr": stderr}


def _run(command: list[str], pid: int, limit: float) -> tuple[dict[str, Any], str]:
    """How it failed, if it did; and what it has said."""
    try:
        done = run_caught(command, limit)
    except subprocess.TimeoutExpired:
        return _failed(pid, command[0], None, f"not within {limit:g} s"), ""
    except OSError as error:
        return _failed(pid, command[0], None, str(error)), ""
    if done.returncode:
        return _failed(pid, command[0], done.returncode, done.stderr[-4000:]), ""
    return {}, done.stdout


HANDLERS = (_run_py_spy,)
