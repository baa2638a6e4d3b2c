"""Debug ranks from an editor: the side of the terminal.

Each rank gets a port on this machine, relayed to its process.

The Debug Adapter Protocol is code execution, and a web page can have its user's browser connect. So
only processes of the same user may, each message is read here, strictly, before the rank gets it,
and `initialize` and an `attach` with the token of the port come first. What ends a relay: the
editor hangs up, or the rank's process, or its debugger, ends; or the editor has not read what it
was sent for `_READS_WITHIN` seconds.
"""

from __future__ import annotations

import getpass
import hmac
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from queue import SimpleQueue
from typing import IO, Any

from .._core.plane import (
    Failure,
    HostedProc,
    Hub,
    ProcAddress,
    check_same_user,
    pickling,
    random_uid,
    refusal,
    send_record,
)
from .._listening import Refusals
from .._rank_selector import RankSelector
from ..programs import Connection, procs_of
from .protocol import Attach, Detach, Said, framed, limit

_TOKEN = "monarchToken"  # argument of `attach`, which editors take from their configuration
_HEADERS = frozenset({b"content-length", b"content-type"})
_LONGEST_HEADER = 256  # bytes
_LARGEST_MESSAGE = 1 << 24  # bytes
_SPEAKS_WITHIN = 30  # seconds of silence, until it has attached
_READS_WITHIN = 30  # seconds in which an editor takes what it is sent; one that does not has left
_AGAIN = 0.1  # seconds
_ENDED_WITHIN = 10.0  # seconds in which the debugger of a rank lets its threads go on, and ends


def find(
    connection: Connection, mesh: str, ranks: str, silent: Callable[[str, str], object]
) -> list[HostedProc]:
    """The procs of a mesh that an expression for ranks means, in order.

    Args:
        connection: To the program.
        mesh: Name or id of the mesh.
        ranks: The expression.
        silent: Called for each host that can't be reached, with its name and why.

    Raises:
        ValueError: There are none; the message says which meshes there are.
    """
    selector = RankSelector(ranks)
    procs = procs_of(connection.hub, connection.agents, silent)
    found = [
        proc
        for proc in procs
        if proc.mesh == mesh and selector.matches(proc.rank, proc.coordinates)
    ]
    if not found:
        there = ", ".join(sorted({f"{proc.mesh} ({proc.size} ranks)" for proc in procs})) or "none"
        raise ValueError(f"no proc of a mesh {mesh!r} is among the ranks {ranks}; meshes: {there}")
    return sorted(found, key=lambda proc: proc.rank)


class Port:
    """A port of this machine at which an editor finds one rank.

    Args:
        hub: From which the rank is reached.
        proc: Its process.
        port: The number; 0 for any.
        tell: Called with what happens, in words.
        token: What an editor must say.

    Raises:
        OSError: The port is taken.
    """

    def __init__(
        self,
        hub: Hub,
        proc: ProcAddress,
        port: int,
        tell: Callable[[str], None],
        token: str,
    ) -> None:
        self._hub = hub
        self._proc = proc
        self._tell = tell
        self._turn = threading.Lock()  # one session at a time
        self._refused = Refusals()
        self._token = token
        self._listener = socket.create_server(("127.0.0.1", port))
        self.number: int = self._listener.getsockname()[1]
        self.address = f"127.0.0.1:{self.number}"
        threading.Thread(target=self._serve, name="monarch-dap", daemon=True).start()

    def entry(self, name: str) -> dict[str, Any]:
        """Return the launch configuration of VS Code.

        Args:
            name: How the editor shows it.
        """
        connect = {"host": "127.0.0.1", "port": self.number}
        kind = {"name": name, "type": "debugpy", "request": "attach"}
        return {**kind, "connect": connect, _TOKEN: self._token}

    def close(self) -> None:
        """Let in nobody more."""
        self._listener.shutdown(socket.SHUT_RDWR)  # or who waits for the next one goes on waiting
        self._listener.close()

    def _serve(self) -> None:
        for editor in self._accepted():
            # a browser that says nothing keeps no editor waiting
            threading.Thread(
                target=self._talk, args=(editor,), name="monarch-dap-editor", daemon=True
            ).start()

    def _talk(self, editor: socket.socket) -> None:
        with editor, editor.makefile("rb") as file:
            try:
                check_same_user(editor)
                limit(editor, socket.SO_RCVTIMEO, _SPEAKS_WITHIN)
                messages = _Messages(file)
                first = messages.request("initialize")
                with self._turn:
                    _Relay(self._hub, self._proc, editor, self._tell).run(
                        messages, first, self._token
                    )
            except OSError as error:  # also that it has gone again
                if self._refused.next_is_told():
                    number = self._refused.count
                    count = f" ({number} so far)" if number > 1 else ""
                    self._tell(f"refused a connection: {error}{count}")

    def _accepted(self) -> Iterator[socket.socket]:
        while self._listener.fileno() >= 0:
            try:
                editor = self._listener.accept()[0]
            except OSError:
                # it is closed; or that editor has gone again, or this process has no descriptor
                # left
                time.sleep(_AGAIN)
            else:
                yield editor


