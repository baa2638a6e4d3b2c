"""Debug a rank from an editor: the side of the proc.

The server of the Debug Adapter Protocol there is `debugpy`'s debugger.

That wants a socket to its editor. It gets one end of a pair; what it says there goes to the
terminal as answers to `Attach`, and what the editor says comes as `Said`. So nothing listens here.
The I/O thread is hidden from the debugger, or a breakpoint would stop it as well, and with it the
way to the editor. An actor that it stops is in the debugger as one that has called ``breakpoint()``
is: the root client follows it. While an editor is attached, ``breakpoint()`` stops there.

What ends a session: `Detach`, the end of the terminal, or of the debugger. Then the threads go on,
and nothing is traced any more.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from types import FrameType
from typing import Any

from .._core import plane
from ..actor import context
from . import tracing
from .debuggee import opened
from .protocol import PROMPT, RUNNING, Attach, Detach, Said, Who, framed
from .session import Followed, place_of

_LARGEST_READ = 1 << 16  # bytes
_RESUMED_WITHIN = 2.0  # seconds in which the debugger lets its threads go on
# no warning that the standard library is frozen, in the output of the rank
_QUIET = "PYDEVD_DISABLE_FILE_VALIDATION"
_LAST = 1 << 30  # number of our own request to it
_GOODBYE = {
    "seq": _LAST,
    "type": "request",
    "command": "disconnect",
    "arguments": {"terminateDebuggee": False},
}


class _Session:
    """The debugger of this process, as long as an editor is attached."""

    def __init__(self, request: plane.ControlRequest, number: int, editor: str) -> None:
        self.number = number
        self._editor = editor
        self.peer: plane.ProcAddress = request.peer
        self._request = request
        self._ours, self._theirs = socket.socketpair()
        self._said: SimpleQueue[bytes | None] = SimpleQueue()
        self._goes_on = threading.Event()

    def start(self) -> None:
        for function in (self._serve, self._pass_on):
            thread = threading.Thread(target=function, name="monarch-dap", daemon=True)
            _hide(thread)
            thread.start()

    def said(self, data: bytes | None) -> None:
        """The message of the editor; None when it has left.

        On the I/O thread, which never waits for the debugger.
        """
        self._said.put(data)

    def _pass_on(self) -> None:
        with suppress(OSError):  # the debugger has ended
            while (data := self._said.get()) is not None:
                self._ours.sendall(data)
            self._ours.sendall(framed(json.dumps(_GOODBYE).encode()))
            self._goes_on.wait(_RESUMED_WITHIN)
        with suppress(OSError):
            self._ours.shutdown(socket.SHUT_RDWR)

    def _serve(self) -> None:
        """Start the debugger, and pass on what it says."""
        try:
            pydevd = _start(self._theirs)
            stops, debugger = sys.breakpointhook, _debugger()
            try:
                sys.breakpointhook = functools.partial(_stop, pydevd)
                debugger.do_wait_suspend = functools.partial(
                    _suspend, debugger.do_wait_suspend, self._editor
                )
                while data := self._ours.recv(_LARGEST_READ):
                    self._request.answer(data)
                    if str(_LAST).encode() in data:
                        self._goes_on.set()
            finally:
                sys.breakpointhook = stops
                vars(debugger).pop("do_wait_suspend", None)
                _end(pydevd)
        except ImportError as error:
            text = (
                f"an editor needs debugpy in the actor's process, which can't import it: {error}"
                " (pip install 'pymonarch[debug]')"
            )
            self._request.fail(ImportError(text))
        except BaseException as error:
            self._request.fail(error)
        else:
            self._request.answer(b"")
        finally:
            self.said(None)
            self._ours.close()
            _over(self)


class _Stopped(Followed):
    """An actor that an editor has stopped.

    This lasts until the editor detaches, or the message at which the actor stopped is handled.
    """

    def __init__(
        self, number: int, who: Who, owner: plane.Owner, aside: bool, closed: Callable[[], object]
    ) -> None:
        super().__init__(number, closed)
        self._aside = aside

    def wait(self, frames: Sequence[FrameType]) -> None:
        """Note that the call waits from here on."""
        self._say(
            (PROMPT, "", place_of("in an editor", [(frame, frame.f_lineno) for frame in frames]))
        )

    def go_on(self) -> None:
        """Note that it waits no longer."""
        if not self.ended:
            self._say((RUNNING, "", None))
        if self._aside:
            self.end("its thread goes on")


_stopped: dict[tracing.Activity, _Stopped] = {}
_running: _Session | None = None
_watched: set[plane.Hub] = set()  # of which the end of terminals is told
_lock = threading.Lock()


def _over(session: _Session) -> None:
    global _running
    with _lock:
        if _running is session:
            _running = None


def _start(end: socket.socket) -> Any:
    """Have the debugger look at this process, over a socket that is connected already."""
    before, stops = os.environ.get(_QUIET), sys.breakpointhook
    os.environ[_QUIET] = "1"
    try:
        # finds its own copy of pydevd, and has that speak the protocol
        importlib.import_module("debugpy.server")
        pydevd: Any = importlib.import_module("pydevd")
    finally:
        sys.breakpointhook = stops  # which it has taken for good
        del os.environ[_QUIET]
        if before is not None:
            os.environ[_QUIET] = before
    connect = pydevd.start_client
    pydevd.start_client = lambda host, port: end
    try:
        pydevd.settrace(
            host="127.0.0.1", port=0, suspend=False, wait_for_ready_to_run=False, notify_stdin=False
        )
    finally:
        pydevd.start_client = connect
    # it ends itself where all threads are daemons, as those of actors are
    _debugger().has_user_threads_alive = lambda: True
    return pydevd


def _debugger() -> Any:
    return importlib.import_module("_pydevd_bundle.pydevd_constants").get_global_debugger()


def _stop(pydevd: Any, *args: object, **kwargs: object) -> None:
    """``breakpoint()`` was called."""
    pydevd.settrace(
        suspend=True,
        trace_only_current_thread=True,
        patch_multiprocessing=False,
        stop_at_frame=sys._getframe(1),
    )


def _suspend(
    wait: Callable[..., Any],
    editor: str,
    thread: threading.Thread,
    frame: FrameType,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Have this thread wait for the editor, and tell of its actor meanwhile."""
    frames = tracing.own_frames(frame)
    stopped = None
    if frames and any(actor is context()._cell for actor in plane.actors_of(plane.current_hub())):
        stopped = opened(_Stopped, _stopped, editor)
        stopped.wait(frames)
    try:
        return wait(thread, frame, *args, **kwargs)
    finally:
        if stopped is not None:
            stopped.go_on()


