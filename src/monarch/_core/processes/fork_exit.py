"""How a forked proc ends: as any Python program, but for what it shares with the spawner.

To take an interpreter down is to touch nearly all of its objects, and each page that is shared with
the spawner is copied when it is first touched: of torch, 0.1 s per process. So objects from before
the fork are left to the kernel, as `multiprocessing` does in its forks, and so are the destructors
of C libraries. Objects made since end as ever: threads are waited for, exit functions run, modules
go and with them what they held, files are written.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import gc
import io
import os
import sys
import threading
import time
import weakref
from contextlib import suppress
from itertools import takewhile
from typing import NoReturn

from ..calls.callbacks import callback_thread, continuation_thread

_MOMENT = 0.1  # seconds
# in the order in which their data flows
_FILES = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)


@functools.cache
def libc() -> ctypes.CDLL:
    """The C library, looked up by the spawner once: to make an object of it makes a class."""
    return ctypes.CDLL(None, use_errno=True)


def disarm_finalizers() -> None:
    """In the spawner: what it has made with `weakref.finalize` is no business of its forks, which
    would undo it once more.
    """
    # there is no public way to find them
    for finalizer in list(weakref.finalize._registry):  # type: ignore[attr-defined]
        finalizer.atexit = False


def leave(inherited: dict[str, None]) -> NoReturn:
    """End the process, with status 0.

    It waits for threads that are no daemons, as at the end of any Python program.

    Args:
        inherited: Names of the modules that were there before the fork, in their order.
    """
    # what the interpreter calls, and `multiprocessing` in its children
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    if _is_alone():
        _take_modules_down(inherited)
    _write_files()
    # `os._exit` skips the buffers of C's stdio
    libc().fflush(None)
    # the interpreter is not taken down: see the module
    os._exit(0)


def _is_alone() -> bool:
    """Return whether no other thread needs the missing ones; ended actors get a moment.

    Threads that Python has not started are left out: there is no telling whether they still run,
    nor a way to wait for them.
    """
    others = [
        each
        for each in threading.enumerate()
        if each is not threading.current_thread() and not isinstance(each, threading._DummyThread)
    ]
    waiting_for_ever = (callback_thread.name, continuation_thread.name)  # in code that stays
    end = time.monotonic() + _MOMENT
    for thread in others:
        if thread.name not in waiting_for_ever:
            thread.join(max(0.0, end - time.monotonic()))
            if thread.is_alive():
                return False
    return True


def _take_modules_down(inherited: dict[str, None]) -> None:
    """Let go of what modules of this process hold, the last first.

    Objects with ``__del__`` are told.
    """
    sys.meta_path = None  # type: ignore[assignment]  # removed modules must not be imported again
    # those before it were there, too: to look at their names would copy their pages
    last = next(reversed(inherited), None)
    later = [*takewhile(lambda name: name != last, reversed(sys.modules))]
    modules = [weakref.ref(sys.modules.pop(name)) for name in later if name not in inherited]
    gc.collect()
    for reference in modules:
        module = reference()
        if module is not None:  # something else has it
            content = vars(module)
            for name in [name for name in content if name != "__builtins__"]:
                content[name] = None
    gc.collect()


def _write_files() -> None:
    """Flush the files of this child; those of before the fork are frozen, and not found here."""
    found = [each for each in gc.get_objects() if type(each) in _FILES]
    for file in (sys.stdout, sys.stderr, *sorted(found, key=lambda each: _FILES.index(type(each)))):
        with suppress(Exception):  # closed, read-only, or broken
            file.flush()
