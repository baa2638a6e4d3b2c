"""An interactive shell on a host.

It runs there at a pseudo-terminal, as the leader of a session with that terminal. An actor
holds the other side; this program asks it for output, and sends it the typed input. So
what a slow terminal has not shown yet stays there, and waits.

What ends the wait for output: the end of the shell; the end of its proc or its host. What ends the
shell: itself; the end of the actor, with this program, which hangs up, and kills what does not
care. Should the proc be killed, the kernel hangs up.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, NamedTuple

from .. import actor

_MOST = 1 << 16  # bytes that are read at once
_GRACE = 1.0  # seconds from SIGHUP to SIGTERM, and to SIGKILL

_RESIZED, _TAKEN = b"r", b"t"

# A session's leader that opens a terminal gets it as its own: so nothing of ours has to run between
# fork and exec.
_AT_TERMINAL = 'exec <>"$1" >&0 2>&0; exec "$0" -i'


class Size(NamedTuple):
    """The size of a terminal, in characters."""

    columns: int
    lines: int


def shell(
    host_mesh: actor.HostMesh, env: Mapping[str, str] | None = None, workdir: str | None = None
) -> int:
    """Open an interactive shell, ``$SHELL``, on a host, at the terminal of this program.

    It returns when the shell has ended.

    Where stdin is no terminal, the shell has none either: it reads commands from this program's
    standard input.

    Args:
        host_mesh: One host.
        env: Variables for the shell, beside those of the host.
        workdir: Its working directory; by default that of this program where the host has it.

    Returns:
        Its exit status; 128 + the signal if one has ended it.

    Raises:
        ValueError: The mesh has several hosts.
        OSError: The shell can't be started.
        SupervisionError: The host is gone.
    """
    if len(host_mesh) != 1:
        raise ValueError(
            f"shell requires a singleton HostMesh; slice the mesh to one host first: {host_mesh!r}"
        )
    size = _size()
    variables = {"TERM": os.environ.get("TERM", "dumb"), **(env or {})}
    owner: Any = actor.this_proc().spawn("shell", _ShellOwner)
    try:
        remote = owner.open.call_one(host_mesh, variables, workdir, os.getcwd(), size).get()
        with _typing(remote, at_terminal=size is not None):
            while data := remote.read.call_one().get():
                _write(1, data)
            status: int = remote.wait.call_one().get()
            return status
    except actor.ActorError as error:  # it can't be started: no trace of ours is of use
        raise error.exception from None
    finally:
        owner.stop("the shell has ended").get()


class _ShellOwner(actor.Actor):
    """Owns the proc on the host, in the client."""

    def __supervise__(self, failure: actor.MeshFailure) -> bool:
        return True  # its reads end with this error

    @actor.endpoint
    async def open(self, host_mesh: actor.HostMesh, *args: Any) -> Any:
        """Start the shell."""
        remote: Any = host_mesh.spawn_procs(name="shell").spawn("shell", _Shell, *args)
        try:
            await remote.start.call()
        except actor.ActorError as error:
            raise error.exception from None
        return remote


class _Shell(actor.Actor):
    """Runs the shell, on the host. Args as of `shell`.

    Args:
        client_folder: Working directory of the client.
        size: Of its terminal; None if it has none.
    """

    def __init__(
        self, env: Mapping[str, str], workdir: str | None, client_folder: str, size: Size | None
    ) -> None:
        self._env = {**os.environ, **env}
        self._folder = workdir or (client_folder if os.path.isdir(client_folder) else None)
        self._size = size
        self._process: subprocess.Popen[bytes] | None = None
        self._output = self._input = self._ended = -1

    @actor.endpoint
    async def start(self) -> None:
        """Start it."""
        program = self._env.get("SHELL") or "/bin/sh"
        process = (
            self._at_pipes(program)
            if self._size is None
            else self._at_terminal(program, self._size)
        )
        self._process = process
        self._ended = os.pidfd_open(process.pid)
        # it takes what it has room for: what the shell has started may hold it, and read nothing
        os.set_blocking(self._input, False)

    def _at_terminal(self, program: str, size: Size) -> subprocess.Popen[bytes]:
        ours, theirs = os.openpty()
        try:
            _resize(ours, size)
            command = ["/bin/sh", "-c", _AT_TERMINAL, program, os.ttyname(theirs)]
            process = subprocess.Popen(
                command, env=self._env, cwd=self._folder, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs,
            )  # fmt: skip
        finally:
            os.close(theirs)
        self._output = self._input = ours
        return process

    def _at_pipes(self, program: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [program], env=self._env, cwd=self._folder,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        assert process.stdin is not None and process.stdout is not None
        self._output, self._input = os.dup(process.stdout.fileno()), os.dup(process.stdin.fileno())
        process.stdin.close()
        process.stdout.close()
        return process

    @actor.concurrent_endpoint
    async def read(self) -> bytes:
        """Return the shell's output, as soon as there is some; nothing once it has ended."""
        import asyncio  # is there already, in an async actor

        return await asyncio.to_thread(self._read)

    def _read(self) -> bytes:
        _ready({self._output: select.POLLIN, self._ended: select.POLLIN})
        # a poll that sees the end may have missed output written just before it, so poll once more
        if _ready({self._output: select.POLLIN}, 0):
            with suppress(OSError):  # a terminal gives EIO, not end-of-file
                return os.read(self._output, _MOST)
        return b""  # what it has started may go on, and hold the pipe

    @actor.concurrent_endpoint
    async def write(self, data: bytes) -> None:
        """Write input to the shell; nothing is the end of it, and at a terminal its hanging up.

        Answers once it is taken: until then its sender has no more, and output is read meanwhile,
        for which the shell may wait before it takes anything.
        """
        import asyncio

        assert self._process is not None
        with suppress(OSError):  # it has ended
            if data:
                await asyncio.to_thread(self._type, data)
            elif self._size is None:
                os.close(self._input)
            else:
                os.killpg(self._process.pid, signal.SIGHUP)

    def _type(self, data: bytes) -> None:
        while data and self._ended not in _ready(
            {self._input: select.POLLOUT, self._ended: select.POLLIN}
        ):
            data = data[os.write(self._input, data) :]

    @actor.concurrent_endpoint
    async def resize(self, size: Size) -> None:
        """The terminal of the client has another size."""
        _resize(self._output, size)

    @actor.concurrent_endpoint
    async def wait(self) -> int:
        """Wait for its exit status."""
        import asyncio

        assert self._process is not None
        status = await asyncio.to_thread(self._process.wait)
        return status if status >= 0 else 128 - status

    async def __cleanup__(self, exc: Exception | None) -> None:
        import asyncio

        process = self._process
        if process is None or process.poll() is not None:
            return
        for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                (os.killpg if self._size is not None else os.kill)(process.pid, number)
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(asyncio.to_thread(process.wait), _GRACE)
                return


