"""Runs that have left a file, where a program keeps them; each is served below ``/runs/ID/``, by the routes of a running program.

Files are those in the folder of the program, and those that its jobs have kept there.
"""

from __future__ import annotations

import re
import threading
from hashlib import sha256
from pathlib import Path
from typing import Any

from .. import programs
from ..errors import QueryError
from ..telemetry.query import Limits, run
from ..telemetry.run_file import RunFile
from ..why.run import of_run
from .keys import ACT
from .routes import ApiError, Call, route
from .saved import SavedRun

MOST = 50
"""Files that are listed, the latest ones."""

_MOST_OPEN = 4  # files of which what was read is remembered
_PATTERNS = ("*.duckdb", ".monarch/logs/*/*.duckdb")
_BELOW = re.compile(r"/runs/([0-9a-f]{16})(/.*)", re.DOTALL)
_SUMMARY = """
    SELECT (SELECT min(timestamp_us) / 1e6 FROM actors) AS begun, (SELECT max(timestamp_us) / 1e6 FROM hosts) AS ended,
        (SELECT count(*) FROM procs WHERE mesh <> 'client') AS ranks, (SELECT count(*) FROM hosts) AS hosts,
        (SELECT string_agg(DISTINCT mesh, ', ' ORDER BY mesh) FROM procs WHERE mesh <> 'client') AS meshes,
        (SELECT map_from_entries(list((name, value))) FROM run WHERE kind = 'about') AS about
"""
_SECONDS = 20.0

_lock = threading.Lock()
_open: dict[tuple[Path, float], SavedRun] = {}  # by the file and when it was written
_told: dict[tuple[Path, float], dict[str, Any]] = {}


def split(path: str) -> tuple[str, str]:
    """The id of the run that a path is below, and the rest; an empty id if it is below none."""
    found = _BELOW.fullmatch(path)
    return (found[1], found[2]) if found is not None else ("", path)


def opened(folder: str, name: str) -> SavedRun:
    """A run by its id.

    Args:
        folder: Of the program.

    Raises:
        ApiError: There is none.
    """
    for path in _files(folder):
        if _id(path) == name:
            with _lock:
                key = path, path.stat().st_mtime
                found = _open.pop(key, None) or SavedRun(str(path))
                _open[key] = found  # the latest is the last one
                while len(_open) > _MOST_OPEN:
                    del _open[next(iter(_open))]
            return found
    raise ApiError("not_found", f"no run {name!r} is kept in {folder}")


@route("GET", "/v1/runs", seconds=60.0)
def _runs(call: Call) -> Any:
    """Runs that have left a file in the folder of the program, the latest first, each served below `/runs/{id}/`; what of this user
    runs on this machine."""
    folder = call.program.folder
    return {"folder": folder, "runs": [_summary(path) for path in _files(folder)], "programs": _programs(call)}


def _files(folder: str) -> list[Path]:
    """Those that are there, the latest first."""
    found = {}
    for pattern in _PATTERNS:
        for path in Path(folder).glob(pattern):
            try:
                found[path] = path.stat().st_mtime
            except OSError:  # it has gone meanwhile
                continue
    return sorted(found, key=found.__getitem__, reverse=True)[:MOST]


def _id(path: Path) -> str:
    return sha256(str(path).encode(errors="surrogateescape")).hexdigest()[:16]


def _summary(path: Path) -> dict[str, Any]:
    try:
        status = path.stat()
    except OSError as error:
        return {"id": _id(path), "path": str(path), "error": str(error)}
    key = path, status.st_mtime
    if key not in _told:
        _told[key] = {"id": _id(path), "path": str(path), "bytes": status.st_size, **_read(path)}
        while len(_told) > 2 * MOST:
            del _told[next(iter(_told))]
    return _told[key]


def _read(path: Path) -> dict[str, Any]:
    try:
        [row] = run(_SUMMARY, RunFile(path), Limits(seconds=_SECONDS)).rows
        verdict = of_run(path)
    except (OSError, QueryError, TimeoutError) as error:
        return {"error": str(error)}
    return {**row, "status": verdict.status, "sentence": verdict.sentence, "error": None}


def _programs(call: Call) -> list[dict[str, Any]]:
    """What they are called is for those who may do more than look: a command line has what its owner has typed."""
    return [
        {
            "pid": each.pid, "since": each.since, "kind": "worker" if each.is_worker else "program",
            "command": each.command if call.role == ACT else None, "this": each.pid == call.program.pid,
        }
        for each in programs.find()
    ]  # fmt: skip
