"""Failures that nobody handled: the client's hook, the report, the end of the program.

Exit status 1 is certain: the main thread is interrupted by a signal wherever it waits (`time.sleep`, a lock, an event
loop), unwinds as from Ctrl-C, and a program that swallows that still ends with 1. What bounds it: `fault_grace` after
the fault the process ends, whatever the main thread does.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from types import TracebackType
from typing import Any

from ... import config
from ..supervision.failure import MeshFailure

Hook = Callable[[MeshFailure], object]


def default_hook(failure: MeshFailure) -> None:
    """Ends the program with status 1."""
    sys.exit(1)


class Faults:
    """Runs the hook for each fault, one at a time, on a thread of its own.

    Args:
        find_hook: Looks up the hook when a fault comes, so that programs can replace it at any time.
        shut_down: Stops what the client started; called before the process is ended by force.
    """

    def __init__(self, find_hook: Callable[[], Hook], shut_down: Callable[[], None]) -> None:
        self._find_hook = find_hook
        self._shut_down = shut_down
        self._queue: SimpleQueue[MeshFailure | threading.Event | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self.fatal = False
        self.leaving = False  # the main thread is past its last line: nothing to interrupt

    def put(self, failure: MeshFailure) -> None:
        self._queue.put(failure)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="monarch-faults", daemon=True)
            self._thread.start()

    def settle(self, timeout: float) -> None:
        """Wait until the faults known so far have been handled."""
        if self._thread is not None and self._thread is not threading.current_thread():
            handled = threading.Event()
            self._queue.put(handled)
            handled.wait(timeout)

    def close(self) -> None:
        """End the thread, once it has handled what it has."""
        self._queue.put(None)

    def _run(self) -> None:
        while True:
            item = self._queue.get()
            if item is None:
                return
            if isinstance(item, threading.Event):
                item.set()
            else:
                self._handle(item)

    def _handle(self, failure: MeshFailure) -> None:
        try:
            self._find_hook()(failure)
            return
        except SystemExit:
            pass
        except BaseException as error:
            with suppress(OSError, ValueError):
                print(f"unhandled_fault_hook raised {type(error).__name__}: {error}", file=sys.stderr)
        interactive = hasattr(sys, "ps1") or bool(sys.flags.interactive)
        first, self.fatal = not self.fatal, not interactive
        with suppress(OSError, ValueError, AttributeError):  # a broken stderr must not save the program
            sys.stderr.write(_report(failure) + "\n")
            sys.stderr.flush()
        if self.leaving or not first:
            return
        if not interactive:  # a session goes on, with its variables; only what runs is interrupted
            sys.excepthook = _quiet_about_interrupt
            threading.Thread(target=self._end_by_force, name="monarch-fault-grace", daemon=True).start()
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    def _end_by_force(self) -> None:
        time.sleep(config.value("fault_grace"))
        self._shut_down()
        self.exit()

    def exit(self) -> None:
        """End the process with status 1, now."""
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError, AttributeError):
                pass
        os._exit(1)


def _quiet_about_interrupt(
    kind: type[BaseException], error: BaseException, traceback: TracebackType | None, shown: Any = sys.excepthook
) -> None:
    """The interrupt that ends the main thread is ours, and the fault has been reported."""
    if not issubclass(kind, KeyboardInterrupt):
        shown(kind, error, traceback)


def _report(failure: MeshFailure) -> str:
    now = time.strftime("%Y-%m-%d %H:%M:%S")
    head = (
        f"Unhandled monarch error on the root actor, hostname={socket.gethostname()}, PID={os.getpid()} at time {now}:"
    )
    advice = (
        "Catch it where the mesh was created: define __supervise__ there, or set monarch.actor.unhandled_fault_hook."
    )
    return f"{head}\n{failure.report()}\n{advice}"
