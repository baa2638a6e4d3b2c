"""Finding the logs of a job by what a person knows of it, also when it has ended long ago."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from .._ours import opened
from ..actor import HostMesh
from ..errors import JobError
from ..logs.remote import look_on
from . import current
from .base import telemetry
from .base.logs import folder_of, read_label
from .base.trait import DEFAULT_JOB_PATH, JobTrait, job_load

_SHOWN = 5  # jobs in a message


class JobLogs(NamedTuple):
    """The logs of one job, or of a program without one.

    Attributes:
        name: Its id, or the folder that was given.
        folder: Where they are; it may not exist yet.
        state: The file of the job, if that is known.
        all_here: Whether all hosts of the job are this machine; of a program without a job nothing
            else is looked for.
    """

    name: str
    folder: Path
    state: Path | None = None
    all_here: bool = True

    def job(self) -> JobTrait | None:
        """Return the job if it still runs, as far as this machine can tell."""
        if self.state is None or not self.state.exists():
            return None
        job = job_load(self.state)
        return job if job.apply_id == self.name and job._is_running() else None

    def other_hosts(self) -> list[HostMesh]:
        """Attach the hosts of the job, if it runs and has others than this machine.

        They keep the settings of its program.
        """
        job = self.job()
        if job is None or self.all_here:
            return []
        look_on()
        telemetry.look_on()
        return list(job.state(self.state)._hosts.values())


def find_logs(job: str | None = None) -> JobLogs:
    """Find the logs of a job, running or ended, in the working directory.

    Args:
        job: Name of a context, or of its job, as module.attribute, for the last one; the process id
            of a program; the beginning of an id; or a folder. None: the job of the active context,
            or the one that has written last.

    Raises:
        FileNotFoundError: There is none; the message names the last ones.
        ValueError: It means several.
    """
    if job is None:
        return _of_context(current.active_context()) or _latest() or _missing("no logs")
    if "/" in job and Path(job).is_dir():
        return JobLogs(job, Path(job))
    if current.contexts_of(job) or job == current.active_context():
        context = current.context_of(job)
        return _of_context(context) or _missing(f"no logs of context {context!r}")
    folders = [each for each in _folders() if each.name.startswith(job) or _is_of(each, job)]
    if len(folders) > 1:
        raise ValueError(
            f"several have logs here for {job!r}:"
            f" {', '.join(folder.name for folder in folders[:_SHOWN])}"
        )
    if folders:
        return _of_folder(folders[0])
    if Path(job).is_dir():
        return JobLogs(job, Path(job))
    return _missing(f"{job!r} is no job, no process id, no id of a job, and no folder")


def _is_of(folder: Path, pid: str) -> bool:
    """Return whether a program with a process id has logs there, its own or those of its job."""
    return folder.name.endswith(f"_{pid}") or (pid.isdigit() and telemetry.uses(folder, pid))


def _base() -> Path:
    return folder_of(Path(DEFAULT_JOB_PATH), "")


def _folders() -> list[Path]:
    """The folders of jobs and programs, the one in which something was written last at the end."""
    base, found = _base(), list[Path]()
    with suppress(FileNotFoundError), opened(base) as folder:
        found = [path for path in map(base.joinpath, folder.names()) if path.is_dir()]
    return sorted(found, key=_last_written)


def _last_written(folder: Path) -> float:
    times = [path.stat().st_mtime for path in (folder, *folder.glob("*/*.jsonl")) if path.exists()]
    return max(times, default=0.0)


def _of_folder(folder: Path) -> JobLogs:
    label = read_label(folder)
    state, all_here = label.get("state"), label.get("all_here") is not False
    return JobLogs(folder.name, folder, Path(state) if isinstance(state, str) else None, all_here)


def _of_context(context: str) -> JobLogs | None:
    """The logs of a context's job that runs, else of the last one that ran."""
    path = current.state_path(context).absolute()
    places = {str(path)}
    if context == current.DEFAULT_CONTEXT:  # its file is there until contexts are used
        places.add(str(Path(DEFAULT_JOB_PATH).absolute()))
    if path.exists():
        try:
            saved = job_load(path)
        except JobError:  # of a module that is gone, say: what it has logged is still there
            saved = None
        if saved is not None and saved.apply_id is not None:
            return JobLogs(saved.apply_id, _base() / saved.apply_id, path, saved._is_all_here)
    ended = (each for each in reversed(_folders()) if read_label(each).get("state") in places)
    last = next(ended, None)
    return None if last is None else _of_folder(last)


def _latest() -> JobLogs | None:
    folders = _folders()
    return _of_folder(folders[-1]) if folders else None


_NONE = "a program without a job keeps some with HYPERACTOR_MESH_ENABLE_FILE_CAPTURE=1"


def _missing(what: str) -> JobLogs:
    last = [folder.name for folder in reversed(_folders())][:_SHOWN]
    there = f"the last ones there: {', '.join(last)}" if last else _NONE
    raise FileNotFoundError(f"{what} in {_base()}; {there}")
