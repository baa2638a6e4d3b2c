"""``monarch tui --diagnose``: whether the admin interface, and all that it shows, answers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, TypeVar

from .http import Access, AdminError, Line, told

T = TypeVar("T")

SLOW = 1.0
"""Seconds after which an answer is slow; that alone is no fault."""

_SERVER, _MESH = "Admin Infrastructure", "Mesh"
_MOST_NODES = 2000  # hosts and procs that are asked for


def diagnose(access: Access) -> int:
    """Print a report as JSON; returns the exit status: 0 if all is well, else 1."""
    found = report(Line(access))
    print(json.dumps({"url": access.url, **found}, indent=2))
    return 0 if found["healthy"] else 1


def report(line: Line) -> dict[str, Any]:
    """Ask for each part of the server and each host and process once; the verdict counts as well.

    Returns:
        `healthy`; `checks`, each with `group`, `name`, `status` (``pass``, ``slow``, ``fail``),
        `ms` and `message`; `verdict`;
        `nodes_left_out`: how many were too many to ask for.
    """
    root_check, waiting = _ask(_SERVER, "/v1/root", lambda path: _children(line.get(path)))
    why_check, verdict = _ask(_SERVER, "/v1/why", lambda path: _verdict(line.get(path)))
    checks = [_ask(_SERVER, "/v1/admin", line.get)[0], root_check, why_check]
    waiting = list(waiting or ())
    asked = 0
    while waiting and asked < _MOST_NODES:
        asked += 1
        check, node = _ask(_MESH, waiting.pop(0), lambda reference: _node(line.node(reference)))
        below, fault = node or ((), "")
        waiting += below
        if fault:
            check.update(status="fail", message=fault)
        checks.append(check)
    if verdict:
        wrong = verdict["status"] != "fine" or verdict["failures"] or verdict["silent"]
        checks.append(
            _row(_MESH, "verdict", "fail" if wrong else "pass", 0.0, str(verdict["sentence"]))
        )
    healthy = all(check["status"] != "fail" for check in checks)
    left = len(waiting)
    return {"healthy": healthy, "verdict": verdict, "checks": checks, "nodes_left_out": left}


def _children(node: Any) -> list[str]:
    return list(node["children"])


def _verdict(why: Any) -> dict[str, Any]:
    return {name: why[name] for name in ("status", "sentence", "failures", "silent")}


def _node(node: Any) -> tuple[list[str], str]:
    """Return the next questions, and the faults of a node."""
    properties = node["properties"]
    if error := properties.get("Error"):
        return [], str(error["message"])
    if failed := properties.get("Proc", {}).get("failed_actor_count"):
        return [], f"{failed} actors of {properties['Proc']['mesh_rank']} have failed"
    return _children(node) if "Host" in properties else [], ""


def _ask(group: str, name: str, ask: Callable[[str], T]) -> tuple[dict[str, Any], T | None]:
    """The row of a question, and the answer.

    It is None if there is none, or none that this version can read.
    """
    begun = time.monotonic()
    try:
        answer = ask(name)
    except Exception as error:  # of any kind, as answers are foreign
        said = f"{error.code}: {error}" if isinstance(error, AdminError) else told(error)
        return _row(group, name, "fail", time.monotonic() - begun, said), None
    seconds = time.monotonic() - begun
    return _row(group, name, "slow" if seconds > SLOW else "pass", seconds, ""), answer


def _row(group: str, name: str, status: str, seconds: float, message: str) -> dict[str, Any]:
    ms = round(seconds * 1000, 1)
    return {"group": group, "name": name, "status": status, "ms": ms, "message": message}
