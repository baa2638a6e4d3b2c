"""A pid, signals, an end, and time that passes: what code of a proc has of its process.

While `local` is active, some functions of `os`, `signal`, `time` and `asyncio` do to a proc what
they do to a process: in threads that take turns, and with the pid of a proc. Such threads give up
their turn where they wait for an event, a condition or a future of `concurrent.futures`. What procs
make of the level of the root logger lasts as long.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NoReturn
from unittest.mock import patch

from ... import config
from ..._core.mesh import mock
from .cells import LocalLoop
from .hub import LocalHub, Network
from .turns import Killed, my_turn, without_turn
from .waits import TurnLock

# What does nothing to a proc: Ctrl-C is for the client.
_IGNORED = (0, signal.SIGINT, signal.SIGCHLD, signal.SIGURG, signal.SIGWINCH)
_STOPS = (signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)


@contextmanager
def surroundings(network: Network) -> Iterator[None]:
    """Replace the functions, for the procs of `network`."""
    own_proc, turns = network.own_proc, network.turns
    real_getpid, real_kill, real_exit, real_raise = (
        os.getpid,
        os.kill,
        os._exit,
        signal.raise_signal,
    )
    real_sleep, real_loop = time.sleep, asyncio.new_event_loop
    real_start, real_patches = threading.Thread.start, mock.patches

    def getpid() -> int:
        proc = own_proc()
        return real_getpid() if proc is None else proc.pid

    def kill(pid: int, number: int, /) -> None:
        proc = network.procs.get(pid)
        if proc is not None:
            _send_signal(proc, number)
        elif network.had(pid):
            raise ProcessLookupError(f"No process {pid}: the proc has ended")
        else:
            real_kill(pid, number)

    def leave(status: int) -> NoReturn:
        proc = own_proc()
        if proc is None:
            real_exit(status)
        proc.on_death((status & 0xFF) << 8)
        raise Killed

    def raise_signal(number: int, /) -> None:
        proc = own_proc()
        real_raise(number) if proc is None else _send_signal(proc, number)

    def sleep(seconds: float, /) -> None:
        if my_turn() is None or seconds < 0:  # which is an error
            real_sleep(seconds)
        else:
            turns.sleep(seconds)

    def new_event_loop() -> asyncio.AbstractEventLoop:
        return real_loop() if my_turn() is None else LocalLoop()

    def waiter() -> Any:
        return threading.Lock() if my_turn() is None else TurnLock(turns)

    def start(thread: threading.Thread) -> None:
        with without_turn():  # it waits for an event, which must not let others come to their turn
            real_start(thread)

    def patches() -> mock.Patches:
        proc = own_proc()
        return real_patches() if proc is None else proc.patches

    with ExitStack() as replaced:
        replaced.callback(logging.root.setLevel, logging.root.level)  # `logging_option` sets it
        for owner, name, function in (
            (os, "getpid", getpid),
            (os, "kill", kill),
            (os, "_exit", leave),
            (signal, "raise_signal", raise_signal),
            (time, "sleep", sleep),
            (asyncio, "new_event_loop", new_event_loop),
            (asyncio.events, "new_event_loop", new_event_loop),  # what `asyncio.run` calls
            (threading, "_allocate_lock", waiter),  # what `Condition.wait` waits at
            (threading.Thread, "start", start),
            (mock, "patches", patches),
        ):
            function.__module__, function.__qualname__ = owner.__name__, name  # pickled by name
            replaced.enter_context(patch.object(owner, name, function))
        yield


def _send_signal(proc: LocalHub, number: int) -> None:
    """Do what the system does to a process that has no handler of its own for it."""
    if number in _IGNORED or (number == signal.SIGTERM and config.value("sigterm_warns")):
        return
    if number in _STOPS or number == signal.SIGCONT:
        proc.stand_still(number != signal.SIGCONT)
    else:
        proc.on_death(int(number))
    if proc is proc.network.own_proc():
        # where it comes to nothing, or not before it is to go on
        proc.network.turns.sleep(0)
