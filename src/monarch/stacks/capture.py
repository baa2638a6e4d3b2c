"""The stacks of this process, on request.

Its I/O thread takes them, even while its other threads are busy, unless C code holds the GIL.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from types import FrameType
from typing import Any

from .._core.plane import ControlRequest, ControlService, ProcAddress, actors_of, handles
from .._namedtuple import NamedTuple
from .._patterns.activities import activities, blocked, other_waits
from .kernel import system_call, thread_time
from .model import Frame, Mailbox, ThreadStack, Wait

_MOST_THREADS = 500
_MOST_FRAMES = 200

_WAITING = "/monarch/_core/calls/"  # where code waits for futures
_NEAR = 6  # innermost frames


program = 0
"""The process id of the script that this process runs. A request for the stacks here gets those of
the script; 0 for none.
"""


class GetStacks(NamedTuple):
    """Ask for stacks.

    Host agent ──▶ its procs and the client. Answer: a `Capture`, without the thread that answers.
    It may never come: C code may hold the GIL.
    """


class Capture(NamedTuple):
    """The stacks of a process.

    Attributes:
        program: The process of a script that it runs, and that is to be looked at instead; 0 for
            none.
    """

    threads: tuple[ThreadStack, ...]
    mailboxes: tuple[Mailbox, ...]
    program: int = 0


@handles(GetStacks)
def _get_stacks(service: ControlService, request: ControlRequest, record: GetStacks) -> None:
    if program:
        request.answer(Capture((), (), program))
        return
    hub = service.hub
    known = {thread.ident: thread for thread in threading.enumerate()}
    running = activities(hub)
    by_thread = {each.thread: each for each in running if each.task is None}
    busy = {each.thread for each in running}
    waits = _Waits(hub.address, blocked(hub), running)
    found: list[ThreadStack] = []
    for number, frame in list(sys._current_frames().items())[:_MOST_THREADS]:
        if number != threading.get_ident():
            thread = known.get(number)
            name, native = (thread.name, thread.native_id or 0) if thread is not None else ("", 0)
            call = by_thread.get(number)
            is_main = name == "MainThread"
            stack = ThreadStack(name, _frames(frame), ran=thread_time(native) if native else -1)
            if call is not None:
                stack = _of_call(stack, call, waits)
            elif is_main:
                # who waits is not noted outside of actors, but stands where waits do
                wait = waits.outside if not running or _blocks(stack.frames) else None
                since, what = other_waits.get(number, (0.0, wait.waits_for if wait else ""))
                age = max(0.0, time.time() - since)
                owed = Wait(age, 0, ()) if since else waits.described(wait)
                stack = stack._replace(waits_for=what, wait=owed)
            inside = (
                system_call(native)
                if native and (number in busy or is_main) and stack.wait is None
                else ""
            )
            found.append(stack._replace(inside=inside))
    for call in running:
        frames = _suspended(call.task)
        if frames:
            loop = known.get(call.thread) if call.thread is not None else None
            ran = thread_time(loop.native_id or 0) if loop is not None else -1
            found.append(
                _of_call(ThreadStack(f"task of {call.actor}", frames, ran=ran), call, waits)
            )
    mailboxes = tuple(
        Mailbox(cell.record.name, cell.uid, len(cell.queued()), tuple(cell.pressure.paused))
        for cell in actors_of(hub)
    )
    request.answer(Capture(tuple(found), mailboxes))


class _Waits:
    """The waits of a process by actor.

    One with a time limit is noted without its actor: it belongs to the only possible one.
    """

    def __init__(self, here: ProcAddress, found: Sequence[Any], running: Sequence[Any]) -> None:
        self._here = here
        self._noted = {
            (each.actor.uid, each.task): each for each in found if each.actor is not None
        }
        others = [each for each in found if each.actor is None]
        self.outside = others[0] if len(others) == 1 else None
        self._only = len(running) == 1

    def of(self, call: Any, frames: Sequence[Frame]) -> Any:
        noted = self._noted.get((call.actor_id, call.task))
        if noted is None and self._only and _blocks(frames):
            return self.outside
        return noted

    def described(self, wait: Any) -> Wait | None:
        if wait is None or not wait.silent:
            return None
        age = max(0.0, time.time() - wait.since)
        call = f"{self._here} {wait.request}" if wait.request else ""
        return Wait(age, wait.uid, tuple(wait.silent), call)


def _blocks(frames: Sequence[Frame]) -> bool:
    return any(_WAITING in frame.file for frame in frames[:_NEAR])


def _of_call(stack: ThreadStack, call: Any, waits: _Waits) -> ThreadStack:
    wait = waits.of(call, stack.frames)
    return stack._replace(
        actor=call.actor,
        endpoint=call.endpoint,
        waits_for=call.waits_for or (wait.waits_for if wait is not None else ""),
        actor_id=call.actor_id,
        call=call.call,
        wait=waits.described(wait),
        handles=None if call.since is None else max(0.0, time.time() - call.since),
    )


def _frames(frame: FrameType | None) -> tuple[Frame, ...]:
    found: list[Frame] = []
    while frame is not None and len(found) < _MOST_FRAMES:
        found.append(_frame(frame))
        frame = frame.f_back
    return tuple(found)


def _frame(frame: FrameType) -> Frame:
    return Frame(frame.f_code.co_name, frame.f_code.co_filename, frame.f_lineno or 0)


def _suspended(task: Any) -> tuple[Frame, ...]:
    """The frames at which a task would go on: the coroutines that await each other.

    Nothing of one that runs, as its thread has that.
    """
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


HANDLERS = (_get_stacks,)
