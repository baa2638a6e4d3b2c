"""Who asks the admin interface of a program over HTTP."""

from __future__ import annotations

import http.client
import json
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, urlsplit

from monarch.admin.door import Door
from monarch.admin.keys import ACT

PATIENCE = 60.0  # seconds

IDLE = """
    import sys
    from monarch.actor import this_host

    if __name__ == "__main__":
        this_host().spawn_procs(name="idle").initialized.get()
        print("go", flush=True)
        sys.stdin.read()
    """
"""A program that waits."""


class Asker:
    """Args:
    url: Of the server.
    token: What lets in; empty for none.
    """

    def __init__(self, url: str, token: str = "") -> None:
        self.url = url
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    def open(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] = {}
    ) -> http.client.HTTPResponse:
        """The answer, of which the body is still to be read.

        Bytes are sent as they are; their type is among the headers.
        """
        is_raw = body is None or isinstance(body, bytes)
        content = body if is_raw else json.dumps(body).encode()
        kind = {} if is_raw else {"Content-Type": "application/json"}
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=PATIENCE)
        connection.request(
            method, path, content, {**self._headers, **kind, **headers, "Connection": "close"}
        )
        return connection.getresponse()

    def raw(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] = {}
    ) -> tuple[int, bytes]:
        """Status and body."""
        with self.open(method, path, body, headers) as answer:
            return answer.status, answer.read()

    def get(self, path: str) -> Any:
        """The JSON of an answer."""
        status, body = self.raw("GET", path)
        assert status == 200, body
        return json.loads(body)

    def post(self, path: str, body: Any = None) -> Any:
        """Likewise."""
        status, content = self.raw("POST", path, body)
        assert status == 200, content
        return json.loads(content)

    def error(self, method: str, path: str, body: Any = None) -> tuple[int, str, str]:
        """Status, code and message of an error."""
        status, content = self.raw(method, path, body)
        assert status >= 400, content
        error = json.loads(content)["error"]
        return status, error["code"], error["message"]

    def node(self, reference: str) -> Any:
        """A node of the tree."""
        return self.get(f"/v1/{quote(reference, safe='')}")

    def walk(self, reference: str = "root") -> Iterator[Any]:
        """A node, and all below it."""
        node = self.node(reference)
        yield node
        for child in node["children"]:
            yield from self.walk(child)

    def events(self, path: str) -> Generator[tuple[str, Any], None, None]:
        """Server-sent events from now on, but for beats, which say that there is nothing new."""
        answer = self.open("GET", path)
        assert answer.status == 200 and answer.headers.get_content_type() == "text/event-stream"

        def read() -> Generator[tuple[str, Any], None, None]:
            name = ""
            with answer:
                for line in map(bytes.decode, answer):
                    if line.startswith("event: "):
                        name = line[7:].strip()
                    elif line.startswith("data: ") and name != "beat":
                        yield name, json.loads(line[6:])

        return read()


@contextmanager
def admin_of(pid: int, **how: Any) -> Iterator[tuple[Door, Asker]]:
    """The admin interface of a program, and who may do anything there."""
    door = Door(pid, **how)
    try:
        yield door, Asker(door.url, door.access(ACT)["token"])
    finally:
        door.close()
