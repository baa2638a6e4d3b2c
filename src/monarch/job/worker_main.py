"""The program of a worker process: serve at an address, report it, end when it has no owner.

See `contract`.

What keeps it from serving is printed as a traceback, and breaks the lifeline.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from .. import _ours
from .._patterns.worker import check_trust
from ..actor import Future, start_worker_loop_forever
from .base.worker_spec import KEEP, KILLED, START_AGAIN, WorkerReport, WorkerSpec

_BACKLOG = 128


def main() -> None:
    """Run a worker; the one argument of the process is its `WorkerSpec` as JSON."""
    if os.getpid() == 1:
        # process 1 of a container: the kernel drops signals without a handler for it, and all other
        # processes there end with it
        signal.signal(signal.SIGTERM, lambda *_: os._exit(128 + signal.SIGTERM))
    again: list[int] = []
    signal.signal(START_AGAIN, lambda number, _: again.append(number))
    spec = filled(json.loads(sys.argv[1]))
    if spec.warning:
        signal.signal(signal.SIGTERM, lambda *_: _warn(Path(spec.warning)))
    os.environ["MONARCH_HOST"] = f"{spec.mesh}[{spec.rank}] on {_machine(spec)}"  # for people
    next_spec = serve(spec, again)
    if again:
        os.execv(
            sys.executable, [sys.executable, *sys.orig_argv[1:-1], json.dumps(next_spec._asdict())]
        )


def serve(spec: WorkerSpec, again: Sequence[int] = (), **trust: Any) -> WorkerSpec:
    """Serve as a host, until a client shuts it down, or it is unused for too long.

    Args:
        spec: What to do.
        again: Not empty, in the end, where it is about to start again.
        trust: `ca` and `private_key`, as `start_worker_loop_forever` has them; by default there is
            a secret.

    Returns:
        What it would have to do to take its own place: the same address, owner and lifeline.

    Raises:
        OSError: The address is taken, or is none of this machine.
        RuntimeError: The worker was ended in another way.
        ValueError: The spec makes no sense, or there is no secret.
    """
    for fd in {spec.lifeline, spec.report} - {-1}:
        os.set_inheritable(fd, False)  # what runs here must not keep the lifeline open
    kept, machine = threading.Event(), _machine(spec)
    os.environ["MONARCH_MACHINE"] = machine
    serving, address = _start(spec, **trust)
    report = WorkerReport(spec.mesh, int(spec.rank), address, machine, os.getpid())
    try:
        if spec.report >= 0:
            os.write(spec.report, report.encode())
    except OSError:  # its launcher is gone, which alone knew of it
        _drop(spec)
    if spec.folder:
        report.leave(Path(spec.folder))
    if spec.lifeline >= 0:
        threading.Thread(
            target=_watch, args=(spec, serving, kept), name="monarch-lifeline", daemon=True
        ).start()
    serving.get()
    if spec.farewell and not again:
        # else its owner has ended meanwhile, and taken the folder along
        with suppress(FileNotFoundError):
            _ours.touch(spec.farewell)
    lifeline = -1 if kept.is_set() else spec.lifeline
    if lifeline >= 0 and again:
        os.set_inheritable(lifeline, True)
    return spec._replace(listen=address, report=-1, lifeline=lifeline)


def _machine(spec: WorkerSpec) -> str:
    return spec.machine or socket.gethostname()


def address_towards(machine: str) -> str:
    """Return the IP address by which this machine is known on the way to another one.

    Nothing is sent.
    """
    family, kind, _, _, where = socket.getaddrinfo(machine, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(where)
        found: str = probe.getsockname()[0]
        return found


def filled(given: dict[str, Any]) -> WorkerSpec:
    """The specification, with the variables of launchers; in names of users, ``$`` is a letter."""
    for key, value in given.items():
        if isinstance(value, str) and key != "mesh":
            above, slash, last = value.rpartition("/")
            given[key] = above + slash + os.path.expandvars(last)
    return WorkerSpec(**given)


def _start(spec: WorkerSpec, **trust: Any) -> tuple[Future[None], str]:
    """Begin to serve; returns the address that others dial as well."""
    scheme, _, where = spec.listen.partition("://")
    host, _, port = where.rpartition(":")
    # it says all by itself
    if scheme not in ("tcp", "metatls") or host == "*" or not port.isdecimal() or "@" in where:
        return start_worker_loop_forever(address=spec.listen, **trust), spec.listen
    host = host.strip("[]") or address_towards(spec.towards)
    check_trust(f"{scheme}://{_bracketed(host)}:{port}", **trust)
    bind = spec.bind or host
    # the agent inherits it; once this is closed, the port is free with its end
    with _bound(bind, int(port)) as sock:
        dialed = f"{scheme}://{_bracketed(host)}:{sock.getsockname()[1]}"
        own = f"{scheme}://{_bracketed(bind)}:fd{sock.fileno()}"
        return start_worker_loop_forever(address=f"{dialed}@{own}", **trust), dialed


def _bound(host: str, port: int) -> socket.socket:
    where = None if host == "*" else host
    family, *_, address = socket.getaddrinfo(
        where, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    return socket.create_server(address[:2], family=family, backlog=_BACKLOG)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _watch(spec: WorkerSpec, serving: Future[None], is_kept: threading.Event) -> None:
    said = b"?"
    with suppress(OSError):
        while said not in (b"", KEEP):  # anything else, such as a key that was hit, means nothing
            said = os.read(spec.lifeline, 1)
    kept = said == KEEP
    if kept:
        is_kept.set()
    elif not serving.done():
        _drop(spec)
    if kept and spec.report not in (-1, spec.lifeline):
        with suppress(OSError):  # it has
            os.write(spec.report, b"\n")  # its launcher may let go of both now


def _warn(warning: Path) -> None:
    """Pass the warning on; the agent, which was warned as well, ends if it is not in use.

    A job that is being ended passes on no warning.
    """
    with suppress(OSError):  # the job has been ended
        # network file systems read folders anew
        if not _ours.names(warning.parent, KILLED):
            return _ours.touch(warning)
    os._exit(128 + signal.SIGTERM)


def _drop(spec: WorkerSpec) -> None:
    """End a worker without an owner, and with it what it runs. The agent sees to that."""
    if spec.farewell:
        _ours.remove_tree(Path(spec.farewell).parent)
    os._exit(0)
