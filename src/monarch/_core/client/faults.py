"""Unhandled failures: the client's hook, the report, the end of the program.

The exit status is certain: the main thread is interrupted by a signal wherever it waits
(`time.sleep`, a lock, an event loop), unwinds as from Ctrl-C, and a program that swallows that
still ends with the status of the fault. What bounds it: `fault_grace` after the fault the process
ends, even if the main thread still runs.

A session goes on, and is never interrupted: what runs when a fault is reported may be another cell,
or another test, or nothing. A wait then raises it, unless it is in another part than the one that
ran when it came, or the program has seen the failure as the answer to a call.
"""

from __future__ import annotations

import gc
import io
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any

from ... import config
from ..._namedtuple import NamedTuple
from ..._words import ranges, tame
from ...errors import SupervisionError
from ..calls import delivered_failures
from ..calls.promise import Promise
from ..calls.remote_error import with_lines
from ..calls.waiting import waited_for
from ..extension import fault_hook, in_every_proc, keep_report
from ..supervision.failure import HOST, WORKER_ENDED, MeshFailure
from . import session

Hook = Callable[[MeshFailure], object]

why_hosts_end: list[Callable[[], str]] = []
"""Asked before a program ends by the loss of a host, on a thread that may wait: a scheduler knows
more of that than the agent, which sees its parent gone. Each returns what it knows, or nothing.
"""
before_the_end: list[Callable[[], object]] = []
"""Called when a failure that ends the program has been reported, before its main thread is
interrupted; each bounds itself.
"""

_MOMENT = 0.1  # seconds without another fault, after which those that came are reported
_PATIENCE = 1.0  # seconds after which they are, though more keep coming
_OWN_END = 2.0  # seconds in which a program may end that has ended its workers
_LAST_STEPS = 5.0  # seconds that an end by force may take to be an orderly one
_ADVICE = "Catch it where the mesh was created: define __supervise__ there, or set {}."


def default_hook(failure: MeshFailure) -> None:
    """End the program with status 1.

    Args:
        failure: The failure that no owner handled.
    """
    sys.exit(1)


class _Fault(NamedTuple):
    """An unhandled failure, and the part of a session that ran when it came."""

    failure: MeshFailure
    part: object


class Faults:
    """Runs the hook for each fault, one at a time, on a thread of its own.

    Failures that the hook does not drop are reported together with others that come within a
    moment: when all ranks of a mesh die of the same cause, that is one report.

    Args:
        leave: Stops what the client started; called before the process is ended by force. Its
            argument: whether it may run exit functions, which take as long as they take.
    """

    def __init__(self, leave: Callable[[bool], None]) -> None:
        self._leave = leave
        self._queue: SimpleQueue[_Fault | Callable[[], object] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="monarch-faults", daemon=True)
        # with the client: when something fails, the system may have no thread to give
        self._thread.start()

    def put(self, failure: MeshFailure) -> None:
        self._queue.put(_Fault(failure, _part()))

    def settle(self, timeout: float) -> None:
        """Wait until the faults known so far have been handled."""
        if self._thread is not threading.current_thread():
            handled = threading.Event()
            self._queue.put(handled.set)
            handled.wait(timeout)

    def close(self) -> None:
        """End the thread, once it has handled what it has."""
        self._queue.put(None)

    def _run(self) -> None:
        while True:
            item = self._queue.get()
            fatal: list[_Fault] = []
            status = None
            end = time.monotonic() + _PATIENCE
            while isinstance(item, _Fault):
                verdict = self._ask_hook(item.failure)
                if verdict is not None:
                    fatal.append(item)
                    status = verdict if status is None else status
                item = self._next(end)
            if status is not None and not _ends_its_workers(fatal):
                _end_program(status, fatal, self._leave)
            if item is None:
                return
            item()

    def _next(self, end: float) -> _Fault | Callable[[], object] | None:
        """Return the next fault, or job; one that does nothing if neither comes within a moment."""
        try:
            return self._queue.get(timeout=max(0.0, min(_MOMENT, end - time.monotonic())))
        except Empty:
            return lambda: None

    def _ask_hook(self, failure: MeshFailure) -> int | None:
        """The status that the program is to end with; None if the hook dropped the fault."""
        try:
            hook = fault_hook()  # looked up each time: programs may replace it
            (default_hook if hook is None else hook)(failure)
            return None
        except SystemExit as leaving:
            return leaving.code if isinstance(leaving.code, int) else 1
        except Exception:
            import traceback

            _write(f"unhandled_fault_hook raised\n{traceback.format_exc()}")
        except BaseException:  # Ctrl-C, in a hook that knows no better way to end the program
            pass
        return 1


