"""Files for reports of bugs: notes of the engine and reports of failures.

`_lazy.note` writes the notes; the reports are of failures that no owner handled.

Imported where there is something to write.
"""

from __future__ import annotations

import math
import os
import re
import sys
import time
from contextlib import suppress
from functools import partial
from typing import Any

from . import config
from ._lazy import note
from ._ours import APPEND, HERE, Folder, place, say
from ._rotating_file import RotatingFile

FOLDER = os.path.join(HERE, "engine")
"""Where the files are, below the working directory of each process, in a folder per program."""

FAILURES = os.path.join(HERE, "failures")
"""The folder of reports of unhandled failures."""

_MOST_REPORTS = 20
_MOST_PROGRAMS = 20  # of which files are kept
_MOST_BYTES = 8 << 20  # of a file, before it is rotated
_MOST_FILES = 3  # of a process
_REPORT = r"\d{8}-\d{6}_\d+\.txt"  # the names of ours: others are not removed
_NOTES = r"[\w.\[\]-]+_\d+[\w.\[\]-]*\.log(\.\d)?"
_LEVELS = {"TRACE": 5, "DEBUG": 10, "INFO": 20, "WARN": 30, "WARNING": 30, "ERROR": 40}


def write_to_file(process: str, program: str) -> None:
    """Write what this process notes to a file of its own, as ``file_log_level`` says.

    Called at its start.

    Args:
        process: What this process is called.
        program: What the program, or the worker, is called to which it belongs.
    """
    text = config.value("file_log_level")
    level = _LEVELS.get(text.upper())
    if level is None:
        print(
            f"monarch: file_log_level is one of {', '.join(_LEVELS)}, got {text!r}: no log",
            file=sys.stderr,
        )
        return
    import logging

    suffix = config.value("monarch_log_suffix")
    name = f"{_as_file_name(f'{process}_{os.getpid()}{suffix}')}.log"
    tell = say if process == "client" else None  # one process says where files go
    folder = partial(place, "engine", _as_file_name(program), tell=tell)
    try:
        handler = logging.StreamHandler(RotatingFile(folder, name, _MOST_BYTES, _MOST_FILES))
    except OSError as error:  # the program goes on without
        print(f"monarch: no log of the engine: {error}", file=sys.stderr)
        return
    handler.setFormatter(
        logging.Formatter("%(asctime)s.%(msecs)03d %(levelname).1s %(name)s: %(message)s", "%F %T")
    )
    global _handler
    if _handler is None:  # two processes would rotate the same file
        os.register_at_fork(after_in_child=_let_go)
    else:  # of the client before
        _let_go().stream.close()
    _handler = handler
    engine, all_of_it = _loggers()
    engine.setLevel(level)
    engine.propagate = False  # to the handlers of the program
    engine.addHandler(handler)
    all_of_it.addHandler(handler)  # what else Monarch says is of interest as well
    note(
        "process", "%s of %s, process %d, Python %s", process, program, os.getpid(),
        sys.version.split()[0],
    )  # fmt: skip
    note("process", "settings that differ from their defaults: %s", config.exported())
    if process == "client":
        _forget_old_programs()


_handler: Any = None


def _loggers() -> tuple[Any, Any]:
    import logging

    return logging.getLogger("monarch.engine"), logging.getLogger("monarch")


def _let_go() -> Any:
    """Write there no longer; returns the handler."""
    engine, all_of_it = _loggers()
    for logger in (engine, all_of_it):
        logger.removeHandler(_handler)
    engine.setLevel(0)
    engine.propagate = True
    return _handler


def keep_report(text: str) -> None:
    """Keep the report of an unhandled failure in the folder where this program keeps its files."""
    if not os.path.lexists(HERE):
        return
    with suppress(OSError), place("failures") as folder:
        name = f"{time.strftime('%Y%m%d-%H%M%S')}_{os.getpid()}.txt"
        with open(folder.open(name, APPEND), "ab") as file:
            file.write(text.encode(errors="replace"))
        folder.remove(*folder.names(_REPORT)[:-_MOST_REPORTS])


def _as_file_name(text: str) -> str:
    return re.sub(r"[^\w.\[\]-]+", "_", text)[:100].lstrip(".") or "_"


def _forget_old_programs() -> None:
    """Keep the folders of those that have written last."""
    with suppress(OSError), place("engine") as engine:
        for name in sorted(engine.names(), key=partial(_age, engine))[_MOST_PROGRAMS:]:
            with suppress(OSError), engine.below(name) as folder:
                folder.remove(*folder.names(_NOTES))
                os.rmdir(name, dir_fd=engine.fd)


def _age(engine: Folder, name: str) -> float:
    with suppress(OSError), engine.below(name) as folder:
        found = map(folder.status, folder.names(_NOTES))
        return -max((status.st_mtime for status in found if status is not None), default=0.0)
    return -math.inf  # it is not ours to remove
