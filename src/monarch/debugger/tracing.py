"""Tracing of threads, by `sys.settrace`, while something wants it.

That is a session that steps, a breakpoint, or an interrupt.

One function traces all threads. It asks, at each event, which session the running thread or task
has; so several tasks of one event loop may be stepped through at a time. A thread that nothing
wants to stop any more turns its own tracing off at the next event.

The code of the engine is never stopped in: it may hold a lock, or a connection that others wait
for.
"""

from __future__ import annotations

import bdb
import ctypes
import os
import sys
import threading
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from .._core.plane import running_loop

if TYPE_CHECKING:
    from .session import DebugSession

SKIPPED = (
    "monarch._core.*", "monarch.actor.*", "monarch.debugger.*", "asyncio.*", "selectors",
    "threading", "concurrent.futures.*", "bdb", "pdb",
)  # fmt: skip
"""Modules without stops, as `bdb` writes them."""

_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_ENGINE = tuple(os.path.join(_OWN, name, "") for name in ("_core", "actor", "debugger"))
_PACKAGES = tuple(name.removesuffix("*") for name in SKIPPED)

Activity = tuple[int, Any]  # a thread, and the task of its event loop that runs, if any does

sessions: dict[Activity, DebugSession] = {}
# gives the session of the running activity, a new one if it has none; set by `debuggee`
begin: Any = None
interrupts: dict[int, str] = {}  # threads that are to stop at their next line, and why
never: set[int] = set()  # threads that may not stop: that which carries all messages


def activity() -> Activity:
    """Return the running activity of this thread."""
    task = None
    if running_loop() is not None:
        task = sys.modules["asyncio"].current_task()
    return threading.get_ident(), task


def of_engine(frame: FrameType) -> bool:
    """Return whether a frame runs code of the engine."""
    return frame.f_code.co_filename.startswith(_ENGINE)


def needed(thread: int) -> bool:
    """Return whether a thread may be stopped by something."""
    if thread in never:
        return False
    if thread in interrupts or bdb.Breakpoint.bplist:
        return True
    return any(session.steps and at == thread for (at, _), session in sessions.copy().items())


def trace(frame: FrameType, event: str, arg: Any) -> Any:
    """The trace function of every thread that is traced."""
    if of_engine(frame):
        if not needed(threading.get_ident()):
            sys.settrace(None)
        return None
    thread = threading.get_ident()
    if thread in interrupts and event in ("line", "call") and not _is_skipped(frame):
        why = interrupts.pop(thread)
        begin().stop(frame, why)
        return trace
    session = sessions.get(activity())
    debugger: bdb.Bdb = watcher
    if session is not None:
        debugger = session
        if event == "return" and frame is session.botframe:
            session.reached_end()
    elif not needed(thread):
        sys.settrace(None)
        return None
    try:
        local = debugger.trace_dispatch(frame, event, arg)
    except bdb.BdbQuit:
        if session is None or not session.quitting:
            raise
        raise session.quit_error() from None
    return trace if local is not None else None


class Paused:
    """Suspend tracing in this thread while code of the debugger runs.

    Afterwards the earlier trace function is back, or the one that is wanted now: a tool that
    measures coverage has one, too.
    """

    def __enter__(self) -> None:
        self._before = sys.gettrace()
        sys.settrace(None)

    def __exit__(self, *_: object) -> None:
        if sys.gettrace() is None:
            before = None if self._before is trace else self._before
            sys.settrace(trace if needed(threading.get_ident()) else before)


class _Watcher(bdb.Bdb):
    """Stops threads without a session at breakpoints."""

    def __init__(self) -> None:
        super().__init__(skip=SKIPPED)
        self.reset()
        # any but a frame: there is none that it stops in
        self.botframe = self  # type: ignore[assignment]
        self.stopframe = self  # type: ignore[assignment]
        self.stoplineno = -1
        self.quitting = False

    def user_line(self, frame: FrameType) -> None:
        begin().stop(frame, "a breakpoint")

    def dispatch_exception(self, frame: FrameType, arg: Any) -> Any:
        return self.trace_dispatch