def _end(pydevd: Any) -> None:
    """Trace nothing any more: the debugger stops listening, but would leave each thread slow."""
    pydevd.stoptrace()
    for stopped in list(_stopped.values()):
        stopped.end("the editor has left")
    if not importlib.import_module("_pydevd_bundle.pydevd_constants").PYDEVD_USE_SYS_MONITORING:
        importlib.import_module("pydevd_tracing").set_trace_to_threads(_trace_no_more)


def _trace_no_more(frame: FrameType, event: str, arg: Any) -> None:
    """Called in each thread at its next call of a function."""
    sys.settrace(None)


def _hide(thread: threading.Thread) -> None:
    """Keep the debugger from tracing a thread, stopping it, and showing it."""
    vars(thread).update(pydev_do_not_trace=True, is_pydev_daemon_thread=True)


def take(hub: plane.Hub, request: plane.ControlRequest, record: Attach | Said | Detach) -> None:
    """Take a control record."""
    if isinstance(record, Attach):
        _attach(hub, request, record)
        return
    session = _running
    if session is not None and session.number == record.session:
        session.said(record.data if isinstance(record, Said) else None)


def _attach(hub: plane.Hub, request: plane.ControlRequest, record: Attach) -> None:
    global _running
    session = _Session(request, record.session, record.editor)
    with _lock:
        if _running is not None:
            raise RuntimeError(
                f"another editor is attached to this process, through {_running.peer}"
            )
        _running = session
    _hide(threading.current_thread())
    if hub not in _watched:
        _watched.add(hub)
        hub.inbound_lost_hooks.append(_terminal_lost)
    session.start()


def _terminal_lost(address: plane.ProcAddress) -> None:
    session = _running
    if session is not None and session.peer == address:
        session.said(None)
