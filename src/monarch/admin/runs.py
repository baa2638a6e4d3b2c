"""Runs that have left a file, where a program keeps them.

Each is served below ``/runs/ID/``, by the routes of a running program.

Files are those in the folder of the program, and those that its jobs have kept there.
"""

from __future__ import annotations

import re
import threading
from contextlib import suppress
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

from .. import programs
from ..errors import QueryError
from ..telemetry.query import Limits, run
from ..telemetry.run_file import RunFile, is_run
from ..why.run import of_run
from .child import ask
from .keys import ACT
from .routes import ApiCall, ApiError, route
from .saved import KeptFile, SavedRun, as_it_is, reopened

MOST = 50
"""Files that are listed, the latest ones."""

_PATTERNS = ("*.duckdb", ".monarch/logs/*/*.duckdb")
_BELOW = re.compile(r"/runs/([0-9a-f]{16})(/.*)", re.DOTALL)
_SUMMARY = """
    SELECT (SELECT min(timestamp_us) / 1e6 FROM actors) AS begun, (SELECT max(timestamp_us) / 1e6 FROM hosts) AS ended,
        (SELECT count(*) FROM procs WHERE mesh <> 'client') AS ranks, (SELECT count(*) FROM hosts) AS hosts,
        (SELECT string_agg(DISTINCT mesh, ', ' ORDER BY mesh) FROM procs WHERE mesh <> 'client') AS meshes,
        (SELECT map_from_entries(list((name, value))) FROM run WHERE kind = 'about' AND name <> 'verdict') AS about
"""
_SECONDS = 20.0


_lock = threading.Lock()
_told: dict[KeptFile, dict[str, Any]] = {}


def split(path: str) -> tuple[str, str]:
    """The id of the run that a path is below, and the rest; an empty id if it is below none."""
    found = _BELOW.fullmatch(path)
    return (found[1], found[2]) if found is not None else ("", path)


def opened(folder: str, name: str) -> SavedRun:
    """A run by its id.

    Args:
        folder: Folder of the program.
        name: Id of the run, as its file is named.

    Raises:
        ApiError: There is none.
    """
    for file in _files(folder):
        if _id(file.path) == name:
            return reopened(str(file.path))
    raise ApiError("not_found", f"no run {name!r} is kept in {folder}")


@route("GET", "/v1/runs", seconds=60.0, reads=True)
def _runs(call: ApiCall) -> Any:
    """Runs that have left a file in the program's folder, the latest first.

    Each is served below `/runs/{id}/`. With them: the programs of this user that run on this
    machine.
    """
    folder = call.program.folder
    return {
        "folder": folder,
        "runs": [_summary(file) for file in _files(folder)],
        "programs": _programs(call),
    }


def _files(folder: str) -> list[KeptFile]:
    """The files of this user, the latest first.

    No other database is opened: its lock would make the program fail that writes it.
    """
    found = []
    for pattern in _PATTERNS:
        for path in Path(folder).glob(pattern):
            with suppress(OSError):  # it has gone meanwhile, or is a link that leads nowhere
                found.append(as_it_is(path))
    found.sort(key=lambda file: file.written, reverse=True)
    return list(islice((file for file in found if is_run(file.path)), MOST))


def _id(path: Path) -> str:
    return sha256(str(path).encode(errors="surrogateescape")).hexdigest()[:16]


def _summary(file: KeptFile) -> dict[str, Any]:
    with _lock:
        told = _told.get(file)
    if told is not None:
        return told
    try:
        read = ask(_read, file.path)
    except (OSError, QueryError, TimeoutError) as error:
        read = {"error": str(error)}
    told = {"id": _id(file.path), "path": str(file.path), "bytes": file.bytes, **read}
    with suppress(FileNotFoundError), _lock:
        # else another one was read, which has taken its place
        if told["error"] is None and as_it_is(file.path) == file:
            _told[file] = told
            while len(_told) > 2 * MOST:
                del _told[next(iter(_told))]
    return told


def _read(path: Path) -> dict[str, Any]:
    [row] = run(_SUMMARY, RunFile(path), Limits(seconds=_SECONDS)).rows
    verdict = of_run(path)
    return {**row, "status": verdict.status, "sentence": verdict.sentence, "error": None}


def _programs(call: ApiCall) -> list[dict[str, Any]]:
    """List the programs of this machine.

    Command lines need a role above `view`: they have what their owner has typed.
    """
    return [
        {
            "pid": each.pid, "since": each.since, "kind": "worker" if each.is_worker else "program",
            "command": each.command if call.role == ACT else None, "this": each.pid == call.program.pid,
        }
        for each in programs.find()
    ]  # fmt: skip