watcher = _Watcher()


def attend(frame: FrameType) -> FrameType:
    """Have the frames of the program traced from here down to where the engine has called it."""
    bottom = frame
    for each in _frames(frame):
        each.f_trace = trace
        bottom = each
    return bottom


def own_traceback(error: BaseException) -> TracebackType | None:
    """The traceback without the frames of the engine that have called the program."""
    found = error.__traceback__
    while found is not None and of_engine(found.tb_frame):
        found = found.tb_next
    return found


def own_frames(frame: FrameType | None) -> list[FrameType]:
    """The frames of the program that lead to one, and it.

    Those that the engine runs for it are included. The innermost is last.
    """
    while frame is not None and of_engine(frame):
        frame = frame.f_back
    return list(_frames(frame))[::-1]


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None and not of_engine(frame):
        yield frame
        frame = frame.f_back


def _is_skipped(frame: FrameType) -> bool:
    return (frame.f_globals.get("__name__") or "").startswith(_PACKAGES)


# tracing of other threads


def trace_thread(thread: int) -> None:
    """Have a running thread traced, from its next line on. Does nothing if it has ended."""
    frame = sys._current_frames().get(thread)
    while frame is not None:
        if not of_engine(frame):
            frame.f_trace = trace
        frame = frame.f_back
    if sys.version_info >= (3, 12):
        sys._settraceallthreads(trace)  # a thread that nothing wants to stop turns it off again
    else:
        _set_trace_of(thread)


def trace_all_threads() -> None:
    """Have every thread traced but the calling one, and each that starts from now on."""
    threading.settrace(trace)
    for thread in sys._current_frames().keys() - never - {threading.get_ident()}:
        trace_thread(thread)


_Function: Any = ctypes.PYFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.py_object, ctypes.c_int, ctypes.c_void_p
)


def _arrive(_object: Any, frame: FrameType, _event: int, _argument: Any) -> int:
    """Run in a thread after another one has turned its tracing on, in C.

    From here on, it is as in any other thread.
    """
    sys.settrace(trace)
    return 0


_arrive_in_c = _Function(_arrive)


def _set_trace_of(thread: int) -> None:
    """Call `sys.settrace` for another thread. Before Python 3.12 only C code offers that."""
    api = ctypes.pythonapi
    api.PyThreadState_Get.restype = ctypes.c_void_p
    api.PyThreadState_Next.restype = ctypes.c_void_p
    api.PyThreadState_Next.argtypes = [ctypes.c_void_p]
    api.PyInterpreterState_ThreadHead.restype = ctypes.c_void_p
    api.PyInterpreterState_ThreadHead.argtypes = [ctypes.c_void_p]
    api.PyInterpreterState_Get.restype = ctypes.c_void_p
    set_trace = api._PyEval_SetTrace
    set_trace.argtypes = [ctypes.c_void_p, _Function, ctypes.c_void_p]
    offset = _offset_of_thread_id(api.PyThreadState_Get())
    state = api.PyInterpreterState_ThreadHead(api.PyInterpreterState_Get())
    while state:
        if ctypes.c_ulong.from_address(state + offset).value == thread:
            set_trace(state, _arrive_in_c, None)
            return
        state = api.PyThreadState_Next(state)


def _offset_of_thread_id(own: int) -> int:
    """The offset of the thread id in a thread state.

    That differs between versions of Python; it is found by the known id of this thread.
    """
    size = ctypes.sizeof(ctypes.c_ulong)
    ident = threading.get_ident()
    for offset in range(0, 512, size):
        if ctypes.c_ulong.from_address(own + offset).value == ident:
            return offset
    raise RuntimeError(
        "this Python does not show which thread is which, so a running actor can't be stopped"
    )
