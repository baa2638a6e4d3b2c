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

# as texts: agents have no use for pathlib, which takes 8 ms at their start
_OWN, _GROUPS = "/proc/self/cgroup", "/sys/fs/cgroup"
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
            f"the system call pidfd_open fails here ({error.strerror}), and without it the end of"
            " a process would not be noticed. It needs Linux 5.3; a sandbox (seccomp; docker:"
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
    for group in control_groups("pids"):
        with suppress(ValueError):
            yield int(read(f"{group}/pids.max"))  # "max" is none


def control_groups(controller: str) -> Iterator[str]:
    """The folders of this process's control group and its parents, the innermost first.

    Args:
        controller: Limits them: ``cpu``, ``memory``, ``pids``.
    """
    for line in read(_OWN).splitlines():
        _, kinds, path = line.split(":", 2)
        if not kinds or controller in kinds.split(","):
            names = [name for name in (kinds, *path.split("/")) if name]
            for count in range(len(names), 0 if kinds else -1, -1):
                yield os.path.join(_GROUPS, *names[:count])


def read(path: str) -> str:
    """Return what the kernel shows in a file; empty in a sandbox without it."""
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""
