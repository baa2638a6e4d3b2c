"""Descriptions of the routes, from their table.

They are the OpenAPI document, a guide in Markdown, and the table of docs/admin.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import schemas
from .guard import SESSION
from .routes import JSON, NO_ROLE, ROUTES, Route

_INTRODUCTION = Path(__file__).with_name("openapi.md").read_text(encoding="utf-8")


def document(base: str) -> dict[str, Any]:
    """The OpenAPI document.

    Args:
        base: The URL of the server.
    """
    paths: dict[str, dict[str, Any]] = {}
    for each in ROUTES:
        paths.setdefault(each.path, {})[each.method.lower()] = _operation(each)
    return {
        "openapi": "3.1.0",
        "info": {"title": "The admin interface of a Monarch program", "version": "1"},
        "servers": [{"url": base}],
        "security": [{"token": []}, {"session": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "session": {"type": "apiKey", "in": "header", "name": SESSION},
            },
            "schemas": {"Node": schemas.NODE, "Admin": schemas.ADMIN, "Error": schemas.ERROR},
        },
    }


def guide(base: str) -> str:
    """The guide for people and programs."""
    return _INTRODUCTION.format(base=base) + table()


def table() -> str:
    """The routes in Markdown, by path.

    They are registered in whichever order their modules are imported.
    """
    lines = ["| route | role | for |", "| --- | --- | --- |"]
    routes = sorted(ROUTES, key=lambda each: (each.path, each.method))
    lines += [
        f"| {each.method} `{each.path}`{_shown(each)} | {each.role or '-'} | {each.about} |"
        for each in routes
    ]
    return "\n".join(lines) + "\n"


def _shown(each: Route) -> str:
    names = ", ".join(f"`{name}`" for name in each.fields)
    return f" {names}" if names else ""


def _operation(each: Route) -> dict[str, Any]:
    found: dict[str, Any] = {
        "summary": each.about,
        "operationId": "_".join(
            [each.method.lower(), *(segment.strip("{}") for segment in each.segments)]
        ),
        "x-role": each.role or None,
        "responses": {
            "200": {"description": "The answer", "content": {each.answers: {}}},
            "default": {
                "description": "An error",
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
            },
        },
    }
    if each.role == NO_ROLE:
        found["security"] = []
    if parameters := list(_parameters(each)):
        found["parameters"] = parameters
    if each.method == "POST" and each.takes != JSON:
        found["requestBody"] = {"content": {each.takes: {}}, "required": True}
    elif each.method == "POST":
        required = [name for name, field in each.fields.items() if field.required]
        properties = {
            name: {"type": field.kind, "description": field.about}
            for name, field in each.fields.items()
        }
        schema = {
            "type": "object",
            "properties": properties,
            **({"required": required} if required else {}),
        }
        found["requestBody"] = {
            "content": {"application/json": {"schema": schema}},
            "required": bool(required),
        }
    return found


def _parameters(each: Route) -> Iterator[dict[str, Any]]:
    for name in each.names:
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
    for name, field in each.fields.items() if each.method == "GET" else ():
        yield {
            "name": name, "in": "query", "required": field.required, "description": field.about, "schema": {"type": field.kind},
        }  # fmt: skip
