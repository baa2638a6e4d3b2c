"""The JSON Schemas of what Monarch 0.7 has schemas for, under its ids: those of `schemas.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .routes import STATUS

_SCHEMAS: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))

NODE: dict[str, Any] = _SCHEMAS["node"]
"""Of a node of the tree."""

ADMIN: dict[str, Any] = _SCHEMAS["admin"]
"""Of ``/v1/admin``."""

ERROR: dict[str, Any] = _SCHEMAS["error"]
"""Of an error."""
ERROR["properties"]["error"]["properties"]["code"]["enum"] = [*STATUS]
