"""Writes the file of a run when a failure ends the program.

It does so at any end where that was asked for.

What ends the wait: all hosts have answered, or `_BOUND` seconds are over. A file that can't be
written costs a line on stderr.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from .._core.plane import before_the_end
from .._namedtuple import NamedTuple
from .run_file import snapshot_source, write_run

_BOUND = 8.0  # seconds; hosts that are silent take 6 of them
UNHANDLED = "an unhandled failure"
"""Why a file was written, where that has ended the program."""


class _Kept(NamedTuple):
    job: str
    at_exit: bool
    judge: Callable[[], Any]


_kept: dict[Path, _Kept] = {}


def keep_run(path: Path, job: str, at_exit: bool, judge: Callable[[], Any]) -> None:
    """Write the file if an unhandled failure ends this program.

    Args:
        path: The file; its folder exists.
        job: Of what it is, for people.
        at_exit: Write it when the program, or the job, ends otherwise as well.
        judge: Gives the verdict on the program; see `monarch.why`.
    """
    if not _kept:
        before_the_end.append(_at_fault)
        atexit.register(_at_exit)
    _kept[path] = _Kept(job, at_exit, judge)


def finish_run(path: Path) -> None:
    """The job is about to end: write its file if that was asked for."""
    kept = _kept.pop(path, None)
    if kept is not None and kept.at_exit:
        _write(path, kept, "the end of the job")


def _at_fault() -> None:
    for path, kept in list(_kept.items()):
        del _kept[path]
        _write(path, kept, UNHANDLED)


def _at_exit() -> None:
    for path in list(_kept):
        finish_run(path)


def _write(path: Path, kept: _Kept, reason: str) -> None:
    about = {"program": f"{os.getpid()} ({' '.join(sys.argv)})", "job": kept.job, "reason": reason}
    try:
        about["verdict"] = json.dumps(kept.judge().to_json())
        written = write_run(path, snapshot_source(), about, _BOUND)
    except Exception as error:
        text = f"what all processes did is not kept: {error}"
    else:
        text = (
            f"what all processes did is kept in {written.path}: monarch query {written.path}"
            " 'SHOW TABLES'"
        )
    with suppress(OSError, ValueError, AttributeError):
        print(text, file=sys.stderr, flush=True)