class _Messages:
    """The messages of an editor, read more strictly than by the debugger.

    The debugger skips headers that it does not know: it takes what a web page posts for a message.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def read(self) -> bytes:
        """Return the next message; empty bytes after the last.

        Raises:
            ConnectionError: These bytes are no message.
        """
        headers: dict[bytes, bytes] = {}
        while (line := self._file.readline(_LONGEST_HEADER)) != b"\r\n":
            name, _, value = line.partition(b":")
            if not line and not headers:
                return b""
            if not line.endswith(b"\r\n") or name.lower() not in _HEADERS - headers.keys():
                raise ConnectionRefusedError(
                    f"it said {ascii(line[:60])[1:]}, which is no header of an editor's message: a"
                    " web page, or another program, has tried to debug this rank"
                )
            headers[name.lower()] = value.strip()
        size = headers.get(b"content-length", b"")
        if not size.isdigit() or not 0 < int(size) <= _LARGEST_MESSAGE:
            raise ConnectionRefusedError(
                f"it announced a message of {ascii(size)[1:]} bytes, not of 1 to {_LARGEST_MESSAGE}"
            )
        message = self._file.read(int(size)) or b""  # None: it has said nothing for too long
        return message if len(message) == int(size) else b""

    def request(self, command: str) -> dict[str, Any]:
        """Return the next message, which must be this request.

        Raises:
            ConnectionError: It is another one, or there is none.
        """
        message = self.read()
        if not message:
            raise ConnectionResetError(f"it has left before `{command}`")
        try:
            found = json.loads(message)
            said = found["type"], found["command"]
        except (ValueError, RecursionError, LookupError, TypeError):
            said = None
        if said != ("request", command):
            raise ConnectionRefusedError(
                f"its message is no `{command}`, but {ascii(message[:60])[1:]}"
            )
        asked: dict[str, Any] = found
        return asked


class _Relay:
    """Between an editor and the debugger of a rank."""

    def __init__(
        self, hub: Hub, proc: ProcAddress, editor: socket.socket, tell: Callable[[str], None]
    ) -> None:
        self._why = ""
        self._hub = hub
        self._proc = proc
        self._editor = editor
        self._tell = tell
        self._session = random_uid()
        # what the editor is sent; empty bytes as the last
        self._said: SimpleQueue[bytes] = SimpleQueue()
        self._over = threading.Event()
        limit(editor, socket.SO_SNDTIMEO, _READS_WITHIN)

    def run(self, messages: _Messages, first: dict[str, Any], token: str) -> None:
        """Until one side ends.

        Args:
            messages: What the editor says next.
            first: What it has said.
            token: What it must say, to be attached.

        Raises:
            ConnectionError: It has not said it.
        """
        writer = threading.Thread(target=self._write, name="monarch-dap-writer", daemon=True)
        writer.start()
        editor = f"an editor, {getpass.getuser()}@{socket.gethostname()} (pid {os.getpid()})"
        send_record(self._hub, self._proc, Attach(self._session, editor), self)
        try:
            self._pass_on(json.dumps(first).encode())
            self._pass_on(self._admitted(messages.request("attach"), token))
            limit(self._editor, socket.SO_RCVTIMEO, 0)
            self._tell("an editor is attached")
            self._pass_all_on(messages)
            self._hang_up()  # which ends a write, too
        except ConnectionError:
            if self._why:  # this side was hung up by the rank's
                raise ConnectionAbortedError(self._why) from None
            raise
        finally:
            send_record(self._hub, self._proc, Detach(self._session))
            self._over.wait(_ENDED_WITHIN)
            self._said.put(b"")
            writer.join()
        self._tell("the editor has left" + (f": {self._why}" if self._why else ""))

    def _admitted(self, attach: dict[str, Any], token: str) -> bytes:
        """Return the request to attach, without the token."""
        arguments = attach.get("arguments")
        said = arguments.pop(_TOKEN, "") if isinstance(arguments, dict) else ""
        if not hmac.compare_digest(str(said).encode(errors="replace"), token.encode()):
            why = f"`attach` needs the `{_TOKEN}` that was told with the port, for launch.json"
            answer = {"seq": 0, "type": "response", "request_seq": attach.get("seq")}
            refused = {**answer, "command": "attach", "success": False, "message": why}
            self._said.put(framed(json.dumps(refused).encode()))
            raise ConnectionRefusedError(why)
        return json.dumps(attach).encode()

    def _pass_all_on(self, messages: _Messages) -> None:
        try:
            while message := messages.read():
                self._pass_on(message)
        except ConnectionRefusedError as error:
            self._why = str(error)
        except OSError:
            pass  # it has left

    def _pass_on(self, message: bytes) -> None:
        send_record(self._hub, self._proc, Said(self._session, framed(message)))

    def _write(self) -> None:
        with suppress(OSError):  # it has left
            while data := self._said.get():
                self._editor.sendall(data)
        self._hang_up()

    def _hang_up(self) -> None:
        with suppress(OSError):  # it has done so
            self._editor.shutdown(socket.SHUT_RDWR)

    # on the I/O thread, which never waits for the editor

    def reply(self, frame: Any) -> bool:
        why = refusal(frame)
        if why is not None:
            return self._ended(why)
        data = pickling.loads(frame.payload, frame.buffers)
        if not data:
            return self._ended("")
        self._said.put(data)
        return False

    def peer_failed(self, address: ProcAddress, failure: Failure) -> bool:
        return address == self._proc and self._ended(failure.reason)

    def _ended(self, why: str) -> bool:
        self._why = why
        self._over.set()
        self._said.put(b"")
        return True
