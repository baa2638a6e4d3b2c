"""The hubs of the procs, agents and the client of one process, and what connects them."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any

from ..._core.hub.message_hub import MessageHub
from ..._core.net.asked import Asked
from ..._core.net.poller import Timer
from ..._core.supervision.failure import Failure
from ..._core.wire.address import ProcAddress
from .links import Link, Unlent
from .turns import Lane, Turns


class Network:
    """Who listens, by address.

    Attributes:
        turns: The schedule.
        hubs: Those that take connections.
        hosts: The names of the hosts.
    """

    def __init__(self, turns: Turns, hosts: set[str]) -> None:
        self.turns = turns
        self.hubs: dict[ProcAddress, LocalHub] = {}
        self.hosts = hosts


class LocalPoller:
    """In the place of a `Poller`: what one hub has to do is a lane of the schedule."""

    wakeups = 0

    def __init__(self, turns: Turns, stopped: Callable[[], None]) -> None:
        self._turns = turns
        self._lane = Lane(turns)
        self._stopped = stopped
        self.call_soon = self._lane.put
        self.stop = stopped

    @property
    def thread_id(self) -> int | None:
        return self._turns.thread_id

    def call_here_or_soon(self, callback: Callable[[], None]) -> None:
        if self.thread_id == threading.get_ident():
            callback()
        else:
            self.call_soon(callback)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        return self._turns.at(self._lane, self._turns.now + seconds, callback)

    def run(self) -> None:
        """The schedule does that."""

    def close(self) -> None:
        self._lane.close()


class _Inbound(dict[Link, ProcAddress]):
    """The links that other hubs have made to this one."""

    def shut(self, timeout: float) -> None: ...

    def close(self) -> None:
        for link in list(self):
            link.close()

    def abandon(self) -> None: ...


class LocalHub(MessageHub):
    """The hub of a process that is none.

    Args:
        network: What it is part of.
        address: This process.
        root: The client that it belongs to.
    """

    def __init__(
        self, network: Network, address: ProcAddress, root: ProcAddress, local_host: str = ""
    ) -> None:
        self.network = network
        self.alive = True
        super().__init__(address, root)
        self.hosts = network.hosts
        self.overdue.watching = True  # for ever: no thread vanishes here
        self.on_stop: Callable[[], None] = self.end_at_once
        network.hubs[address] = self

    def _open(self, listener: socket.socket | None) -> None:
        place: Any = self  # these stand for what reads sockets
        place.poller = LocalPoller(self.network.turns, lambda: self.on_stop())
        place.answers = Unlent()
        place._inbound = _Inbound()

    def thread(self, **how: Any) -> threading.Thread:
        return self.network.turns.thread(self, **how)

    def connect(self, address: ProcAddress, on_close: Callable[..., None]) -> Any:
        there = self.network.hubs.get(address)
        if there is None:
            raise ConnectionRefusedError(f"{address} does not listen")
        turns = self.network.turns
        mine = Link(turns, address, self.dispatch, on_close, self.traffic, Asked(self.requests))
        theirs = Link(turns, self.address, there.dispatch, there._asker_lost, there.traffic, None)
        mine.join(theirs)
        inbound: Any = there._inbound
        inbound[theirs] = self.address
        return mine

    def _asker_lost(self, link: Link, reason: str) -> None:
        inbound: Any = self._inbound
        address = inbound.pop(link, None)
        if address is not None:
            self.requester_gone(address)

    def end_at_once(self, failure: Failure | None = None) -> None:
        """As a process that is killed: its threads end where they wait, and nothing more leaves
        it.
        """
        if not self.alive:
            return
        self.alive = False
        self.network.hubs.pop(self.address, None)
        self.end = failure or Failure("stopped", "its process has ended", proc=self.address.proc)
        for link in [peer.connection for peer in self._all_peers()]:
            if link is not None:
                link.close()
        self._inbound.close()
        self.poller.close()
        self.network.turns.kill(self)