@contextmanager
def _typing(remote: Any, at_terminal: bool) -> Iterator[None]:
    """Send stdin, and each new size of the terminal, on a thread.

    When the shell has ended, the thread takes no more of stdin.
    """
    # no pipe: a late message, after the end of this, goes nowhere
    told, ours = socket.socketpair()
    ours.setblocking(False)

    def tell(what: bytes) -> None:
        with suppress(OSError):  # it is full, as the earlier ones were not read yet; or closed
            ours.send(what)

    def pass_on() -> None:
        poll = select.poll()
        for fd in (0, told.fileno()):
            poll.register(fd, select.POLLIN)
        sent: actor.Future[None] | None = (
            # which the shell has not taken; a wait for it would see neither a new size nor the end
            None
        )
        while True:
            ready = {fd for fd, _ in poll.poll()}
            with suppress(actor.SupervisionError):  # which the reader is told
                if told.fileno() in ready:
                    what = told.recv(_MOST)
                    if not what:
                        return
                    if sent is not None and sent.done():
                        sent = None
                        poll.register(0, select.POLLIN)
                    if _RESIZED in what and (size := _size()) is not None:
                        remote.resize.broadcast(size)
                if 0 in ready:
                    try:
                        data = os.read(0, _MOST)
                    except OSError:  # there is none, or its terminal has hung up
                        data = b""
                    poll.unregister(0)
                    taken = remote.write.call_one(data)
                    if data:
                        sent = taken
                        taken.add_done_callback(lambda _: tell(_TAKEN))

    thread = threading.Thread(target=pass_on, name="monarch-shell-input", daemon=True)
    thread.start()
    try:
        with _raw_terminal(tell) if at_terminal else nullcontext():
            yield
    finally:
        ours.close()
        thread.join()
        told.close()


@contextmanager
def _raw_terminal(tell: Callable[[bytes], None]) -> Iterator[None]:
    """Every key goes to the shell, Ctrl-C as well, and has no effect here.

    Each new size is sent.

    The handler of that signal does no more: it runs between any two steps of the main thread, which
    may hold a lock of ours.
    """
    import termios
    import tty

    main = threading.current_thread() is threading.main_thread()  # which alone may set handlers
    before = termios.tcgetattr(0)
    handler = signal.signal(signal.SIGWINCH, lambda *_: tell(_RESIZED)) if main else None
    tty.setraw(0)
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)
        if main:
            signal.signal(signal.SIGWINCH, handler)


def _ready(events: Mapping[int, int], timeout: float | None = None) -> set[int]:
    """Wait until one of some descriptors has one of its events.

    It returns those that have; none after `timeout` milliseconds.
    """
    poll = select.poll()
    for fd, wanted in events.items():
        poll.register(fd, wanted)
    return {fd for fd, _ in poll.poll(timeout)}


def _size() -> Size | None:
    """The size of the terminal here; None if there is none."""
    return Size(*os.get_terminal_size(0)) if sys.stdin is not None and os.isatty(0) else None


def _resize(fd: int, size: Size) -> None:
    import fcntl
    import termios

    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", size.lines, size.columns, 0, 0))


def _write(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]
