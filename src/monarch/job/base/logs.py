"""The folder of a job's logs, ``logs/<apply_id>`` beside its file.

For most jobs that is ``.monarch/logs/<apply_id>``.

job.json                  which job this is
<host>/<mesh>_<rank>.log  what a proc has printed and logged; .jsonl beside it for programs, .log.1 and so on before it
workers/<name>.log        what worker processes say themselves
stdout.log, stderr.log    of a client script
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from ... import _ours

_ABOUT = "job.json"


def folder_of(state: Path, apply_id: str) -> Path:
    """The folder of a job; it need not exist.

    Args:
        state: The file that the job is saved to; a link to it does not count as its place.
        apply_id: Its id.
    """
    return state.absolute().parent / "logs" / apply_id


def label(state: Path, apply_id: str, job: str, all_here: bool) -> None:
    """Say in the folder which job it is of.

    Args:
        state: The file that it is saved to.
        apply_id: Its id.
        job: The job, described for people.
        all_here: Whether all of its hosts are this machine.
    """
    folder = folder_of(state, apply_id)
    about = {
        "job": job,
        "state": os.path.realpath(state),
        "all_here": all_here,
        "started": time.time(),
    }
    with _ours.opened(folder, make=True) as opened:
        opened.replace(_ABOUT, (json.dumps(about) + "\n").encode())


def read_label(folder: Path) -> dict[str, Any]:
    """Return what `label` has said; nothing where it has not."""
    try:
        with _ours.opened(folder) as opened:
            found = json.loads(opened.read(_ABOUT))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
