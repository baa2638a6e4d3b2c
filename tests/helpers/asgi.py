"""Requests to an ASGI application without a server, each with all of its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple


class Answer(NamedTuple):
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes


async def ask(
    app: Any,
    method: str,
    target: str,
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    read: int = 1 << 30,
) -> Answer:
    """Send a request; stop reading after so many bytes, as one does who closes the connection."""
    path, _, query = target.partition("?")
    scope = {
        "type": "http", "http_version": "1.1", "method": method, "scheme": "http", "path": path, "raw_path": path.encode(),
        "query_string": query.encode(), "root_path": "", "server": ("127.0.0.1", 1729), "client": ("127.0.0.1", 4711),
        "headers": [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()],
    }  # fmt: skip
    gone = asyncio.Event()
    pending = [{"type": "http.request", "body": body, "more_body": False}]
    found: dict[str, Any] = {}
    parts: list[bytes] = []

    async def receive() -> dict[str, Any]:
        if pending:
            return pending.pop()
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            found.update(message)
            return
        parts.append(message.get("body", b""))
        if sum(map(len, parts)) >= read:
            gone.set()

    await app(scope, receive, send)
    return Answer(
        found["status"],
        {name.decode(): value.decode() for name, value in found["headers"]},
        b"".join(parts),
    )
