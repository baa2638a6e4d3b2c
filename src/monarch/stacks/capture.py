"""The stacks of this process, on request: taken by its I/O thread, whatever its other threads do, unless C code holds the GIL."""

from __future__ import annotations

import sys
import threading
from types import FrameType
from typing import Any

from .._core.plane import ControlRequest, ControlService, activities, handles, register, waits
from .._namedtuple import NamedTuple
from .model import Frame, ThreadStack

_MOST_THREADS = 500
_MOST_FRAMES = 200


class GetStacks(NamedTuple):
    """What do your threads run? Host agent ──▶ its procs and the client. Answer: a tuple of `ThreadStack`, without the thread that
    answers. It may never come: C code may hold the GIL."""


@handles(GetStacks)
def _get_stacks(service: ControlService, request: ControlRequest, record: GetStacks) -> None:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    running = activities(service.hub)
    by_thread = {each.thread: each for each in running if each.task is None}
    awaited = waits()
    main = awaited[0] if len(awaited) == 1 and not running else ""  # who waits is not noted outside of actors
    found: list[ThreadStack] = []
    for number, frame in list(sys._current_frames().items())[:_MOST_THREADS]:
        if number != threading.get_ident():
            call = by_thread.get(number)
            name = names.get(number, "")
            if call is not None:
                found.append(ThreadStack(name, _frames(frame), call.actor, call.endpoint, call.waits_for))
            else:
                found.append(ThreadStack(name, _frames(frame), waits_for=main if name == "MainThread" else ""))
    for call in running:
        frames = _suspended(call.task)
        if frames:
            found.append(ThreadStack(f"task of {call.actor}", frames, call.actor, call.endpoint, call.waits_for))
    request.answer(tuple(found))


def _frames(frame: FrameType | None) -> tuple[Frame, ...]:
    found: list[Frame] = []
    while frame is not None and len(found) < _MOST_FRAMES:
        found.append(_frame(frame))
        frame = frame.f_back
    return tuple(found)


def _frame(frame: FrameType) -> Frame:
    return Frame(frame.f_code.co_name, frame.f_code.co_filename, frame.f_lineno or 0)


def _suspended(task: Any) -> tuple[Frame, ...]:
    """Where a task would go on: the coroutines that await each other. Nothing of one that runs, as its thread has that."""
    found: list[Frame] = []
    awaited = task.get_coro() if task is not None else None
    while awaited is not None and len(found) < _MOST_FRAMES:
        if getattr(awaited, "cr_running", False):
            return ()
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        if frame is not None:
            found.append(_frame(frame))
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
    return tuple(reversed(found))


register(_get_stacks)
