"""How commands find what they work on: a job of this folder, a running program, the file of a run."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from .. import job
from .._words import named
from ..errors import MonarchError
from ..job import current
from ..job.base import telemetry
from ..job.base.logs import folder_of
from ..programs import Connection, Program, choose, connect, find
from .utils import Misuse

_HELP = """A process id; a job, as its context or module.attribute; or the file of a run. Default:
the only program, or that of this folder; a terminal asks which of several."""
PROGRAM = Annotated[str | None, typer.Argument(metavar="[PROGRAM]", help=_HELP)]
"""The first argument of commands that look at a program, for `reach` or `found`."""

OPTION = Annotated[str | None, typer.Option("--program", "-p", "--run", help="The same.")]
CONTEXT = Annotated[
    str | None,
    typer.Option(
        "--context",
        help="The job, as its context or module.attribute. Default: that of the active context.",
    ),
]


def split(words: list[str] | None) -> tuple[str | None, list[str]]:
    """Return the program that may be the first of some words, and the others."""
    return (words[0], words[1:]) if words and _is_program(words[0]) else (None, words or [])


def _is_program(word: str) -> bool:
    return word.isdigit() or word.endswith(".duckdb") or bool(current.contexts_of(word))


def found(program: str | None, option: str | None = None) -> Program | Path:
    """The program, or the file of a run, that an argument means.

    Args:
        program: As of `PROGRAM`.
        option: The same, as of `OPTION`.

    Raises:
        ConnectionError: No program runs here.
        ValueError: There are several; or both arguments are given.
        JobError: There is no such job, or no program uses it, and none has left a run.
    """
    if program is not None and option is not None:
        raise Misuse(f"give either PROGRAM or --program, not both {program!r} and {option!r}")
    what = program or option
    if what is None or what.isdigit():
        return _running(None if what is None else int(what))
    if os.path.isfile(what) or os.sep in what or what.endswith(".duckdb"):
        return Path(what)
    described = current.running_job(what)
    # programs reach the job of any context by that path
    folder = folder_of(Path(job.DEFAULT_JOB_PATH), described.apply_id or "")
    uses, run = telemetry.program_of(folder), telemetry.run_of(folder)
    if uses is None and not run.exists():
        here = [each for each in find() if each.folder == os.getcwd() and not each.is_worker]
        if here and not described._has_telemetry:  # else it would be noted
            return choose(None, here)
        told = "now, or has left a run: `monarch list` has the process ids of those that run"
        no_program = f"no program here is known to use {described!r} {told}"
        raise job.JobError(f"{no_program}{pending(described)}")
    return uses or run


def reach(program: str | None, option: str | None = None) -> Connection:
    """The running program that is meant; see `found`.

    Raises:
        ConnectionError: See `monarch.programs.connect`.
        ValueError: It is the file of a run.
    """
    what = found(program, option)
    if isinstance(what, Path):
        told = "`monarch why`, `query` and `dashboard` read the files of runs"
        raise Misuse(f"this needs a program that runs, and {what} is a file: {told}")
    return connect(what)


def _running(pid: int | None) -> Program:
    programs = find()
    try:
        return choose(pid, programs)
    except ConnectionError as error:
        raise ConnectionError(f"{error}{pending()}") from None
    except ValueError:
        if pid is not None or not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise
    shown = [each for each in programs if not each.is_worker] or programs
    for number, each in enumerate(shown, 1):
        typer.echo(f"{number:>3}  {named(str(each))}  {named(each.folder)}", err=True)
    chosen = 0
    while not 0 < chosen <= len(shown):
        chosen = typer.prompt(f"Which program, 1 to {len(shown)}", type=int, err=True)
    return shown[chosen - 1]


def pending(described: job.JobTrait | None = None) -> str:
    """Say why a job waits for its hosts, where it does; None: that of the active context."""
    with suppress(MonarchError, OSError):
        described = described or running(None)
        if why := described._progress()[1]:
            return f"; {described!r} waits for its hosts: {why}"
    return ""


def applied(spec: str | None) -> job.JobTrait:
    """The job of a spec, ``module.attribute``; without one, that of the active context.

    It is as described, or else as a program has started it. The context stays as it is.

    Raises:
        FileNotFoundError, ImportError, JobError, ValueError: There is no such job.
    """
    try:
        if spec is None and not (spec := current.spec_of(current.active_context())):
            return running(None)
        return current.import_spec(spec)
    except (AttributeError, TypeError) as error:
        raise job.JobError(str(error)) from error


def running(context: str | None) -> job.JobTrait:
    """The job that runs in a context.

    Raises:
        JobError: None does.
    """
    path = current.state_path(context)
    saved = job.job_load(path) if path.exists() else None
    if saved is None or not saved.active:
        why = f"{saved!r} has ended" if saved else f"there is no {path}"
        raise job.JobError(f"no job runs here: {why}; `monarch apply module.attribute` starts one")
    return saved
