"""The job that the command line works on, in this folder.

A *context* is a folder below ``.monarch`` with a file ``spec``, which names a job as
``module.attribute``, and the cache file of that job, ``state.pkl``. The link
``.monarch/job_state.pkl`` points into the active context; so a program that calls ``job.state()``
there, without a path, uses the same running job.
"""

from __future__ import annotations

import importlib
import os
import stat
import sys
from contextlib import suppress
from pathlib import Path

from .._ours import HERE, Folder, opened, remove_tree
from ..errors import JobError
from .base.trait import DEFAULT_JOB_PATH, JobTrait, job_load

DEFAULT_CONTEXT = "default"
_SPEC, _STATE = "spec", "state.pkl"
_LINK = os.path.basename(DEFAULT_JOB_PATH)


def set_current_job(spec: str) -> JobTrait:
    """Make a job the one of the active context.

    Args:
        spec: ``module.attribute``, importable from the working directory.

    Returns:
        The job as described, which may or may not run.

    Raises:
        ValueError: There is no dot in it.
        AttributeError: The module has no such attribute, or it is None.
        TypeError: It is no job.
    """
    job = import_spec(spec)
    name = active_context()
    use_context(name)
    with opened(_folder(name)) as folder:
        folder.replace(_SPEC, f"{spec}\n".encode())
    return job


def load_current_job() -> JobTrait:
    """The job of the active context as described; `state` connects it to what runs.

    Raises:
        FileNotFoundError: None was set here.
    """
    spec = spec_of(active_context())
    if not spec:
        folder = _folder(active_context())
        raise FileNotFoundError(
            f"no job is set in {folder}: `monarch apply module.attribute` sets one"
        )
    return import_spec(spec)


def contexts() -> list[str]:
    """Names of the contexts of this folder, sorted."""
    with suppress(FileNotFoundError), opened(HERE) as here:
        plain = [DEFAULT_CONTEXT] if _is_plain() else []
        return sorted({*plain, *(name for name in here.names() if _is_context(here, name))})
    return []


def _is_plain() -> bool:
    """Return whether a job is saved here without contexts: that of the default one."""
    path = Path(DEFAULT_JOB_PATH)
    return path.exists() and not path.is_symlink()


def _is_context(here: Folder, name: str) -> bool:
    with suppress(OSError), here.below(name) as folder:
        return any(folder.status(file) is not None for file in (_SPEC, _STATE))
    return False


def running_job(name: str) -> JobTrait:
    """The running job of a context.

    Args:
        name: Of the context, or of its job, as module.attribute.

    Raises:
        JobError: There is no such context here, or its job does not run.
    """
    known = contexts()
    named = contexts_of(name)
    if not named:
        raise JobError(
            f"there is no job {name!r} here"
            + (f", only {', '.join(known)}" if known else ", nor another one")
            + ": `monarch context ls` lists them"
        )
    path = state_path(named[0])
    if not path.exists():
        raise JobError(f"the job {name!r} does not run: there is no {path}")
    return job_load(path)


def contexts_of(name: str) -> list[str]:
    """Return the contexts that a name means: theirs, or that of their job, as module.attribute."""
    return [each for each in contexts() if name in (each, spec_of(each))]


def spec_of(context: str) -> str:
    """Return the job of a context, as module.attribute; empty if none is set there."""
    with suppress(FileNotFoundError), opened(_folder(context)) as folder:
        return folder.read(_SPEC).decode().strip()
    return ""


def active_context() -> str:
    """Name of the active context."""
    with suppress(FileNotFoundError), opened(HERE) as here:
        return os.path.dirname(_target(here)) or DEFAULT_CONTEXT
    return DEFAULT_CONTEXT


def _target(here: Folder) -> str:
    """Where the link to the active context leads; empty where a file is in its place."""
    try:
        return os.readlink(_LINK, dir_fd=here.fd)
    except OSError:
        return ""


def context_of(name: str | None) -> str:
    """Return the context that a name means, see `contexts_of`; None: the active one."""
    return active_context() if name is None else next(iter(contexts_of(name)), name)


def state_path(context: str | None) -> Path:
    """Return the file that a running job is saved to.

    Args:
        context: Of the job, or the job as module.attribute; None: the active one.
    """
    if context is None or (context == DEFAULT_CONTEXT and _is_plain()):
        return Path(DEFAULT_JOB_PATH)
    return _folder(context_of(context)) / _STATE


def make_context(name: str) -> None:
    """Make a context, if there is none of that name.

    Raises:
        ValueError: The name can't be that of a folder, or is taken by another.
    """
    with opened(_folder(name), make=True) as folder:
        os.close(folder.open(_SPEC, os.O_WRONLY | os.O_CREAT))


def use_context(name: str) -> None:
    """Make a context the active one; it is made, should there be none.

    A cache file that stands where the link belongs becomes that of the default context.

    Raises:
        ValueError: The name can't be that of a folder, or is taken by another.
        JobError: There are two cache files that could be that of the default context.
    """
    make_context(name)
    with opened(HERE) as here:
        found = here.status(_LINK)
        if found is not None and not stat.S_ISLNK(found.st_mode):
            _adopt(here)
        if _target(here) != f"{name}/{_STATE}":
            here.link(_LINK, f"{name}/{_STATE}")


def remove_context(name: str) -> None:
    """End the job of a context and remove it.

    If it was the active one, the default context is that now.

    Raises:
        ValueError: There is no such context.
        JobError: Its job could not be ended; the context stays.
    """
    if name not in contexts():
        raise ValueError(
            f"there is no context {name!r}; there are: {', '.join(contexts()) or 'none'}"
        )
    if state_path(name).exists():
        job_load(state_path(name)).kill()
    was_active = name == active_context()
    remove_tree(_folder(name))
    if was_active:
        use_context(DEFAULT_CONTEXT)


def _adopt(here: Folder) -> None:
    make_context(DEFAULT_CONTEXT)
    with here.below(DEFAULT_CONTEXT) as default:
        if default.status(_STATE) is not None:
            raise JobError(
                f"both {here.path}/{_LINK} and {default.path}/{_STATE} keep a job; end one of them:"
                " job_load(path).kill()"
            )
        os.rename(_LINK, _STATE, src_dir_fd=here.fd, dst_dir_fd=default.fd)


def _folder(context: str) -> Path:
    if (
        not context
        or "/" in context
        or context.startswith(".")
        or context in ("logs", "engine", "failures")
    ):
        raise ValueError(f"a context can't be called {context!r}")
    return Path(HERE).absolute() / context


def import_spec(spec: str) -> JobTrait:
    """Import the job that is named as ``module.attribute``; raises as `set_current_job` does."""
    module, _, name = spec.rpartition(".")
    if not module or not name:
        raise ValueError(f"a job is named as module.attribute, such as jobs.training; got {spec!r}")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    job = getattr(importlib.import_module(module), name, None)
    if job is None:
        raise AttributeError(f"module {module!r} has no job called {name!r}")
    if not isinstance(job, JobTrait):
        raise TypeError(f"{spec} should be a job, such as ProcessJob(...), and is {job!r}")
    return job
