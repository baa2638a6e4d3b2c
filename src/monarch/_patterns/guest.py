"""A client beside that of a running program, on its host, for another terminal.

It starts no agent: that of the program is its own, as that of a host is of each of its procs. So it
reaches all that the program reaches, over the connections that exist. It subscribes to no output.
Nothing waits for it, and its end closes its connections.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NoReturn

from .._core.client import client
from .._core.net import unix
from .._core.supervision.failure import Failure
from .._core.wire.address import AGENT, ProcAddress


class Guest(client.Client):
    """A client beside a running program; for the arguments see `Client`."""

    def ensure_agent(self) -> ProcAddress:
        return self.hub.address.agent

    @property
    def used_hosts(self) -> Sequence[str]:
        return ()  # they are the program's, and may be looked at again

    def attach(self, *_: object) -> NoReturn:
        raise RuntimeError(
            "this process is connected to a running program: it attaches no hosts of its own"
        )

    def route_via(self, *_: object) -> NoReturn:
        self.attach()

    def _abroad(self, host: str) -> Failure | None:
        return None  # the program has attached it

    def _release(self) -> None:
        unix.release(self.hub.local(self.hub.address))


def join(host: str, local_host: str = "") -> None:
    """Make this process a client on the host of a running program, until `shutdown_context`.

    Args:
        host: Its name.
        local_host: What it is called where its sockets are; by default the same.

    Raises:
        RuntimeError: This process is a client already.
        ConnectionRefusedError: No program has that host any more.
    """
    if client.is_running():
        raise RuntimeError(
            "this process uses Monarch already: connect to a program first, or call"
            " shutdown_context()"
        )
    unix.path_of(ProcAddress(local_host or host, AGENT))  # or a folder would be made for it
    client.client(functools.partial(Guest, host, local_host))
