"""The life cycle of a job, the same for every way to get machines.

A job object is *not running* or *running*; if it runs, either this object started it, or the object
stands for another one that was read from the cache file. `state()` decides, under the lock of that
file:

    this object runs already                 connect
    no file, or its job has ended            clean up after that one, start, save, connect
    its job runs and can run this spec       connect to it
    its job runs and is another one          JobError: nothing is evicted

A started job is saved before anything else can go wrong, then `_kept` is called: from then on it
may outlive this program.
"""

from __future__ import annotations

import logging
import os
import pickle
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TypeVar

from ... import actor, control
from ..._guards.main_guard import refuse_imports
from ..._lazy import shown_by
from ...errors import JobError
from ...logs.keep import keep_logs, stop_keeping
from . import admin, code, logs, telemetry
from .cache import CacheFile, checked_format, conflict, needs_room, with_format
from .interrupt import one_interrupt_held
from .mounts import MountingJob
from .observed import Observed
from .state import JobState

DEFAULT_JOB_PATH = ".monarch/job_state.pkl"
"""Where a running job is saved unless told otherwise, relative to the working directory."""

BATCH = "MONARCH_BATCH_JOB"
"""Environment variable: "1" in a script that runs as part of a job."""

BATCH_FILE = "MONARCH_BATCH_JOB_FILE"
"""Environment variable: where that job is saved."""

# seconds that attached hosts get to end in order, before the job ends them its own way
_DISCONNECT_BOUND = 10.0

logger = logging.getLogger("monarch.job")

Self = TypeVar("Self", bound="JobTrait")


