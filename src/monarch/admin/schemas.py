"""The JSON Schemas of what Monarch 0.7 has schemas for, under its ids. Plain data."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

_BASE = "https://monarch.meta.com/schemas/v1/"
_DRAFT = "https://json-schema.org/draft/2020-12/schema"

_TEXT: dict[str, Any] = {"type": "string"}
_MAYBE_TEXT: dict[str, Any] = {"type": ["string", "null"]}
_COUNT: dict[str, Any] = {"type": "integer", "minimum": 0}
_BOOL: dict[str, Any] = {"type": "boolean"}
_REFERENCES: dict[str, Any] = {"type": "array", "items": _TEXT}


def _object(properties: dict[str, Any], optional: Iterable[str] = ()) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in optional],
    }


_MEMORY = _object({"process_rss_bytes": _COUNT, "process_vm_size_bytes": _COUNT})

_ROOT = _object(
    {
        "num_hosts": _COUNT,
        "started_at": _MAYBE_TEXT,
        "started_by": _TEXT,
        "system_children": _REFERENCES,
    }
)
_HOST = _object(
    {"addr": _TEXT, "num_procs": _COUNT, "system_children": _REFERENCES, "memory": _MEMORY}
)
_PROC = _object(
    {
        "proc_name": _TEXT,
        "mesh_rank": _TEXT,
        "num_actors": _COUNT,
        "system_children": _REFERENCES,
        "stopped_children": _REFERENCES,
        "stopped_retention_cap": _COUNT,
        "is_poisoned": _BOOL,
        "failed_actor_count": _COUNT,
        "debug": _object(
            {
                "memory": _MEMORY,
                "actor_work_queue_depth_total": _COUNT,
                "actor_work_queue_depth_max": _COUNT,
                "actor_work_queue_depth_high_water_mark": _COUNT,
                "last_nonzero_queue_depth_age_ms": {"type": ["integer", "null"]},
            }
        ),
    }
)
_FAILURE = {
    **_object(
        {
            "error_message": _TEXT,
            "root_cause_actor": _TEXT,
            "root_cause_name": _MAYBE_TEXT,
            "occurred_at": _MAYBE_TEXT,
            "is_propagated": _BOOL,
        }
    ),
    "type": ["object", "null"],
}
_ACTOR = _object(
    {
        "actor_status": _TEXT,
        "actor_type": _TEXT,
        "instance_id": _TEXT,
        "messages_processed": _COUNT,
        "created_at": _MAYBE_TEXT,
        "last_message_handler": _MAYBE_TEXT,
        "total_processing_time_us": _COUNT,
        "queue_depth": _COUNT,
        "flight_recorder": _MAYBE_TEXT,
        "is_system": _BOOL,
        "inbound_ordering": {"type": "object"},
        "failure_info": _FAILURE,
        "execution": _object(
            {
                "active_count": _COUNT,
                "active_handlers": {
                    "type": "array",
                    "items": _object(
                        {"name": _TEXT, "active_count": _COUNT, "oldest_since": _MAYBE_TEXT}
                    ),
                },
                "complete": _BOOL,
                "truncated": _BOOL,
            }
        ),
    },
    optional=("flight_recorder",),
)
_ERROR = _object({"code": _TEXT, "message": _TEXT})

NODE: dict[str, Any] = {
    "$schema": _DRAFT,
    "$id": _BASE + "node_payload.json",
    "title": "NodePayload",
    **_object(
        {
            "identity": _TEXT,
            "properties": {
                "oneOf": [
                    {**_object({kind: schema}), "additionalProperties": False}
                    for kind, schema in (
                        ("Root", _ROOT), ("Host", _HOST), ("Proc", _PROC), ("Actor", _ACTOR), ("Error", _ERROR),
                    )
                ]
            },
            "children": _REFERENCES,
            "parent": _MAYBE_TEXT,
            "as_of": _TEXT,
        }
    ),
}  # fmt: skip
"""Of a node of the tree."""

ADMIN: dict[str, Any] = {
    "$schema": _DRAFT,
    "$id": _BASE + "admin_info.json",
    "title": "AdminInfo",
    **_object({"actor_id": _TEXT, "proc_id": _TEXT, "host": _TEXT, "url": _TEXT}),
}
"""Of ``/v1/admin``."""


def error(codes: Iterable[str]) -> dict[str, Any]:
    """The schema of an error.

    Args:
        codes: That there are.
    """
    found = _object(
        {"code": {"enum": list(codes)}, "message": _TEXT, "details": {}}, optional=("details",)
    )
    return {
        "$schema": _DRAFT,
        "$id": _BASE + "error.json",
        "title": "ErrorEnvelope",
        **_object({"error": found}),
    }
