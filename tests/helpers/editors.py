"""An editor, as far as it speaks the Debug Adapter Protocol: scripted; and a port without a rank."""

from __future__ import annotations

import itertools
import json
import socket
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from helpers.waiting import wait_until
from monarch._core import plane
from monarch._core.plane import ProcAddress, pickling
from monarch.debugger import dap
from monarch.debugger.protocol import Attach, framed

Message = dict[str, Any]
_PATIENCE = 60.0  # seconds


class Editor:
    """Args:
    address: Of the adapter, ``host:port``.
    token: Which it asks for.
    """

    def __init__(self, address: str, token: str = "") -> None:
        self._token = token
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=_PATIENCE)
        self._file = self.socket.makefile("rb")
        self._numbers = itertools.count(1)

    def send(self, command: str, **arguments: Any) -> int:
        number = next(self._numbers)
        request = {"seq": number, "type": "request", "command": command, "arguments": arguments}
        text = json.dumps(request).encode()
        self.socket.sendall(b"Content-Length: %d\r\n\r\n%s" % (len(text), text))
        return number

    def ask(self, command: str, **arguments: Any) -> Message:
        """Send a request; the body of its answer."""
        return self.answer(self.send(command, **arguments))

    def answer(self, number: int) -> Message:
        """The body of the answer to a request."""
        answer = self.wait_for(lambda message: message.get("request_seq") == number)
        assert answer["success"], answer
        body: Message = answer.get("body", {})
        return body

    def event(self, name: str) -> Message:
        body: Message = self.wait_for(lambda message: message.get("event") == name)["body"]
        return body

    def wait_for(self, is_meant: Callable[[Message], bool]) -> Message:
        while True:
            message = self.read()
            assert message is not None, "the adapter has hung up"
            if is_meant(message):
                return message

    def read(self) -> Message | None:
        """The next message; None when there is no more."""
        size = 0
        while header := self._file.readline().strip():
            name, _, value = header.partition(b":")
            if name.lower() == b"content-length":
                size = int(value)
        message: Message | None = json.loads(self._file.read(size)) if size else None
        return message

    def initialize(self) -> int:
        return self.send(
            "initialize",
            clientID="test",
            adapterID="debugpy",
            pathFormat="path",
            linesStartAt1=True,
        )

    def attach(self, path: str, line: int) -> None:
        """Set a breakpoint, and let the program go on."""
        self.answer(self.initialize())
        self.send("attach", justMyCode=True, monarchToken=self._token)
        self.wait_for(lambda message: message.get("event") == "initialized")
        [breakpoint_] = self.ask(
            "setBreakpoints", source={"path": path}, breakpoints=[{"line": line}]
        )["breakpoints"]
        assert breakpoint_["verified"], breakpoint_
        self.ask("configurationDone")

    def stack(self, thread: int) -> list[Message]:
        frames: list[Message] = self.ask("stackTrace", threadId=thread)["stackFrames"]
        return frames

    def variables(self, frame: Message) -> dict[str, str]:
        """The local variables of a frame."""
        scopes = self.ask("scopes", frameId=frame["id"])["scopes"]
        found = self.ask("variables", variablesReference=scopes[0]["variablesReference"])[
            "variables"
        ]
        return {each["name"]: each["value"] for each in found}

    def close(self) -> None:
        self._file.close()
        self.socket.close()


class _NotingPlane:
    """The engine's public inside, but for the sending of records."""

    def __init__(self, send: Callable[..., None]) -> None:
        self.send_record = send

    def __getattr__(self, name: str) -> Any:
        return getattr(plane, name)


class NotedPort:
    """A port of a rank that notes what it would get; it says what the test has it say."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent: list[Any] = []
        self.told: list[str] = []
        self._relay: Any = None
        monkeypatch.setattr(dap, "plane", _NotingPlane(self._send))
        monkeypatch.setattr(dap, "_ENDED_WITHIN", 0)
        proc = ProcAddress("host", "proc")
        # nothing is sent
        self.port = dap.Port(None, proc, 0, self.told.append, "token")  # type: ignore[arg-type]

    def _send(self, hub: object, proc: object, record: object, *reply: object) -> None:
        self.sent.append(record)
        if isinstance(record, Attach):
            [self._relay] = reply
        elif b"initialize" in getattr(record, "data", b""):
            answer = {"type": "response", "command": "initialize", "request_seq": 1}
            self.say(framed(json.dumps({**answer, "body": {"of": "the rank"}}).encode()))

    def say(self, data: bytes) -> None:
        self._relay.reply(SimpleNamespace(flags=0, payload=pickling.dumps(data)[0], buffers=()))

    def close(self) -> None:
        """Refuse further editors, and wait until those that have left are told of to the rank."""
        self.port.close()
        wait_until(
            lambda: not any(each.name.startswith("monarch-dap") for each in threading.enumerate()),
            what="the end of all relays",
        )

    def heard(self) -> bytes:
        return b"".join(getattr(record, "data", b"") for record in self.sent)
