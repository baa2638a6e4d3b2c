"""The content of a dashboard's front page, as plain data.

It has the verdict, each rank of each mesh as columns, the failures, and the changes from one
picture to the next. Pure.

A column is a list with a value for each rank, in the order of the ranks; a client that keeps it as
an array draws ten thousand ranks in milliseconds, and a delta changes single places of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from .._words import host_named
from ..telemetry import Collected
from ..telemetry.ids import mesh_id
from ..telemetry.rows import sizes_of
from ..why.model import STATES, STUCK, Verdict

TABLES = {
    "procs": (
        "id", "mesh_id", "mesh", "rank", "size", "host_id", "pid", "state", "exit_code", "signal", "cpu_seconds", "rss_bytes",
    ),
    "actors": ("proc_id", "queue_depth", "handled"),
    "meshes": ("id", "class", "shape_json"),
    "hosts": ("id", "machine"),
    "actor_failures": (
        "node_id", "failure_error_message", "failure_root_cause_actor", "failure_root_cause_name", "failure_occurred_at",
        "failure_is_propagated",
    ),
}  # fmt: skip
"""What a picture is made of: tables, and their columns."""

IDLE, ENDED, FAILED, STARTS, SILENT = "idle", "ended", "failed", "starts", "silent"
LOOKING = Verdict("looking", "All ranks are looked at twice, a second apart.")
"""In place of a verdict that is not there yet."""

RANK_STATES = [IDLE, *STATES, ENDED, FAILED, STARTS, SILENT]
"""What the numbers in the column `state` mean."""

_POSITIONS = {name: position for position, name in enumerate(RANK_STATES)}

COLUMNS = {
    "state": "position in `states`",
    "blamed": "1 if it holds up others, and none holds up it",
    "seconds": "for how long it has stood where it is, at least; null if that was not noted",
    "queue": "messages that wait for its actors",
    "handled": "messages that its actors have handled so far",
    "rss": "bytes of memory of its process",
    "cpu": "seconds that its process has computed so far",
    "pid": "its process",
    "host": "position in `hosts`",
}
"""The columns of a mesh."""


def picture(found: Collected, verdict: Verdict) -> dict[str, Any]:
    """Return the picture of a program that the dashboards show.

    Args:
        found: The rows of `TABLES`.
        verdict: On the program, at about the same time; `LOOKING` if there is none yet: then states
            are not known.
    """
    hosts = {row["id"]: row["machine"] for row in found.rows("hosts")}
    numbers = {host: number for number, host in enumerate(hosts)}
    shapes = {
        row["id"]: sizes_of(row["shape_json"])
        for row in found.rows("meshes")
        if row["class"] == "Proc"
    }
    queues: dict[Any, list[int]] = {}
    for row in found.rows("actors"):
        sums = queues.setdefault(row["proc_id"], [0, 0])
        sums[0] += row["queue_depth"]
        sums[1] += row["handled"]
    stands = {(_told_by(each.mesh), rank): each for each in verdict.classes for rank in each.ranks}
    silent = " ".join(found.silent)
    meshes: dict[str, dict[str, Any]] = {}
    for row in sorted(found.rows("procs"), key=_order):
        uid = str(row["mesh_id"])
        if uid not in meshes:
            meshes[uid] = new_mesh(
                row["mesh"], row["size"], shapes.get(row["mesh_id"], {}), COLUMNS
            )
        mesh = meshes[uid]
        if row["rank"] >= mesh["size"]:
            continue
        standing = stands.get((row["mesh"], row["rank"])) or stands.get(
            (row["mesh_id"], row["rank"])
        )
        waiting, handled = queues.get(row["id"], (0, 0))
        state = _state(
            row, standing.state if standing else "" if verdict is LOOKING else IDLE, silent
        )
        values = {
            "state": _POSITIONS.get(state),
            "blamed": int(standing.blamed) if standing else 0,
            "seconds": (
                round(standing.seconds, 1) if standing and standing.seconds is not None else None
            ),
            "queue": waiting,
            "handled": handled,
            "rss": row["rss_bytes"],
            "cpu": row["cpu_seconds"],
            "pid": row["pid"],
            "host": numbers.get(row["host_id"]),
        }
        for name, value in values.items():
            mesh["columns"][name][row["rank"]] = value
    return {
        "verdict": {
            **{name: getattr(verdict, name) for name in ("status", "sentence", "seconds")},
            **{name: list(getattr(verdict, name)) for name in ("full", "frozen", "swapping")},
            "circles": [list(each) for each in verdict.circles],
            "blamed": [_blamed(each._asdict()) for each in verdict.blamed],
        },
        "states": RANK_STATES,
        "hosts": list(hosts.values()),
        "meshes": meshes,
        "failures": _failures(found),
        "silent": {host_named(who): why for who, why in {**verdict.silent, **found.silent}.items()},
    }


def last_picture(found: Collected, verdict: Verdict) -> dict[str, Any]:
    """Return the picture of a program that a failure has ended.

    Args:
        found: The rows of `TABLES` at that moment.
        verdict: The one before.
    """
    causes = _failures(found)
    why = ""
    if causes:
        why = f": {causes[0]['root_cause']}: {causes[0]['message'].partition(chr(10))[0]}"
    return picture(
        found, replace(verdict, status=STUCK, sentence=f"Ended by an unhandled failure{why}")
    )


def delta(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the changes between two pictures; empty where there are none.

    Parts that have changed are there anew, but meshes: of those that were there before with the
    same ranks, `cells` has the places of columns that have changed, and their values; a mesh that
    is gone is null.
    """
    found: dict[str, Any] = {
        name: value
        for name, value in after.items()
        if name != "meshes" and value != before.get(name)
    }
    meshes: dict[str, Any] = dict.fromkeys(before["meshes"].keys() - after["meshes"].keys())
    cells: dict[str, dict[str, Any]] = {}
    for uid, mesh in after["meshes"].items():
        known = before["meshes"].get(uid)
        if known is None or {**known, "columns": 0} != {**mesh, "columns": 0}:
            meshes[uid] = mesh
            continue
        for name, column in mesh["columns"].items():
            at = [
                place
                for place, pair in enumerate(zip(known["columns"][name], column, strict=True))
                if pair[0] != pair[1]
            ]
            if at:
                cells.setdefault(uid, {})[name] = {"at": at, "to": [column[place] for place in at]}
    if meshes:
        found["meshes"] = meshes
    if cells:
        found["cells"] = cells
    return found


