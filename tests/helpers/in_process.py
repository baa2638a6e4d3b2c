"""Tests whose procs are objects of this process: what they may not do, and how they wait."""

from __future__ import annotations

import multiprocessing.process
import os
import resource
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import pytest

from helpers import waiting
from monarch.testing import LocalHosts, local

# What starts processes, and what would hit this one, or another program.
_FORBIDDEN = (
    (subprocess.Popen, "__init__"),
    (multiprocessing.process.BaseProcess, "start"),
    (os, "fork"),
    (os, "forkpty"),
    (os, "posix_spawn"),
    (os, "execv"),
    (os, "execve"),
    (os, "setsid"),
    (os, "system"),
    (os, "_exit"),
    (os, "abort"),
    (os, "kill"),
    (os, "killpg"),
    (resource, "setrlimit"),
    (signal, "pidfd_send_signal"),
    (signal, "raise_signal"),
)


@contextmanager
def without_processes(test: str) -> Iterator[None]:
    """What starts a process, or does to this one what is meant for one of its own, raises an error
    that names the test.

    What the test changes of the environment is undone at its end.
    """

    def forbid(name: str) -> Any:
        def refuse(*args: object, **kwargs: object) -> NoReturn:
            raise RuntimeError(
                f"{test} is a test in one process, and calls {name}(): it is to be marked"
                ' `@pytest.mark.processes("why")`, in tests/conftest.py'
            )

        return refuse

    with pytest.MonkeyPatch.context() as patch:
        for owner, name in _FORBIDDEN:
            patch.setattr(owner, name, forbid(f"{owner.__name__}.{name}"))
        before = dict(os.environ)
        yield
        if os.environ != before:
            os.environ.clear()
            os.environ.update(before)


@contextmanager
def local_hosts(count: int = 1) -> Iterator[LocalHosts]:
    """`local`, where `wait_until` lets time pass on its hosts."""
    with local(count) as hosts, pytest.MonkeyPatch.context() as patch:
        patch.setattr(waiting, "rest", hosts.advance)
        yield hosts
