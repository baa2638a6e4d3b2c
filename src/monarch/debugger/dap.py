"""Debug ranks from an editor: the side of the terminal.

Each rank gets a port on this machine, relayed to its process.

Only processes of the same user may connect: the Debug Adapter Protocol is code execution. What ends
a relay: the editor hangs up, or the rank's process, or its debugger, ends; or the editor has not
read what it was sent for `_READS_WITHIN` seconds.
"""

from __future__ import annotations

import getpass
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

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
from .._rank_selector import RankSelector
from ..programs import Connection, procs_of
from .protocol import Attach, Detach, Said

_LARGEST_READ = 1 << 16  # bytes
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

    Raises:
        OSError: The port is taken.
    """

    def __init__(self, hub: Hub, proc: ProcAddress, port: int, tell: Callable[[str], None]) -> None:
        self._hub = hub
        self._proc = proc
        self._tell = tell
        self._listener = socket.create_server(("127.0.0.1", port))
        self.address = "{}:{}".format(*self._listener.getsockname())
        threading.Thread(target=self._serve, name="monarch-dap", daemon=True).start()

    def close(self) -> None:
        """Let in nobody more."""
        self._listener.shutdown(socket.SHUT_RDWR)  # or who waits for the next one goes on waiting
        self._listener.close()

    def _serve(self) -> None:
        for editor in self._accepted():
            try:
                check_same_user(editor)
            except OSError as error:  # also that it has gone again
                self._tell(f"refused a connection: {error}")
                editor.close()
                continue
            self._tell("an editor is attached")
            relay = _Relay(self._hub, self._proc, editor)
            relay.run()
            self._tell(f"the editor has left{relay.why}")

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


class _Relay:
    """Between an editor and the debugger of a rank."""

    def __init__(self, hub: Hub, proc: ProcAddress, editor: socket.socket) -> None:
        self.why = ""
        self._hub = hub
        self._proc = proc
        self._editor = editor
        self._session = random_uid()
        # what the editor is sent; empty bytes as the last
        self._said: SimpleQueue[bytes] = SimpleQueue()
        self._over = threading.Event()
        editor.setsockopt(
            socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", _READS_WITHIN, 0)
        )

    def run(self) -> None:
        """Until one side ends."""
        writer = threading.Thread(target=self._write, name="monarch-dap-writer", daemon=True)
        writer.start()
        editor = f"an editor, {getpass.getuser()}@{socket.gethostname()} (pid {os.getpid()})"
        send_record(self._hub, self._proc, Attach(self._session, editor), self)
        with self._editor:
            with suppress(OSError):
                while data := self._editor.recv(_LARGEST_READ):
                    send_record(self._hub, self._proc, Said(self._session, data))
            self._hang_up()  # which ends a write, too
            send_record(self._hub, self._proc, Detach(self._session))
            self._over.wait(_ENDED_WITHIN)  # one session at a time
            self._said.put(b"")
            writer.join()

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
        self.why = f": {why}" if why else ""
        self._over.set()
        self._said.put(b"")
        return True
