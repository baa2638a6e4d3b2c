"""The debugger inside a process that runs actors.

It stops them, and answers the root client and terminals.
"""

from __future__ import annotations

import bdb
import os
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

from .. import config
from .._core.plane import ControlRequest, Hub, current_hub, random_uid, send_record
from .._words import host_here
from ..actor import context
from . import breakpoints, protocol, tracing
from .session import CompletionRequest, DebugSession, Followed, Typed

T = TypeVar("T", bound=Followed)

_sessions: dict[int, Followed] = {}


def stop(frame: FrameType) -> None:
    """``breakpoint()`` was called there."""
    hub = current_hub()
    if threading.get_ident() == hub.poller.thread_id:
        raise RuntimeError(
            "breakpoint() on the thread that carries all messages of this process would stop"
            " them all"
        )
    with tracing.Paused():
        begin().stop(frame, "breakpoint()")


def keep(error: BaseException) -> None:
    """Keep an endpoint that raised where it is until a terminal has looked.

    This happens where `debug_on_error` is set.
    """
    hub = current_hub()
    # it was cancelled, or quit
    if not isinstance(error, Exception) or isinstance(error, bdb.BdbQuit):
        return
    if hub.address != hub.root and not getattr(error, "_monarch_looked_at", False):
        with tracing.Paused():
            session = begin()
            session.post_mortem(error, config.value("debug_on_error_timeout"))
            session.end("its error goes to the caller now")


def begin() -> DebugSession:
    """The session of what runs here; a new one if it has none."""
    return opened(DebugSession, tracing.sessions)


def opened(kind: Callable[..., T], known: dict[tracing.Activity, T], editor: str = "") -> T:
    """Return what stops the running activity, up to the end of the message that it handles.

    Args:
        kind: Its class.
        known: Those there are.
        editor: As of `Opened`.
    """
    activity = tracing.activity()
    session = known.get(activity)
    if session is not None:
        return session
    hub, here = current_hub(), context()
    instance, rank = here.actor_instance, here.actor_instance.rank
    mesh = getattr(instance.proc_mesh, "name", "")
    who = protocol.Who(
        instance.name, rank.rank, dict(rank), host_here(), os.getpid(), here._cell.uid, mesh
    )
    number = random_uid()

    def closed() -> None:
        known.pop(activity, None)
        _sessions.pop(number, None)

    aside = threading.get_ident() != here._cell.thread
    session = kind(number, who, here._cell, aside, closed)
    known[activity] = _sessions[number] = session
    send_record(hub, hub.root, protocol.Opened(number, who, protocol.StopPlace("", ()), editor))
    if not aside:
        _end_with_message(session, here, activity)
    return session


def _end_with_message(session: Followed, here: Any, activity: tracing.Activity) -> None:
    def handled(result: Any, error: BaseException | None) -> Any:
        with tracing.Paused():
            session.handled(error)
        return result

    here._when_handled(handled)
    if activity[1] is not None:
        activity[1].add_done_callback(lambda _: session.end("its task is done"))


tracing.begin = begin
tracing.never.add(current_hub().poller.thread_id or 0)


# what others ask, on the I/O thread


def take(hub: Hub, request: ControlRequest, record: Any) -> None:
    """Take a control record."""
    _TAKERS[type(record)](request, record)


def _follow(request: ControlRequest, record: protocol.Follow) -> None:
    session = _sessions.get(record.number)
    if session is not None:
        session.follow(request)
    else:
        request.fail(LookupError("that session has ended"))


def _type(request: ControlRequest, record: protocol.Type) -> None:
    session = _sessions.get(record.number)
    if isinstance(session, DebugSession):
        session.put(Typed(record.line))


def _watched(request: ControlRequest, record: protocol.TerminalAttached) -> None:
    session = _sessions.get(record.number)
    if isinstance(session, DebugSession):
        session.watch(record.watched)


def _complete(request: ControlRequest, record: protocol.Complete) -> None:
    session = _sessions.get(record.number)
    if isinstance(session, DebugSession):
        session.put(CompletionRequest(request, record.line, record.begin, record.end))
    else:
        request.answer([])


def _interrupt(request: ControlRequest, record: protocol.Interrupt) -> None:
    """Have actors stop at their next line. Code in C goes on until it returns."""
    found = []
    for actor in breakpoints.selected(record.name, record.ranks):
        thread = actor.thread
        if thread is not None:
            found.append((actor.instance.rank.rank, _where(thread)))
            tracing.interrupts[thread] = "interrupted"
            tracing.trace_thread(thread)
    request.answer(found)


def _where(thread: int) -> str:
    frame = sys._current_frames().get(thread)
    while frame is not None and (tracing.of_engine(frame) or tracing._is_skipped(frame)):
        frame = frame.f_back
    if frame is None:
        return "idle: it stops in its next endpoint"
    code = frame.f_code
    return f"in {code.co_name}() at {code.co_filename}:{frame.f_lineno}"


_TAKERS: dict[type, Callable[[ControlRequest, Any], None]] = {
    protocol.Follow: _follow,
    protocol.Type: _type,
    protocol.TerminalAttached: _watched,
    protocol.Complete: _complete,
    protocol.Interrupt: _interrupt,
    protocol.SetBreakpoint: breakpoints.set_breakpoint,
    protocol.ListBreakpoints: breakpoints.list_breakpoints,
    protocol.ClearBreakpoint: breakpoints.clear_breakpoint,
}