class JobTrait(code.SyncedCode, MountingJob, Observed, ABC):
    """Base of all jobs.

    A kind of job says how to start, reach, compare and end workers: `_create`, `_state`, `can_run`
    and `_kill`. It may also say how to change the number of its hosts (`_scale`), how to find out
    whether something still runs (`_is_running`), whether a broken job may be replaced by another
    (`_same_spec`), and take part when a job is saved (`_kept`) or found again
    (`_rebind_connection_inputs`, `_prepare_client_gateway`, which may call `_attach_client`, and
    `_cleanup_log_context`). It never sets `_status`.
    """

    _repr_html_ = shown_by("job")
    # whether all of its hosts are this machine: files are then read directly, not through hosts
    _is_all_here = False
    _saves_itself = True  # whether there is anything that another program could connect to
    # attributes that mean nothing in another process, and are not saved
    _LIVE: tuple[str, ...] = ("_cache", "_connected", "_mounts", "_mounted")

    # Defaults of the class, so that they are there in a job that was read from a file as well.
    _status = "not_running"
    _apply_id: str | None = None
    _reused: JobTrait | None = None
    _cache: CacheFile | None = None
    _connected: tuple[JobState, ...] = ()

    # What a kind of job defines

    @abstractmethod
    def _create(self, client_script: str | None) -> None:
        """Start the workers; `apply_id` is set.

        If it raises, `_kill` is called for what it did so far.

        Args:
            client_script: What to run apart from this program, as part of the job; None for
                nothing.
        """

    @abstractmethod
    def _state(self) -> JobState:
        """Attach to the running workers."""

    @abstractmethod
    def can_run(self, spec: JobTrait) -> bool:
        """Return whether this job runs and can serve a program that describes its job by `spec`.

        Args:
            spec: The description, a job that was not started.
        """

    @abstractmethod
    def _kill(self) -> None:
        """End the workers and all they started, also of a job half started or half gone."""

    def _scale(self, meshes: Mapping[str, int], replace_lost: bool) -> None:
        """See `scale`.

        The job is saved afterwards, also if this raises; what it could not do must be undone then.
        """
        raise JobError(f"{self!r} has the hosts that it has: a job of this kind can't be scaled")

    def _is_running(self) -> bool:
        """Return whether any of it still runs."""
        return self.can_run(self)

    def _progress(self) -> tuple[bool, str]:
        """Return whether it runs, and why its hosts are not there yet; empty if unknown or if they are."""
        return self._is_running(), ""

    def _same_spec(self, spec: JobTrait) -> bool:
        """Return whether `spec`, which describes this job, may take its place if it is broken."""
        return False

    def _kept(self) -> None:  # most kinds need none
        """Called when the job has been saved: from now on it may outlive this program."""

    def _rebind_connection_inputs(self, spec: JobTrait) -> None:  # most kinds need none
        """Take unsaved attributes, such as credentials, from `spec` into a cached job."""

    def _prepare_client_gateway(self) -> None:  # most kinds need none
        """Open the way to workers that this machine does not reach directly, before `_state`."""

    def _cleanup_log_context(self) -> str:
        """Return ids, none of them secret, by which to find a rest that was not removed."""
        return ""

    # What programs call

    @property
    def active(self) -> bool:
        """True if the job runs, as far as this object knows."""
        return self._owner._status == "running"

    @property
    def apply_id(self) -> str | None:
        """The id of the running job in every program that uses it; None if no job runs."""
        return self._owner._apply_id

    def apply(self, client_script: str | None = None) -> None:
        """Start the job, unless it runs already. `state` and `dump` save it.

        Args:
            client_script: A script to run as part of the job; its form depends on the kind of job.

        Raises:
            RuntimeError: It is called by the top level of a module that a proc imports.
        """
        refuse_imports("apply()")
        if not self.active:
            with needs_room(self):
                self._start(client_script)

    def state(self, cached_path: str | os.PathLike[str] | None = DEFAULT_JOB_PATH) -> JobState:
        """Return the host meshes of the job; start it first, unless it runs.

        Args:
            cached_path: File through which programs that describe the same job find it. None: no
                file, and this program is the only one that knows of it.

        Raises:
            JobError: The file holds another job that runs, can't be read, or is not safe to read; a
                worker has ended; or a disk is full.
        """
        refuse_imports("state()")
        admin.open_for(self._admin, self._telemetry)  # first: its port may be taken
        if not self.active:
            with needs_room(self):
                self._find_or_start(cached_path)
        elif cached_path is not None and self._owner._cache is None and self._saves_itself:
            self._save_late(CacheFile(cached_path))
        owner = self._owner
        owner._refresh()
        owner._prepare_client_gateway()
        assert owner._apply_id is not None
        control.job = repr(owner)
        keep_logs(owner._folder_of_logs(), owner._apply_id)  # first: of all that is spawned there
        wanted = self._telemetry or owner._telemetry
        asking = (
            telemetry.begin(owner._folder_of_logs(), wanted, repr(owner))
            if wanted is not None
            else None
        )
        state = owner._state()
        state.query_engine_client = asking
        if access := admin.open_for(self._admin or owner._admin, wanted):
            state.admin_url = access["url"]
            state.dashboard_url = (
                access["link"] if wanted is not None and wanted.include_dashboard else None
            )
        owner._connected += (state,)
        owner._mount(state, self._mounts if telemetry.mounts() else (), telemetry.looks_on())
        return state

    def scale(self, *, replace_lost: bool = False, **meshes: int) -> None:
        """Change how many hosts meshes have, while the job runs.

        As `apply` does, this asks for machines; `state` waits for them.

        A mesh is a snapshot: the next `state`, in any program, gives the new ones, and those that a
        program has stay as they are. Hosts keep their ranks; if there are to be fewer, those with
        the highest ranks are shut down, and what runs there is a failure for its owner, unless that
        has stopped it before.

        Args:
            replace_lost: Whether hosts that are lost get another in their place, under the same
                rank. Each is told by a warning of the logger ``monarch.supervision``, as restarts
                are.
            meshes: Number of hosts by the name of their mesh; the others stay as they are.

        Raises:
            JobError: The job does not run, or is of a kind that can't be scaled; or there are no
                such machines.
            TypeError: A number is none.
            ValueError: There is no such mesh, or a number is below 1.
        """
        refuse_imports("scale()")
        if not self.active:
            raise JobError(f"{self!r} can be scaled while it runs; state() starts it")
        owner = self._owner
        with nullcontext() if owner._cache is None else owner._cache.locked():
            if not owner._refresh():
                raise JobError(f"{owner!r} can't be scaled: another program has ended it")
            try:
                owner._scale(meshes, replace_lost)
            finally:
                if owner._cache is not None:
                    owner._cache.write(owner._pickled())
                    owner._kept()

    def kill(self) -> None:
        """End the job and every process it started, and remove its cache file.

        Without effect on a job that does not run.

        An interrupt, of a fault or by Ctrl-C, takes effect when the job has ended; another one does
        at once.

        Raises:
            JobError: A process of the job could not be ended.
        """
        if self.active:
            with one_interrupt_held():
                self._end()

    def dump(self, path: str | os.PathLike[str]) -> None:
        """Save the job to a file, as `state` does; `job_load` reads it. A symlink is followed.

        Args:
            path: Path of the file.
        """
        CacheFile(path).write(self._pickled())
        self._keep()

    def dumps(self) -> bytes:
        """The job as bytes, for `job_loads`."""
        content = self._pickled()
        self._keep()
        return content

    # How it works

    @property
    def _owner(self) -> JobTrait:
        """The object that stands for the running workers: this one, or that of the cache."""
        return self._reused or self

    def _find_or_start(self, cached_path: str | os.PathLike[str] | None) -> None:
        if in_batch() and BATCH_FILE in os.environ:
            self._reused = job_load(os.environ[BATCH_FILE])
        elif cached_path is None or not self._saves_itself:
            self._start(None)
        else:
            cache = CacheFile(cached_path)
            with cache.locked():
                self._reused = self._find(cache)
                if self._reused is None:
                    self._start(None, cache)

    def _find(self, cache: CacheFile) -> JobTrait | None:
        """The job in the cache if it can run this spec; None once nothing is left of it."""
        saved = _read(cache)
        if saved is None or not saved.active:
            return None
        saved._rebind_connection_inputs(self)
        if saved.can_run(self):
            logger.info("connecting to the job of %s", cache.path)
            return saved
        if saved._is_running() and not saved._same_spec(self):
            raise JobError(conflict(saved, self, cache.path))
        logger.info("the job of %s has ended; starting a new one", cache.path)
        saved._abandon()
        return None

    def _start(self, client_script: str | None, cache: CacheFile | None = None) -> None:
        self._apply_id = str(uuid.uuid4())
        self._cache = cache
        try:
            self._create(client_script)
            self._status = "running"
            if cache is not None:
                cache.write(self._pickled())
                self._kept()
                logs.label(cache.path, self._apply_id, repr(self), self._is_all_here)
        except BaseException:
            self._abandon()
            self._status, self._apply_id, self._cache = "not_running", None, None
            raise

    def _refresh(self) -> bool:
        """Take over how another program has scaled the job; return whether it is there."""
        if self._cache is None:
            return True
        saved = _read(self._cache)
        if saved is None or saved.apply_id != self._apply_id:
            return False
        vars(self).update(
            {name: value for name, value in vars(saved).items() if name not in self._LIVE}
        )
        return True

    def _save_late(self, cache: CacheFile) -> None:
        """Save what `apply` started; without a place for it, the program goes on."""
        with cache.locked():
            saved = _read(cache)
            if saved is not None and saved.active and saved._is_running():
                logger.warning(
                    "%s keeps %r, which runs: this job is not saved, no other program can find it."
                    " `cached_path` can name another file, or be None",
                    cache.path,
                    saved,
                )
                return
            cache.write(self._pickled())
            self._owner._cache = cache
        self._owner._kept()
        assert self.apply_id is not None
        logs.label(cache.path, self.apply_id, repr(self._owner), self._owner._is_all_here)

    def _end(self) -> None:
        owner = self._owner
        control.job = ""
        owner._unmount()
        if owner._connected and owner._apply_id is not None:
            telemetry.end(owner._folder_of_logs())
            stop_keeping(owner._apply_id)
        owner._disconnect()
        if owner._cache is None:
            owner._kill()
        else:
            with owner._cache.locked():
                owner._kill()
                _forget(owner._cache, owner._apply_id)
        owner._status, owner._apply_id, owner._cache = "not_running", None, None
        self._reused = None

    def _abandon(self) -> None:
        """Remove the rest of a job that has failed, as far as that works."""
        try:
            self._kill()
        except Exception:
            context = self._cleanup_log_context()
            logger.warning(
                "some of a job that failed may be left: %r %s", self, context, exc_info=True
            )

    def _disconnect(self) -> None:
        """Tell this program's own side that the hosts end on purpose, before they are gone."""
        states, self._connected = self._connected, ()
        ends = []
        for mesh in [mesh for state in states for mesh in state._hosts.values()]:
            try:
                ends.append(mesh.shutdown())
            except RuntimeError:  # not attached by this program, or let go already
                continue
        for end in ends:
            try:
                end.get(timeout=_DISCONNECT_BOUND)
            except Exception as error:
                logger.info("a host did not end in order: %s", error)

    def _attach_client(self, address: str) -> None:
        """Let all traffic of this program pass through one worker.

        It is for kinds of jobs of other packages, with workers that can't be reached in any other
        way; Monarch's own need none. The same worker again changes nothing.
        """
        actor.attach(address)

    def _folder_of_logs(self) -> Path:
        assert self._apply_id is not None
        return logs.folder_of(
            Path(DEFAULT_JOB_PATH) if self._cache is None else self._cache.path, self._apply_id
        )

    def _keep(self) -> None:
        if self.active:
            self._owner._kept()

    def _pickled(self) -> bytes:
        return pickle.dumps(self._owner)

    def __getstate__(self) -> dict[str, Any]:
        return with_format(
            {name: value for name, value in vars(self).items() if name not in self._LIVE}
        )

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(checked_format(state))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.apply_id or 'not running'}>"


