"""A port for each rank that has actors, in the root client, for editors.

`configure(debug_adapter=True)` opens them.

Procs tell that they are there. Then, and when one has ended, a thread asks the agents of the hosts
who is, opens ports and closes them, says where editors can attach, and writes the entries for their
configuration. It ends when nothing has changed.
"""

from __future__ import annotations

import functools
import itertools
import json
import secrets
import threading
import time
import weakref
from contextlib import suppress
from typing import Any

from .._core.plane import ControlRequest, HostedProc, Hub, ProcAddress
from .._ours import HERE, opened
from .._words import ranges
from ..errors import SupervisionError
from ..programs import PATIENCE, agents_here, procs_of
from .dap import Port
from .notices import say
from .protocol import Offered

_MOST = 64  # ports
_GATHER = 0.15  # seconds without a change, after which those that have come are told of together
_LONGEST = 1.0  # seconds, however many come
_ENTRIES = "launch.json"

Rank = tuple[str, int]  # name of the mesh, and the rank there


class Editors:
    """The ports for editors.

    Args:
        hub: That of the root client.
    """

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._lock = threading.Lock()
        self._news = threading.Event()
        self._running = False
        self._failed = False  # which was told
        self._ports: dict[Rank, tuple[ProcAddress, Port]] = {}
        self._numbers: dict[Rank, int] = {}  # those that a rank has had
        self._token = secrets.token_urlsafe(24)
        hub.inbound_lost_hooks.append(self._lost)

    def changed(self) -> None:
        """Note that a proc has come, or gone; on the I/O thread."""
        self._news.set()
        with self._lock:
            if not self._running:
                threading.Thread(target=self._run, name="monarch-editors", daemon=True).start()
                self._running = True

    def _lost(self, address: ProcAddress) -> None:
        if any(address == proc for proc, _ in list(self._ports.values())):
            self.changed()

    def _run(self) -> None:
        while True:
            end = time.monotonic() + _LONGEST
            while self._news.wait(_GATHER) and time.monotonic() < end:
                self._news.clear()
            try:
                self._update(self._procs())
            except (SupervisionError, TimeoutError):
                # the program ends, or its machine stands still
                pass
            except Exception as error:  # the next change may find it better
                if not self._failed:
                    say(f"monarch: editors can't attach to all ranks: {error!r}")
                self._failed = True
            with self._lock:
                if not self._news.is_set():
                    self._running = False
                    return

    def _procs(self) -> list[HostedProc]:
        procs = procs_of(self._hub, agents_here().get(timeout=PATIENCE), _unreached)
        return sorted(
            (proc for proc in procs if proc.root == self._hub.address),
            key=lambda proc: (proc.mesh, proc.rank),
        )

    def _update(self, procs: list[HostedProc]) -> None:
        there = {proc.address for proc in procs}
        for rank, (address, port) in list(self._ports.items()):
            if address not in there:
                del self._ports[rank]
                port.close()
        new = [proc for proc in procs if (proc.mesh, proc.rank) not in self._ports]
        taken = [proc for proc in new[: max(0, _MOST - len(self._ports))] if self._open(proc)]
        entries = self._write_entries()
        for mesh, several in itertools.groupby(taken, key=lambda proc: proc.mesh):
            ranks = [proc.rank for proc in several]
            say(f"monarch: editors can attach to {mesh}[{ranges(ranks)}]; {entries}")
        if len(new) > len(taken):
            say(
                f"monarch: {len(new) - len(taken)} more ranks have no port: `monarch debug --dap"
                " MESH[RANKS]` opens some"
            )

    def _open(self, proc: HostedProc) -> bool:
        """Open a port for a proc, and return whether it has one."""
        rank = proc.mesh, proc.rank
        tell = functools.partial(_tell, f"{proc.mesh}[{proc.rank}]")
        for number in (self._numbers.get(rank, 0), 0):  # that which it has had, or any
            with suppress(OSError):
                port = Port(self._hub, proc.address, number, tell, self._token)
                self._ports[rank] = proc.address, port
                self._numbers[rank] = port.number
                return True
        return False  # too many files are open, or no number is left

    def _write_entries(self) -> str:
        """Write the entries of all ranks, and say where they are."""
        entries = [
            port.entry(f"{mesh}[{rank}]") for (mesh, rank), (_, port) in sorted(self._ports.items())
        ]
        text = json.dumps({"version": "0.2.0", "configurations": entries}, indent=4)
        with suppress(OSError), opened(HERE, make=True) as folder:
            folder.replace(_ENTRIES, text.encode())  # editors may be reading it
            return f"entries for launch.json: {folder.path}/{_ENTRIES}"
        return f"an entry for launch.json: {json.dumps(entries[:1])}"


def _unreached(host: str, why: str) -> None:
    say(f"monarch: host {host} can't be reached: {why}")


def _tell(label: str, text: str) -> None:
    say(f"monarch: {label}: {text}")


_editors: weakref.WeakKeyDictionary[Any, Editors] = weakref.WeakKeyDictionary()


def take(hub: Hub, request: ControlRequest, record: Offered) -> None:
    """A proc is there."""
    editors = _editors.get(hub)
    if editors is None:
        editors = _editors[hub] = Editors(hub)
    editors.changed()
