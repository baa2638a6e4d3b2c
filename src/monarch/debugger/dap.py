"""Debug ranks from an editor: the side of the terminal.

Each rank gets a port on this machine, relayed to its process.

The Debug Adapter Protocol is code execution, and a web page can have its user's browser connect. So
only processes of the same user may, and each message is read here, strictly, before the rank gets
it. `initialize` comes first, which is answered here, and then an `attach` with the token of the
port: until then the rank hears nothing. What ends a relay: the editor hangs up, or the rank's
process, or its debugger, ends; or the editor has not read what it was sent for `_READS_WITHIN`
seconds.
"""

from __future__ import annotations

import hmac
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Any

from .._core import plane
from .._listening import Refusals, limit
from .._ours import user_name
from .._rank_selector import RankSelector
from ..programs import Connection, procs_of
from .protocol import Attach, Detach, Said, framed

_TOKEN = "monarchToken"  # argument of `attach`, which editors take from their configuration
_HEADERS = frozenset({b"content-length", b"content-type"})
_LONGEST_HEADER = 256  # bytes
_LARGEST_MESSAGE = 1 << 24  # bytes
_SPEAKS_WITHIN = 30  # seconds of silence, until it has attached
_READS_WITHIN = 30  # seconds in which an editor takes what it is sent; one that does not has left
_AGAIN = 0.1  # seconds
_ENDED_WITHIN = 10.0  # seconds in which the debugger of a rank lets its threads go on, and ends
# as debugpy is
_ABLE = json.loads(Path(__file__).with_name("capabilities.json").read_text("utf-8"))


def find(
    connection: Connection, mesh: str, ranks: str, silent: Callable[[str, str], object]
) -> list[plane.HostedProc]:
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
        hub: plane.Hub,
        proc: plane.ProcAddress,
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
        """Refuse further connections."""
        # or a thread that waits for the next connection goes on waiting
        self._listener.shutdown(socket.SHUT_RDWR)
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
                plane.check_same_user(editor)
                limit(editor, socket.SO_RCVTIMEO, _SPEAKS_WITHIN)
                limit(editor, socket.SO_SNDTIMEO, _READS_WITHIN)
                messages = _Messages(file)
                first = messages.request("initialize")
                editor.sendall(_answer(first, body=_ABLE))
                attach = self._admitted(editor, messages.request("attach"))
                with self._turn:
                    relay = _Relay(self._hub, self._proc, editor, self._tell, first)
                    relay.run(messages, attach)
            except OSError as error:  # also that it has gone again
                if self._refused.next_is_told():
                    number = self._refused.count
                    count = f" ({number} so far)" if number > 1 else ""
                    self._tell(f"refused a connection: {error}{count}")

    def _admitted(self, editor: socket.socket, attach: dict[str, Any]) -> dict[str, Any]:
        """Return the request to attach, without the token."""
        arguments = attach.get("arguments")
        said = arguments.pop(_TOKEN, "") if isinstance(arguments, dict) else ""
        if not hmac.compare_digest(str(said).encode(errors="replace"), self._token.encode()):
            why = f"`attach` needs the `{_TOKEN}` that was told with the port, for launch.json"
            editor.sendall(_answer(attach, success=False, message=why))
            raise ConnectionRefusedError(why)
        return attach

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
            said = found["type"], found["command"], type(found["seq"])
        except (ValueError, RecursionError, LookupError, TypeError):
            said = None
        if said != ("request", command, int):
            raise ConnectionRefusedError(
                f"its message is no `{command}`, but {ascii(message[:60])[1:]}"
            )
        asked: dict[str, Any] = found
        return asked


def _answer(request: dict[str, Any], success: bool = True, **more: object) -> bytes:
    answer = {"seq": 0, "type": "response", "request_seq": request.get("seq"), "success": success}
    return _packed({**answer, "command": request["command"], **more})


def _packed(message: dict[str, Any]) -> bytes:
    return framed(json.dumps(message).encode())


