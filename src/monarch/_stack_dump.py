"""Stacks of processes without help of Python code: `faulthandler` writes them on a signal.

It works while C code holds the GIL. But nothing can be set up by then, so each process does this
when it starts: 4 µs, 100 in a process that was just forked, one descriptor, no memory until the
signal comes. `monarch.stacks` reads it, in the host agent.
"""

from __future__ import annotations

import os
import signal

SIGNAL = signal.SIGRTMIN + 9
"""Sent only to processes that are known to catch it: it would end any other."""

FILE = "monarch-stacks"
"""Name of the memory file, in ``/proc/PID/fd``."""


_taken_by = 0  # process: a fork has the handler as well, but would write to its parent's file


def install() -> None:
    """Take the signal, unless the program has a use for it."""
    global _taken_by
    if _taken_by != os.getpid() and signal.getsignal(SIGNAL) is signal.SIG_DFL:
        _taken_by = os.getpid()
        import faulthandler  # built in: it has a module, but no file to read

        try:  # each new proc comes here, and `suppress` costs it three calls
            faulthandler.register(SIGNAL, os.memfd_create(FILE, os.MFD_CLOEXEC), all_threads=True)
        except OSError:  # out of descriptors: others say so better
            pass
