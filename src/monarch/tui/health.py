"""``monarch tui --diagnose``: whether the admin interface, and all that it shows, answers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from .http import FAILURES, Access, AdminError, Line

SLOW = 1.0
"""Seconds after which an answer is slow; that alone is no fault."""

_SERVER, _MESH = "Admin Infrastructure", "Mesh"
_MOST_NODES = 2000  # hosts and procs that are asked for


def diagnose(access: Access) -> int:
    """Print a report as JSON; returns the exit status: 0 if all is well, else 1."""
    try:
        found = report(Line(access))
    except FAILURES as error:
        found = {"healthy": False, "url": access.url, "error": str(error), "checks": []}
    print(json.dumps({"url": access.url, **found}, indent=2))
    return 0 if found["healthy"] else 1


def report(line: Line) -> dict[str, Any]:
    """Ask for each part of the server and each host and process once; the verdict counts as well.

    Returns:
        `healthy`; `checks`, each with `group`, `name`, `status` (``pass``, ``slow``, ``fail``), `ms` and `message`; `verdict`;
        `nodes_left_out`: how many were too many to ask for.
    """
    root_check, root = _ask(_SERVER, "/v1/root", line.get)
    why_check, why = _ask(_SERVER, "/v1/why", line.get)
    checks = [_ask(_SERVER, "/v1/admin", line.get)[0], root_check, why_check]
    waiting = list(root["children"]) if root else []
    asked = 0
    while waiting and asked < _MOST_NODES:
        asked += 1
        check, node = _ask(_MESH, waiting.pop(0), line.node)
        properties = node["properties"] if node else {}
        if "Host" in properties:
            waiting += node["children"]
        if error := properties.get("Error"):
            check.update(status="fail", message=error["message"])
        elif failed := properties.get("Proc", {}).get("failed_actor_count"):
            check.update(status="fail", message=f"{failed} actors of {properties['Proc']['mesh_rank']} have failed")
        checks.append(check)
    verdict = None
    if why:
        verdict = {name: why[name] for name in ("status", "sentence", "failures", "silent")}
        wrong = verdict["status"] != "fine" or verdict["failures"] or verdict["silent"]
        checks.append(_row(_MESH, "verdict", "fail" if wrong else "pass", 0.0, str(verdict["sentence"])))
    healthy = all(check["status"] != "fail" for check in checks)
    return {"healthy": healthy, "verdict": verdict, "checks": checks, "nodes_left_out": len(waiting)}


def _ask(group: str, name: str, ask: Callable[[str], Any]) -> tuple[dict[str, Any], Any]:
    """The row of a question, and the answer; None if there is none."""
    begun = time.monotonic()
    try:
        answer = ask(name)
    except AdminError as error:
        return _row(group, name, "fail", time.monotonic() - begun, f"{error.code}: {error}"), None
    except FAILURES as error:
        return _row(group, name, "fail", time.monotonic() - begun, str(error) or type(error).__name__), None
    seconds = time.monotonic() - begun
    return _row(group, name, "slow" if seconds > SLOW else "pass", seconds, ""), answer


def _row(group: str, name: str, status: str, seconds: float, message: str) -> dict[str, Any]:
    return {"group": group, "name": name, "status": status, "ms": round(seconds * 1000, 1), "message": message}