class _Relay:
    """Between an editor and the debugger of a rank.

    Args:
        hub: From which the rank is reached.
        proc: Its process.
        editor: The connection to the editor.
        tell: Called with what happens, in words.
        first: The editor's `initialize`, which has been answered.
    """

    def __init__(
        self,
        hub: plane.Hub,
        proc: plane.ProcAddress,
        editor: socket.socket,
        tell: Callable[[str], None],
        first: dict[str, Any],
    ) -> None:
        self._why = ""
        self._hub = hub
        self._proc = proc
        self._editor = editor
        self._tell = tell
        self._first: dict[str, Any] | None = first  # None once the rank has answered it
        self._session = plane.random_uid()
        # what the editor is sent; empty bytes as the last
        self._said: SimpleQueue[bytes] = SimpleQueue()
        self._over = threading.Event()

    def run(self, messages: _Messages, attach: dict[str, Any]) -> None:
        """Until one side ends.

        Args:
            messages: What the editor says next.
            attach: Its `attach`, as the rank gets it.

        Raises:
            ConnectionError: The rank has no debugger for it.
        """
        writer = threading.Thread(target=self._write, name="monarch-dap-writer", daemon=True)
        writer.start()
        editor = f"an editor, {user_name()}@{socket.gethostname()} (pid {os.getpid()})"
        plane.send_record(self._hub, self._proc, Attach(self._session, editor), self)
        try:
            for request in (self._first, attach):
                self._pass_on(json.dumps(request).encode())
            limit(self._editor, socket.SO_RCVTIMEO, 0)
            self._pass_all_on(messages)
            self._hang_up()  # which ends a write, too
        finally:
            try:
                plane.send_record(self._hub, self._proc, Detach(self._session))
                self._over.wait(_ENDED_WITHIN)
            finally:  # also of a hub that has ended
                self._said.put(b"")
                writer.join()
        if self._first is not None and self._why:
            raise ConnectionAbortedError(self._why)
        self._tell("the editor has left" + (f": {self._why}" if self._why else ""))

    def _pass_all_on(self, messages: _Messages) -> None:
        try:
            while message := messages.read():
                self._pass_on(message)
        except ConnectionRefusedError as error:
            self._why = str(error)
        except OSError:
            pass  # it has left

    def _pass_on(self, message: bytes) -> None:
        plane.send_record(self._hub, self._proc, Said(self._session, framed(message)))

    def _write(self) -> None:
        held = b""
        with suppress(OSError):  # it has left
            while data := self._said.get():
                held += data
                while self._first is not None and (found := _split(held)):
                    message, held = found
                    self._editor.sendall(self._for_the_editor(message, self._first))
                if self._first is None:
                    self._editor.sendall(held)
                    held = b""
        self._hang_up()

    def _for_the_editor(self, message: bytes, first: dict[str, Any]) -> bytes:
        """Return a message of the rank; what it can do as news, as the editor has an answer."""
        said = json.loads(message)
        if (said["type"], said.get("request_seq")) != ("response", first["seq"]):
            return framed(message)
        self._first = None
        self._tell("an editor is attached")
        event = {"seq": 0, "type": "event", "event": "capabilities"}
        return _packed({**event, "body": {"capabilities": said.get("body", {})}})

    def _hang_up(self) -> None:
        with suppress(OSError):  # it has done so
            self._editor.shutdown(socket.SHUT_RDWR)

    # on the I/O thread, which never waits for the editor

    def reply(self, frame: Any) -> bool:
        why = plane.refusal(frame)
        if why is not None:
            return self._ended(why)
        data = plane.pickling.loads(frame.payload, frame.buffers)
        if not data:
            return self._ended("")
        self._said.put(data)
        return False

    def peer_failed(self, address: plane.ProcAddress, failure: plane.Failure) -> bool:
        return address == self._proc and self._ended(failure.reason)

    def _ended(self, why: str) -> bool:
        self._why = why
        self._over.set()
        self._said.put(b"")
        return True


def _split(data: bytes) -> tuple[bytes, bytes] | None:
    """The first message of what the debugger says, and what follows; None: more is to come."""
    header, end, rest = data.partition(b"\r\n\r\n")
    if not end:
        return None
    size = int(header.lower().partition(b"content-length:")[2].split()[0])
    return (rest[:size], rest[size:]) if len(rest) >= size else None
