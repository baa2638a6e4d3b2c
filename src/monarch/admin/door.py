"""The admin interface inside the program that it is about.

It listens, and starts the helper process at the first connection.

The client, or the command `monarch admin`, holds the listening socket, so that a port that is taken
is an error at once, and the address stays while the helper starts, also when it has been killed. A
thread waits for the first connection, starts the helper, which inherits the socket, and waits for
its end. What ends the helper: the end of the program, or of the process that has started it, or
`IDLE` seconds without a request; then this waits for the next one.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

from .. import config, control, trust
from .._new_python import MAIN
from .._proc_stat import STARTED, stat_of
from ..actor import this_host
from ..programs import start_host
from .address import Address, Tls, listen, names_of, narrowed, parse, tls_files
from .child import PROGRAM_ENDED
from .keys import ACT, ROLES, Keys

logger = logging.getLogger("monarch.admin")

IDLE = 600.0
"""Seconds without a request after which the helper ends."""

_LOOK = 1.0  # seconds
_SHORT = 10.0  # seconds: a helper that has lived for less did not work
_PAUSES = (0.1, 0.5, 2.0, 10.0, 30.0)  # seconds before the next one


def check_installed() -> None:
    """Raise where what the helper needs is missing.

    Raises:
        ImportError: The message says how to get it.
    """
    for name in ("starlette", "uvicorn"):
        if importlib.util.find_spec(name) is None:
            raise ImportError(
                f"the admin interface needs {name}: pip install 'pymonarch[admin]'", name=name
            )


class Door:
    """The admin interface of one program.

    Args:
        pid: The process of the program.
        address: ``"host:port"``; None for that of the configuration.
        names: Names of the host that a proxy in front of it has.
        root_path: The path that a proxy takes off.
        idle: Seconds; see `IDLE`.
        quiet: Have the helper write nothing on this terminal.
        at_once: Start the helper now, for a request that is about to come.
        helper: The module that serves.
        more: What that is told beside.

    Attributes:
        url: Where it is.

    Raises:
        ImportError: A library that it needs is not installed.
        ValueError: The address is none, or other machines reach it, and there is no TLS.
        OSError: It is taken.
    """

    def __init__(
        self,
        pid: int,
        address: str | None = None,
        *,
        names: Sequence[str] = (),
        root_path: str = "",
        idle: float = IDLE,
        quiet: bool = False,
        at_once: bool = False,
        helper: str = "monarch.admin.helper",
        more: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        check_installed()
        self._quiet = quiet
        self._at_once = at_once
        tls = tls_files()
        wanted = narrowed(parse(address), tls)
        secret = trust.find_secret(None) or os.urandom(32)
        self._listener = listen(wanted, tls)
        host, port = self._listener.getsockname()[:2]
        self.url = _url(wanted._replace(host=host, port=port), tls) + root_path
        self.ended = threading.Event()
        self.status = 0
        program = f"{_identity(pid)} {port}"
        self._keys = Keys(secret, program)
        self._told: dict[str, Any] = {
            "pid": pid, "parent": os.getpid(), "program": program, "secret": secret.hex(),
            "listener": self._listener.fileno(), "names": names_of(wanted, names),
            "root_path": root_path, "idle": idle, "tls": tls, "config": config.exported(), **more,
        }  # fmt: skip
        self._code = MAIN.format(helper)
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._wake = os.eventfd(0)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="monarch-admin", daemon=True)
        self._thread.start()

    def link(self, role: str, here: bool = False) -> str:
        """A URL that lets a browser in, once, within an hour.

        Args:
            role: Of who comes in.
            here: Let in only this user, on this machine.
        """
        return f"{self.url}/login?code={quote(self._keys.code(role, time.time(), here))}"

    def access(self, role: str) -> dict[str, str]:
        """How to get in."""
        link, own = self.link(role), self.link(role, here=True)
        return {"url": self.url, "link": link, "own_link": own, "token": self._keys.token(role)}

    def wait(self) -> None:
        """Wait for its end; in the main thread, Ctrl-C ends that too."""
        while not self.ended.wait(_LOOK):  # a signal that comes just before a wait does not end it
            pass

    def close(self) -> None:
        """End it, and its helper."""
        self._closed.set()
        with self._lock:
            if self._wake >= 0:  # its thread has not ended yet
                os.eventfd_write(self._wake, 1)
            if self._process is not None:
                self._process.terminate()
        self._thread.join()

    def _run(self) -> None:
        failures, since = 0, 0.0
        try:
            while self._somebody_comes():
                begun = time.monotonic()
                self.status = self._serve(since)
                since = time.time()
                if self._closed.is_set() or self.status == PROGRAM_ENDED:
                    return
                failures = (
                    0 if time.monotonic() - begun > _SHORT or self.status == 0 else failures + 1
                )
                if self.status:
                    logger.warning(
                        "the helper of the admin interface ended with status %d; the next one"
                        " starts",
                        self.status,
                    )
                if failures:
                    self._closed.wait(_PAUSES[min(failures, len(_PAUSES)) - 1])
        except OSError as error:  # no process, or descriptor, is to be had
            logger.warning("the admin interface has ended: %s", error)
        finally:
            self._listener.close()
            with self._lock:
                os.close(self._wake)
                self._wake = -1
            self.ended.set()

    def _somebody_comes(self) -> bool:
        if self._at_once:
            self._at_once = False  # the next helper waits for a request
            return True
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        poll.poll()
        return not self._closed.is_set()

    def _serve(self, since: float) -> int:
        """Run a helper; returns its status."""
        with self._lock:
            if self._closed.is_set():
                return 0
            self._process = subprocess.Popen(
                [sys.executable, "-c", self._code],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL if self._quiet else None,
                pass_fds=[self._listener.fileno()],
                start_new_session=True,  # Ctrl-C is for the program
                env={
                    **os.environ,
                    "MALLOC_ARENA_MAX": "2",  # else each thread keeps what large answers took
                    "PYTHONPATH": os.pathsep.join(
                        filter(None, [_SOURCE, os.environ.get("PYTHONPATH", "")])
                    ),
                },
            )
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended already
            self._process.stdin.write(json.dumps({**self._told, "since": since}).encode() + b"\n")
            self._process.stdin.flush()
        # its standard input stays open: its end tells the helper that this process has ended
        with self._process:
            status = self._process.wait()
        with self._lock:
            self._process = None
        return status


# the helper runs the same code, wherever that was found
_SOURCE = str(Path(__file__).resolve().parents[2])

_open: Door | None = None
_opening = threading.Lock()


def access(role: str = ACT, addr: str | None = None) -> dict[str, str]:
    """Open the admin interface of this program, unless it is open, and say how to get in.

    It ends with the program.

    Args:
        role: ``"view"``, to look; ``"act"``, also to have processes do something: stacks, profiles,
            the end of meshes.
        addr: Where it listens: ``"host:port"``, port 0 for any; None for the key
            ``mesh_admin_addr`` of the configuration.

    Returns:
        The ``url``; a ``link``, which lets a browser in once, within an hour; an ``own_link``,
        which does so for this user on this machine alone, and may stand in a command line, which
        others can read; the ``token``, which programs send as ``Authorization: Bearer TOKEN``.

    Raises:
        ImportError: A library that it needs is not installed.
        ValueError: The address is none, or other machines reach it and there is no TLS; or there is
            no such role.
        OSError: The address is taken, or none of this machine.
    """
    global _open
    if role not in ROLES:
        raise ValueError(f"a role is one of {', '.join(ROLES)}, not {role!r}")
    with _opening:
        if _open is None or _open.ended.is_set():
            this_host()
            start_host()
            _open = Door(os.getpid(), addr)
            control.admin = _open.access
            logger.info(
                "the admin interface is at %s; `monarch admin %d` prints a link to it",
                _open.url,
                os.getpid(),
            )
        elif addr is not None and parse(addr).port not in (0, int(_open.url.rpartition(":")[2])):
            logger.warning(
                "this program has an admin interface already, at %s: not at %s as well",
                _open.url,
                addr,
            )
        return _open.access(role)


def _identity(pid: int) -> str:
    """The id of a process, unique in the cluster.

    A pid alone is not: another host may use it now, or this host used it before.
    """
    stat = stat_of(pid)  # of one that is gone there is none, and the helper will see that
    return f"{socket.gethostname()} {pid} {stat[STARTED] if stat else ''}"


def _url(address: Address, tls: Tls) -> str:
    anywhere = address.host in ("0.0.0.0", "::")
    shown = address._replace(host="localhost") if anywhere else address
    return f"{'https' if tls.cert else 'http'}://{shown}"
