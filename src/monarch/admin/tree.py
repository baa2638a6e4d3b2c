"""The tree of hosts, procs and actors as Monarch 0.7 gives it.

Its nodes name each other by references. Pure.

A reference is ``root``; ``host:agent@HOST``; ``PROC@HOST``; ``ACTOR<ID>.PROC@HOST``. It stands in
the path of a URL as one segment.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any
from urllib.parse import quote

from .._words import host_named, rank_name
from ..programs import ProcAddress
from ..telemetry import Collected
from ..telemetry.ids import proc_id
from .routes import ApiError

TABLES = (
    "root_nodes", "host_nodes", "nodes", "children", "proc_nodes", "actor_nodes", "actor_executions", "active_handlers", "procs",
    "hosts", "actors", "actor_status_events",
)  # fmt: skip
"""What a tree is made of."""

ROOT = "root"

_HOST = "host:"
_NO_ORDER = {
    "enabled": True,
    "snapshot_complete": True,
    "skipped_session_count": 0,
    "known_session_count": 0,
    "returned_buffered_session_count": 0,
    "returned_buffered_message_count": 0,
    "returned_max_buffered_count": 0,
    "sessions": [],
}
"""Messages come in order, and none is put aside until an earlier one has come."""


class Tree:
    """The tree of hosts, procs and actors.

    Args:
        found: The rows of `TABLES`.
        now: When, in seconds since 1970.

    Attributes:
            silent: Hosts and processes that have not answered, and why.
    """

    def __init__(self, found: Collected, now: float) -> None:
        self.silent = found.silent
        self._now = rfc3339(now * 1e6)
        self._client_since = min(
            (row["timestamp_us"] for row in found.rows("actors") if row["status"] == "Client"),
            default=0,
        )
        self._roots = found.rows("root_nodes")
        self._hosts = {_HOST + row["node_id"]: row for row in found.rows("host_nodes")}
        self._machines = {row["address"]: row["machine"] for row in found.rows("hosts")}
        names = {
            _number(row["node_id"]): row["node_id"]
            for row in found.rows("nodes")
            if row["node_kind"] == "proc"
        }
        self._procs = {names[row["id"]]: row for row in found.rows("procs") if row["id"] in names}
        self._actors = {
            f"{'client' if row['status'] == 'Client' else row['name']}<{row['mesh_id']:x}>.{names[row['proc_id']]}": (
                row
            )
            for row in found.rows("actors")
            if row["proc_id"] in names
        }
        self._said = {
            row["node_id"]: row
            for table in ("proc_nodes", "actor_nodes")
            for row in found.rows(table)
        }
        self._handlers: dict[str, list[dict[str, Any]]] = {}
        for row in found.rows("active_handlers"):
            self._handlers.setdefault(row["node_id"], []).append(row)
        self._failed = {
            row["actor_id"]: row
            for row in found.rows("actor_status_events")
            if row["new_status"] == "Failed"
        }
        self._parents: dict[str, str] = {}
        self._children: dict[str, list[str]] = {}
        self._stopped: dict[str, list[str]] = {}
        self._link(found)

    @property
    def references(self) -> list[str]:
        """The references of all nodes."""
        return [ROOT, *self._parents]

    def row(self, reference: str) -> Mapping[str, Any]:
        """Return the row of a node in the table `procs` or `actors`; empty for others."""
        return self._procs.get(reference) or self._actors.get(reference) or {}

    def find(self, reference: str) -> dict[str, Any]:
        """The payload of a node.

        Raises:
            ApiError: There is none.
        """
        if reference != ROOT and reference not in self._parents:
            shown = repr(reference[:200])
            if "@" not in reference:
                raise ApiError(
                    "not_found", f"{shown} is no reference: it has no '@', and is not 'root'"
                )
            silent = "; ".join(f"{who}: {why}" for who, why in self.silent.items())
            raise ApiError(
                "not_found",
                f"there is no {shown}" + (f"; these have not answered: {silent}" if silent else ""),
            )
        return {
            "identity": reference,
            "properties": self._properties(reference),
            "children": self._children.get(reference, []),
            "parent": self._parents.get(reference),
            "as_of": self._now,
        }

    def drawn(self, base: str) -> str:
        """As text, a line for each node, with its URL."""
        lines = [_line(ROOT, ROOT, base), *self._below(ROOT, "", base)]
        lines += [f"! {host_named(who)} did not answer: {why}" for who, why in self.silent.items()]
        return "\n".join([*lines, ""])

    def label(self, reference: str) -> str:
        """Return the label of a node, for people."""
        if reference in self._hosts:
            row = self._hosts[reference]
            name = self._machines.get(row["addr"], row["addr"])
            return f"{name} ({row['host_num_procs']} procs)"
        if reference in self._procs:
            return rank_name(self._procs[reference]["mesh"], self._procs[reference]["rank"])
        return f"{reference.partition('<')[0]} ({self._status(reference)})"

    def _below(self, reference: str, indent: str, base: str) -> Iterator[str]:
        children = self._children.get(reference, [])
        for child in children:
            last = child == children[-1]
            yield indent + ("└── " if last else "├── ") + _line(self.label(child), child, base)
            yield from self._below(child, indent + ("    " if last else "│   "), base)

    def _link(self, found: Collected) -> None:
        for row in sorted(found.rows("children"), key=lambda row: int(row["child_sort_key"])):
            self._add(
                self._reference(row["parent_id"]),
                self._reference(row["child_id"]),
                row["is_stopped"],
            )
        # of processes that have ended, which say nothing themselves
        for reference, row in self._actors.items():
            if (
                row["status"] == "Failed"
                and row["class"] is not None
                and reference not in self._parents
            ):
                self._add(reference.partition(".")[2], reference, False)

    def _add(self, parent: str, child: str, stopped: bool) -> None:
        self._parents[child] = parent
        self._children.setdefault(parent, []).append(child)
        if stopped:
            self._stopped.setdefault(parent, []).append(child)

    def _reference(self, node: str) -> str:
        return _HOST + node if _HOST + node in self._hosts else node

    def _properties(self, reference: str) -> dict[str, Any]:
        if reference == ROOT:
            return {"Root": self._root()}
        if reference in self._hosts:
            return {"Host": self._host(reference)}
        if reference in self._procs:
            return {"Proc": self._proc(reference)}
        if "<" in reference:
            return {"Actor": self._actor(reference)}
        message = f"{reference} has ended while it was looked for"
        return {"Error": {"code": "not_found", "message": message}}

    def _root(self) -> dict[str, Any]:
        number = self._roots[0]["num_hosts"] if self._roots else len(self._hosts)
        by = self._roots[0]["started_by"] if self._roots else "unknown"
        return {
            "num_hosts": number,
            "started_at": rfc3339(self._client_since),
            "started_by": by,
            "system_children": [],
        }

    def _host(self, reference: str) -> dict[str, Any]:
        row = self._hosts[reference]
        here = [
            self._procs[child]
            for child in self._children.get(reference, ())
            if child in self._procs
        ]
        return {
            "addr": row["addr"],
            "num_procs": row["host_num_procs"],
            "system_children": [],
            "memory": _memory([each for each in here if each["state"] != "ended"]),
        }

    def _proc(self, reference: str) -> dict[str, Any]:
        row, said = self._procs[reference], self._said.get(reference, {})
        here = [
            self._actors[child]
            for child in self._children.get(reference, ())
            if child in self._actors
        ]
        queues = [int(each["queue_depth"]) for each in here]
        return {
            "proc_name": reference.partition("@")[0],
            "mesh_rank": rank_name(row["mesh"], row["rank"]),
            "num_actors": said.get("num_actors", len(here)),
            "system_children": [],
            "stopped_children": self._stopped.get(reference, []),
            "stopped_retention_cap": 0,
            "is_poisoned": bool(said.get("is_poisoned")),
            "failed_actor_count": sum(each["status"] == "Failed" for each in here),
            "debug": {
                "memory": _memory([row]),
                "actor_work_queue_depth_total": sum(queues),
                "actor_work_queue_depth_max": max(queues, default=0),
                "actor_work_queue_depth_high_water_mark": max(queues, default=0),
                "last_nonzero_queue_depth_age_ms": 0 if any(queues) else None,
            },
        }

    def _actor(self, reference: str) -> dict[str, Any]:
        said, row = self._said.get(reference, {}), self._actors.get(reference, {})
        handlers = self._handlers.get(reference, [])
        return {
            "actor_status": self._status(reference),
            "actor_type": said.get("actor_type") or row.get("class") or "",
            "instance_id": said.get("instance_id", f"{row.get('mesh_id', 0):x}"),
            "messages_processed": said.get("messages_processed", row.get("handled", 0)),
            "created_at": rfc3339(said.get("created_at", row.get("timestamp_us"))),
            "last_message_handler": said.get("last_message_handler") or row.get("endpoint"),
            "total_processing_time_us": said.get("total_processing_time_us", 0),
            "queue_depth": said.get("queue_depth", row.get("queue_depth", 0)),
            "is_system": False,
            "inbound_ordering": _NO_ORDER,
            "failure_info": self._failure(reference),
            "execution": {
                "active_count": sum(each["active_count"] for each in handlers),
                "active_handlers": [
                    {
                        "name": each["name"],
                        "active_count": each["active_count"],
                        "oldest_since": rfc3339(each["oldest_since"]),
                    }
                    for each in handlers
                ],
                "complete": True,
                "truncated": False,
            },
        }

    def _status(self, reference: str) -> str:
        failure = self._failure(reference)
        if failure is not None:
            return f"failed: {failure['error_message']}"
        row = self._actors.get(reference, {})
        status = (
            self._said.get(reference, {}).get("actor_status")
            or str(row.get("status", "unknown")).lower()
        )
        return f"{status}: {row['endpoint']}" if row.get("endpoint") else status

    def _failure(self, reference: str) -> dict[str, Any] | None:
        row = self._actors.get(reference)
        if row is None or row["status"] != "Failed":
            return None
        event = self._failed.get(row["id"], {})
        proc = self._procs.get(reference.partition(".")[2], {})
        return {
            "error_message": event.get("reason") or proc.get("reason") or "its process has ended",
            "root_cause_actor": reference,
            "root_cause_name": row["full_name"],
            "occurred_at": rfc3339(event.get("timestamp_us")),
            "is_propagated": False,
        }


def rfc3339(microseconds: float | None) -> str | None:
    """A time as programs write it, to the millisecond."""
    if not microseconds:
        return None
    at = datetime.fromtimestamp(microseconds / 1e6, timezone.utc)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z"


def with_texts(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with its ids as texts: JavaScript has no integers of 64 bits."""
    return {
        name: str(value) if value is not None and (name == "id" or name.endswith("_id")) else value
        for name, value in row.items()
    }


def url_of(base: str, reference: str) -> str:
    """The URL of a node."""
    return f"{base}/v1/{quote(reference, safe='')}"


def _line(label: str, reference: str, base: str) -> str:
    return f"{label}  ->  {url_of(base, reference)}"


def _memory(rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    return {
        "process_rss_bytes": sum(row["rss_bytes"] or 0 for row in rows),
        "process_vm_size_bytes": sum(row["vm_bytes"] or 0 for row in rows),
    }


def _number(name: str) -> int:
    proc, _, host = name.partition("@")
    return proc_id(ProcAddress(host, proc))
