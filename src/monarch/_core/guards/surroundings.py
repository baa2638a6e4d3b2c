"""What this package must find in a process and under it, and what to say where it does not."""

from __future__ import annotations

import os
import sys
from typing import Any

_PATCHED = ("thread", "threading", "socket", "select", "subprocess", "os", "signal", "queue")


def refuse_gevent() -> None:
    """Raises:
    RuntimeError: gevent has replaced what real threads and sockets are made of: the I/O thread would never run.
    """
    monkey: Any = sys.modules.get("gevent.monkey")
    patched = [name for name in _PATCHED if monkey.is_module_patched(name)] if monkey is not None else ()
    if patched:
        raise RuntimeError(
            f"gevent has patched {', '.join(patched)} in this process, and monarch needs the originals: it runs real threads. "
            "Do not call gevent.monkey.patch_all() here, or run what needs it in a process of its own"
        )


def require_pidfd() -> None:
    """Raises:
    RuntimeError: The system has no `pidfd_open`, or does not let us call it.
    """
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError as error:
        raise RuntimeError(
            f"the system call pidfd_open fails here ({error.strerror}), and without it nobody would know of the end of a process. "
            "It needs Linux 5.3; a sandbox (seccomp; docker: --security-opt seccomp=...) must allow it"
        ) from error