def _ends_its_workers(faults: Sequence[_Fault]) -> bool:
    """Return whether this program ends, and has ended its own workers on the way."""
    told = all(WORKER_ENDED in fault.failure.event.reason for fault in faults)
    return told and session.find() is None and ending.over.wait(_OWN_END)


class Ending:
    """The end of this program, once a fault was not handled.

    There is one per process: clients come and go.

    Attributes:
        status: What the process ends with; None while nothing ends it.
        over: Set when the script has ended.
    """

    def __init__(self) -> None:
        self.status: int | None = None
        self.over = threading.Event()
        # who has it ends the process, within bounds; `atexit` may call for the main thread again
        self._last = threading.RLock()
        self._told: list[tuple[Any, str]] = []
        self._excepthook: Any = None

    def begin(self, status: int, leave: Callable[[bool], None]) -> None:
        """Let the main thread unwind; the process ends within `fault_grace` in any case."""
        if self.status is not None:
            return
        self.status = status
        self._excepthook, sys.excepthook = sys.excepthook, self._uncaught
        interrupt_main_thread()
        force = partial(self._end_by_force, status, leave)
        try:
            threading.Thread(target=force, name="monarch-fault-grace", daemon=True).start()
        except RuntimeError:
            # the system has no thread to give, or the interpreter is past the point where it could
            # hang
            force()

    def tell(self, text: str) -> None:
        """Write a report, and keep it: a tool that captures stderr now may drop it."""
        self._told.append((sys.stderr, text))
        _write(text)

    def leave(self) -> None:
        """Have the main thread end the process in order; it waits here if it is ended by force."""
        self._last.acquire()

    def conclude(self) -> None:
        """The very end of the program: repeat reports that were captured, and set the exit status."""
        if self.status is None:
            return
        for stream, text in self._told:
            # pytest, for one, shows nothing of a run that was interrupted
            if stream is not sys.stderr:
                _write(text)
        sys._monarch_status = _LastAct(self.status)  # type: ignore[attr-defined]  # ours

    def conclude_child(self) -> None:
        """End a child of `multiprocessing` with the status of its fault, not by an interrupt."""
        if self.status is not None:
            raise SystemExit(self.status)

    def _uncaught(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        """The interrupt that ends the main thread is ours, and the fault has been reported."""
        if not issubclass(kind, KeyboardInterrupt):
            self._excepthook(kind, error, trace)
        # `conclude` sees to the status: a SystemExit from here would end the interpreter in the
        # midst of it, with files unwritten

    def _end_by_force(self, status: int, leave: Callable[[bool], None]) -> None:
        time.sleep(config.value("fault_grace"))
        if self._last.acquire(blocking=False):
            bounded = False
            # `leave` may wake the main thread: it waits for the timer, and does not end the
            # interpreter under this thread. Without a thread to give, it is left to this, and
            # `leave` to its bounds.
            sys._monarch_status = _LastAct(status)  # type: ignore[attr-defined]  # ours
            timer = threading.Timer(_LAST_STEPS, os._exit, (status,))
            timer.daemon = False
            with suppress(RuntimeError):
                timer.start()
                bounded = True
            with suppress(BaseException):
                leave(bounded)
            for stream in (sys.stdout, sys.stderr):
                with suppress(OSError, ValueError, AttributeError):
                    stream.flush()
            _LastAct(status).__del__()


class _LastAct:
    """Writes files and ends the process when the interpreter has done all else: nothing before that
    can, once the script is over. `sys` goes last, and modules are empty by then, so all that this
    needs is among its arguments.
    """

    def __init__(self, status: int) -> None:
        self._status = status

    def __del__(
        self,
        find: Callable[[], list[object]] = gc.get_objects,
        kinds: tuple[type, ...] = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom),
        leave: Callable[[int], object] = os._exit,
    ) -> None:
        for kind in kinds:  # in the order in which their data flows
            for file in find():
                if type(file) is kind:
                    try:
                        file.flush()  # type: ignore[attr-defined]  # a file
                    except BaseException:  # closed, read-only, or broken
                        continue
        leave(self._status)


