"""Requirements on the process and the system, and their errors: no gevent, pidfds, room for one
more process or thread.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

_GROUPS = "/sys/fs/cgroup"
_PATCHED = ("thread", "threading", "socket", "select", "subprocess", "os", "signal", "queue")


def refuse_gevent() -> None:
    """Refuse to run under gevent.

    Raises:
        RuntimeError: gevent has replaced what real threads and sockets are made of: the I/O thread
            would never run.
    """
    monkey: Any = sys.modules.get("gevent.monkey")
    patched = (
        [name for name in _PATCHED if monkey.is_module_patched(name)] if monkey is not None else ()
    )
    if patched:
        raise RuntimeError(
            f"gevent has patched {', '.join(patched)} in this process, and monarch needs the"
            " originals: it runs real threads. Do not call gevent.monkey.patch_all() here, or run"
            " what needs it in a process of its own"
        )


def require_pidfd() -> None:
    """Refuse a system without pidfds.

    Raises:
        RuntimeError: The system has no `pidfd_open`, or does not let us call it.
    """
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError as error:
        raise RuntimeError(
            f"the system call pidfd_open fails here ({error.strerror}), and without it nobody would"
            " know of the end of a process. It needs Linux 5.3; a sandbox (seccomp; docker:"
            " --security-opt seccomp=...) must allow it"
        ) from error


def explained(error: Exception, what: str) -> Exception:
    """The error for a `what` that could not be started; names the limit if one was the reason."""
    full = isinstance(error, OSError) and error.errno == errno.EAGAIN
    if not full and "can't start new thread" not in str(error):
        return error
    return RuntimeError(f"{what} could not be started: {explain()}")


def explain() -> str:
    """Describe the limits on processes and threads here, and the remedy."""
    limits = [f"pids.max of its control group is {limit}" for limit in sorted(_group_limits())[:1]]
    import resource  # every process has this module, few need it

    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if soft != resource.RLIM_INFINITY and os.geteuid() != 0:  # root has no such limit
        limits.append(f"`ulimit -u` is {soft}")
    found = ", ".join(limits) or "the system has no more"
    return (
        f"no more processes and threads are allowed here ({found}). Raise the limit (docker:"
        " --pids-limit), or spawn fewer: a host takes two processes, each proc one, and each actor"
        " in it a thread"
    )


def _group_limits() -> Iterator[int]:
    """The limits of this process's control group and its parents, where they can be read."""
    with suppress(OSError), open("/proc/self/cgroup") as file:
        for line in file:
            _, controllers, path = line.rstrip("\n").split(":", 2)
            if controllers in ("", "pids"):
                yield from _limits_up_from(os.path.join(_GROUPS, controllers), path)


def _limits_up_from(mount: str, path: str) -> Iterator[int]:
    while True:
        with suppress(OSError, ValueError), open(f"{mount}{path.rstrip('/')}/pids.max") as file:
            yield int(file.read())  # "max" is none
        if path in ("/", ""):
            return
        path = os.path.dirname(path)
