"""The JSON Schemas of what Monarch 0.7 has schemas for, under its ids: those of `schemas.json`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_SCHEMAS: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))

NODE: dict[str, Any] = _SCHEMAS["node"]
"""Of a node of the tree."""

ADMIN: dict[str, Any] = _SCHEMAS["admin"]
"""Of ``/v1/admin``."""


def error(codes: Iterable[str]) -> dict[str, Any]:
    """The schema of an error.

    Args:
        codes: That there are.
    """
    found: dict[str, Any] = json.loads(json.dumps(_SCHEMAS["error"]))
    found["properties"]["error"]["properties"]["code"]["enum"] = list(codes)
    return found
