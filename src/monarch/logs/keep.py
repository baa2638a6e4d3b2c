"""Files of the output of procs, kept by host agents.

`keep_logs` (client) says so to each host agent that the program uses; the agent then imports this
module, and `files` writes.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, NamedTuple

from .. import config
from .._core.plane import ControlRequest, ProcAddress, client, handles
from .._ours import HERE, choose
from .files import LogFiles

FOLDER = Path(HERE) / "logs"
"""Where programs keep logs, below their working directory."""


class KeepLogs(NamedTuple):
    """Keep what the procs of the sender print in files.

    Client ──▶ host agents, before anything is spawned there.

    Attributes:
        base: Working directory of the client; where there is none of that name, that of the agent
            counts.
        folder: Where the files are, below `base`, or absolute.
        job: Id of the job, or of the program.
        size: Bytes of a file, at most.
        files: Number of those of a rank of each kind, at most; 0: keep nothing any more.
    """

    base: str
    folder: str
    job: str
    size: int
    files: int


class JobOf(NamedTuple):
    """A question to the agent: for which job does it keep the output of a client's procs?

    Its procs ──▶ their host agent. Answer: its id; empty for none.

    Attributes:
        client: Which.
    """

    client: ProcAddress


_NOTHING = KeepLogs("", "", "", 0, 0)
_files: dict[Path, LogFiles] = {}
_kept_of: dict[ProcAddress, LogFiles] = {}


@handles(KeepLogs)
def _keep(service: Any, request: ControlRequest, record: KeepLogs) -> None:
    if not record.files:
        service.keep_output(request.peer, None)
        return
    peer = request.peer

    def tell(text: str) -> None:
        service.tell_client(peer, text)

    base = record.base if os.path.isdir(record.base) else os.getcwd()
    path, root = choose(record.folder, "logs", record.job, root=base, tell=tell)
    folder = Path(path)
    if folder not in _files:  # a job has one, for all programs that use it
        _files[folder] = LogFiles(
            folder, record.job, record.size, record.files, tell, service.hub.poller.call_later, root
        )  # fmt: skip
    _kept_of[peer] = _files[folder]
    service.keep_output(peer, _files[folder])


@handles(JobOf)
def _job_of(service: Any, request: ControlRequest, record: JobOf) -> None:
    kept = _kept_of.get(record.client)
    request.answer(kept.job if kept is not None else "")


HANDLERS = (_keep, _job_of)


def files_of(root: ProcAddress | None) -> list[LogFiles]:
    """The folder with the lines of a program, in a host agent; None: of all programs."""
    return list(
        {
            id(files): files for client, files in _kept_of.copy().items() if root in (None, client)
        }.values()
    )


def keep_logs(folder: Path, job: str) -> None:
    """Have all hosts that this program uses from now on keep what its procs print.

    Args:
        folder: Where; relative to the working directory.
        job: Id of the job, or of the program.
    """
    client().greeting.set(_record(folder, job) or _NOTHING)


def stop_keeping(job: str) -> None:
    """Undo `keep_logs` of a job, unless another has followed.

    Procs that are spawned from now on are not of the job.
    """
    greeting = client().greeting
    if greeting.record is not None and greeting.record.job == job:
        capture = config.value("enable_file_capture")
        greeting.set((keep_logs_of_program() if capture else None) or _NOTHING)


def keep_logs_of_program() -> KeepLogs | None:
    """The record that has hosts keep the logs of a program that is no job."""
    job = f"{time.strftime('%Y%m%d-%H%M%S')}_{os.getpid()}"
    return _record(FOLDER / job, job)


def _record(folder: Path, job: str) -> KeepLogs | None:
    count = config.value("log_file_count")
    if count:
        return KeepLogs(os.getcwd(), str(folder), job, config.value("log_file_size"), count)
    return None
