"""The job that the command line works on, in this folder.

A *context* is a folder below ``.monarch`` with a file ``spec``, which names a job as ``module.attribute``, and the cache
file of that job, ``state.pkl``. The link ``.monarch/job_state.pkl`` points into the active context; so a program that
calls ``job.state()`` there, without a path, uses the same running job.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

from ..errors import JobError
from .trait import DEFAULT_JOB_PATH, JobTrait

DEFAULT_CONTEXT = "default"
_SPEC, _STATE = "spec", "state.pkl"


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
    job = _import_spec(spec)
    folder = _link().parent / active_context()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    use_context(folder.name)
    (folder / _SPEC).write_text(spec + "\n")
    return job


def load_current_job() -> JobTrait:
    """The job of the active context as described; `state` connects it to what runs.

    Raises:
        FileNotFoundError: None was set here.
    """
    path = _link().parent / active_context() / _SPEC
    if not path.is_file():
        raise FileNotFoundError(f"no job is set in {path.parent.parent}: `monarch apply module.attribute` sets one")
    return _import_spec(path.read_text().strip())


def active_context() -> str:
    """Name of the active context."""
    link = _link()
    return Path(os.readlink(link)).parent.name or DEFAULT_CONTEXT if link.is_symlink() else DEFAULT_CONTEXT


def use_context(name: str) -> None:
    """Make a context the active one; it is made, should there be none.

    A cache file that stands where the link belongs becomes that of the default context.

    Raises:
        ValueError: The name can't be that of a folder.
        JobError: There are two cache files that could be that of the default context.
    """
    if not name or "/" in name or name.startswith("."):
        raise ValueError(f"a context can't be called {name!r}")
    link = _link()
    folder = link.parent / name
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if link.exists() and not link.is_symlink():
        _adopt(link)
    target = Path(name, _STATE)
    if not link.is_symlink() or Path(os.readlink(link)) != target:
        fresh = link.with_name(f".{link.name}.{os.getpid()}")
        fresh.symlink_to(target)
        fresh.replace(link)


def _adopt(file: Path) -> None:
    default = file.parent / DEFAULT_CONTEXT / _STATE
    if default.exists():
        raise JobError(f"both {file} and {default} keep a job; end one of them: job_load(path).kill()")
    default.parent.mkdir(mode=0o700, exist_ok=True)
    file.replace(default)


def _link() -> Path:
    return Path(DEFAULT_JOB_PATH).absolute()


def _import_spec(spec: str) -> JobTrait:
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