ending = Ending()


def _part() -> object:
    """Return the part of a session that runs; None between parts, and without a session."""
    going_on = session.find()
    return None if going_on is None else going_on.part(waited_for)


def _end_program(status: int, faults: Sequence[_Fault], leave: Callable[[bool], None]) -> None:
    failures = [fault.failure for fault in faults]
    hook = ".".join([*in_every_proc[:1], "unhandled_fault_hook"])  # where programs find it
    reports = "\n".join([*map(_report, merge(failures)), _ADVICE.format(hook), ""])
    text = tame(_of_hosts(failures, reports), True)
    keep_report(text)
    going_on = session.find()
    if going_on is not None:
        with suppress(OSError, ValueError, AttributeError):
            going_on.report(failures, text)
        here = [
            fault.failure for fault in faults if fault.part is not None and fault.part == _part()
        ]
        news = [failure for failure in here if not delivered_failures.knows(failure.event)]
        for future in list(waited_for) if news else []:
            why = (
                "this wait was given up, as a failure that came meanwhile was not"
                f" handled:\n{news[0].report()}"
            )
            Promise.of(future).give_up(SupervisionError(why, failure=news[0]))
    else:
        ending.tell(text)
        for act in before_the_end:
            with suppress(Exception):
                act()
        ending.begin(status, leave)


def interrupt_main_thread() -> None:
    """Interrupt the main thread as Ctrl-C does, unless it is past the program's last line."""
    main = threading.main_thread()
    if main.is_alive() and main.ident is not None and callable(signal.getsignal(signal.SIGINT)):
        signal.pthread_kill(main.ident, signal.SIGINT)


def merge(failures: Sequence[MeshFailure]) -> list[list[MeshFailure]]:
    """Together what befell several ranks of one mesh for the same reason."""
    groups: dict[tuple[object, ...], list[MeshFailure]] = {}
    for failure in failures:
        event = failure.event
        groups.setdefault((event.mesh_uid, event.mesh, event.cause, event.reason), []).append(
            failure
        )
    return list(groups.values())


def _report(same: Sequence[MeshFailure]) -> str:
    now = time.strftime("%Y-%m-%d %H:%M:%S")
    where = f"hostname={socket.gethostname()}, PID={os.getpid()} at time {now}"
    lines = [f"Unhandled monarch error on the root actor, {where}:", with_lines(same[0].report())]
    if len(same) > 1:
        ranks = ranges(rank for failure in same for rank in failure.ranks)
        lines.append(f"{len(same)} ranks of {same[0].mesh_name} failed for this reason: {ranks}")
    return "\n".join(lines)


def _of_hosts(failures: Sequence[MeshFailure], text: str) -> str:
    """Return the report with the reasons for which hosts have ended, by the process that started
    them.
    """
    asked = why_hosts_end if any(each.event.cause == HOST for each in failures) else ()
    for ask in asked:
        with suppress(Exception):  # the failure is told all the same
            if told := ask():
                known = re.sub(rf"process \d+, {WORKER_ENDED}", told.replace("\\", "/"), text)
                text = known if known != text else f"{told}\n{text}"
    return text


def _write(text: str) -> None:
    with suppress(OSError, ValueError, AttributeError):  # a broken stderr must not save the program
        sys.stderr.write(text)
        sys.stderr.flush()


def quiet_threads() -> None:
    """A daemon thread may wait for an answer when the program ends.

    That there is none need not be shown any more.
    """
    show = threading.excepthook

    def show_others(args: threading.ExceptHookArgs) -> None:
        if not issubclass(args.exc_type, SupervisionError):
            show(args)

    threading.excepthook = show_others