def _told_by(mesh: str) -> str | int:
    """The mesh of a standing, as rows name it: its name, or its id where several have the name."""
    name, _, uid = mesh.rpartition("#")
    return mesh_id(uid) if name else mesh


def _order(row: Mapping[str, Any]) -> tuple[str, int, bool]:
    """Return the sort key: an ended process comes before the one in its place."""
    return str(row["mesh_id"]), row["rank"], row["state"] != "ended"


def new_mesh(
    name: str, size: int, shape: Mapping[str, int], columns: Iterable[str]
) -> dict[str, Any]:
    """A mesh of which no value is known yet."""
    return {
        "name": name,
        "size": size,
        "shape": shape,
        "columns": {column: [None] * size for column in columns},
    }


def _state(row: Mapping[str, Any], standing: str, silent: str) -> str:
    if row["state"] == "ended":
        return FAILED if row["signal"] is not None or row["exit_code"] else ENDED
    if not row["pid"]:
        return STARTS
    if standing == IDLE and f"{row['mesh']}[{row['rank']}] on " in silent:
        return SILENT
    return standing


def _blamed(standing: dict[str, Any]) -> dict[str, Any]:
    names = (
        "mesh", "size", "ranks", "hosts", "pids", "point", "endpoint", "place", "state", "reason",
        "seconds",
    )  # fmt: skip
    return {
        name: list(value) if isinstance(value := standing[name], tuple) else value for name in names
    }


def _failures(found: Collected) -> list[dict[str, Any]]:
    """The first one first: it is often the cause of the others."""

    def order(row: Mapping[str, Any]) -> tuple[bool, bool, int]:
        at = row["failure_occurred_at"]  # None: unknown
        return bool(row["failure_is_propagated"]), at is None, at or 0

    rows = sorted(found.rows("actor_failures"), key=order)
    return [
        {
            "reference": row["node_id"],
            "message": row["failure_error_message"],
            "root_cause": row["failure_root_cause_name"] or row["failure_root_cause_actor"],
            "occurred_us": row["failure_occurred_at"],
            "is_propagated": row["failure_is_propagated"],
        }
        for row in rows
    ]