def job_load(path: str | os.PathLike[str] = DEFAULT_JOB_PATH) -> JobTrait:
    """Load the job that was saved to a file. Loading runs code of the user who wrote the file.

    Args:
        path: Path of the file.

    Returns:
        The job.

    Raises:
        FileNotFoundError: There is no such file.
        JobError: The file belongs to another user, or holds no job.
    """
    cache = CacheFile(path)
    job = _read(cache)
    if job is None:
        raise FileNotFoundError(f"no job is saved at {cache.path}")
    return job


def job_loads(content: bytes) -> JobTrait:
    """Load the job that `dumps` turned into bytes.

    Loading runs code: trust the source of the bytes.

    Args:
        content: The bytes.

    Returns:
        The job.

    Raises:
        JobError: The bytes hold no job.
    """
    return _unpickle(content, "these bytes")


def in_batch() -> bool:
    """Check whether this program is a script that runs as part of a job."""
    return os.environ.get(BATCH) == "1"


def _read(cache: CacheFile) -> JobTrait | None:
    content = cache.read()
    if content is None:
        return None
    job = _unpickle(content, str(cache.path))
    job._cache = cache
    return job


def _unpickle(content: bytes, source: str) -> JobTrait:
    try:
        job = pickle.loads(content)
    except Exception as error:
        raise JobError(
            f"{source} can't be read as a job: {type(error).__name__}: {error}. The module that"
            " defines the job must be importable here, as the same version. The job may still run:"
            " end it where it was started"
        ) from error
    if not isinstance(job, JobTrait):
        raise JobError(f"{source} should hold a job, and holds {type(job).__name__}")
    return job


def _forget(cache: CacheFile, apply_id: str | None) -> None:
    """Remove the file, unless it holds something else by now."""
    try:
        saved = _read(cache)
    except JobError:
        return
    if saved is not None and saved.apply_id == apply_id:
        cache.remove()
