"""The verdict on a run that has left a file: the one of the moment at which it was written.

It is made by the same judge from the same two looks as that on a running program, and kept there.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace

from ..errors import QueryError
from ..programs import Connection
from ..telemetry import QueryEngineClient
from ..telemetry.keep import UNHANDLED
from .gather import of_program
from .model import STUCK, Verdict

_SECONDS = 60.0


def judged(connection: Connection, seconds: float = 1.0) -> dict[str, str]:
    """Return what the file of a running program says of it, with the verdict; see `why`."""
    verdict = json.dumps(of_program(connection, seconds).to_json())
    return {"program": str(connection.program), "verdict": verdict}


def of_run(path: str | os.PathLike[str]) -> Verdict:
    """The verdict on the file of a run, as `why` had given it then.

    A program that a failure has ended is stuck.

    Raises:
        FileNotFoundError: There is none.
        QueryError: It is another file.
        ImportError: duckdb or arro3 is not installed.
    """
    client = QueryEngineClient(os.fspath(path))
    rows = client.query("SELECT name, value FROM run WHERE kind = 'about'", _SECONDS).rows
    about = {row["name"]: row["value"] for row in rows}
    if "verdict" not in about:
        raise QueryError(f"{os.fspath(path)} was written by an older pymonarch, without a verdict")
    verdict = Verdict.from_json(json.loads(about["verdict"]))
    sentence, status = verdict.sentence, verdict.status
    if about["reason"] == UNHANDLED:
        sentence, status = f"Ended by {UNHANDLED}. {sentence}", STUCK
    return replace(verdict, status=status, sentence=f"{about['made']}: {sentence}")
