"""The hubs of the procs, agents and the client of one process, and what connects them."""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from ..._core.hub.local_peer import LocalPeer
from ..._core.hub.message_hub import MessageHub
from ..._core.net.asked import Asked
from ..._core.net.poller import Timer
from ..._core.supervision.failure import Failure, host_lost
from ..._core.wire.address import ProcAddress
from .links import LocalLink, Unlent
from .turns import Lane, Turns, my_turn
from .waits import TurnCondition, TurnQueue

_FIRST_PID = 2**22 + 1  # no process of Linux has it


class Network:
    """The listeners by address.

    Attributes:
        turns: The schedule.
        hubs: Those that take connections.
        hosts: The names of the hosts.
        procs: The hubs of the procs that run, by pid.
    """

    def __init__(self, turns: Turns, hosts: set[str]) -> None:
        self.turns = turns
        self.hubs: dict[ProcAddress, LocalHub] = {}
        self.hosts = hosts
        self.procs: dict[int, LocalHub] = {}
        self._pids = itertools.count(_FIRST_PID)
        self._still: set[ProcAddress] = set()
        self._lane = Lane(turns)
        self._cuts: dict[str, Timer] = {}  # by host, until it is lost
        self._lost: dict[str, Failure] = {}

    def cut(self, host: str, limit: float) -> None:
        """Cut a host off from all others.

        Messages wait, and after so many seconds the host is lost for the others, and they
        for it.

        Raises:
            RuntimeError: It is cut off already, or lost.
        """
        if host in self._cuts or host in self._lost:
            raise RuntimeError(f"{host} is {'lost' if host in self._lost else 'cut off'} already")
        self._cuts[host] = self.turns.at(
            self._lane, self.turns.now + limit, partial(self._lose, host, limit)
        )
        self._hold()

    def mend(self, host: str) -> None:
        """Deliver waiting messages, and those to come.

        Raises:
            RuntimeError: It is not cut off, or lost already.
        """
        if host not in self._cuts:
            raise RuntimeError(
                f"{host} is lost: it can't come back"
                if host in self._lost
                else f"{host} is not cut off"
            )
        self._cuts.pop(host).cancel()
        self._hold()

    def joined(self, hub: LocalHub) -> None:
        """A hub has begun to listen: tell it of the lost processes."""
        self.hubs[hub.address] = hub
        self._tell(hub)

    def add(self, proc: LocalHub) -> int:
        """Give a pid to a proc that begins to run."""
        proc.pid = next(self._pids)
        self.procs[proc.pid] = proc
        return proc.pid

    def own_proc(self) -> LocalHub | None:
        """The proc that the calling thread belongs to, or acts for."""
        turn, turns = my_turn(), self.turns
        acting = turns.acting if threading.get_ident() == turns.thread_id else None
        owner = acting if turn is None else turn.owner
        return owner if isinstance(owner, LocalHub) and owner.pid else None

    def had(self, pid: int) -> bool:
        """Return whether it was that of a proc."""
        return pid >= _FIRST_PID

    def stand_still(self, hub: LocalHub, still: bool) -> None:
        """Stop a hub, and delay messages to it; or let both go on."""
        (self._still.add if still else self._still.discard)(hub.address)
        self.turns.stand_still(hub, still)
        self._hold()

    def connected(self, link: LocalLink, one: ProcAddress, other: ProcAddress) -> None:
        """Note a new link, by the end that is at `one`."""
        cut = one.host != other.host and not self._cuts.keys().isdisjoint((one.host, other.host))
        link.hold(cut or one in self._still, cut or other in self._still)

    def _links(self) -> list[tuple[LocalLink, ProcAddress, ProcAddress]]:
        """Every link, by the end that was called, with the owners of both ends."""
        return [
            (link, hub.address, caller)
            for hub in self.hubs.values()
            for link, caller in hub.callers.items()
        ]

    def _hold(self) -> None:
        for link, one, other in self._links():
            self.connected(link, one, other)

    def _lose(self, host: str, limit: float) -> None:
        why = f"nothing was heard from it for {limit:g}s"
        self._lost[host] = host_lost(host, why)
        for hub in self.hubs.values():
            self._tell(hub)
        for link, one, other in self._links():
            if one.host != other.host and host in (one.host, other.host):
                link.fail(why)
        del self._cuts[host]

    def _tell(self, hub: LocalHub) -> None:
        """Which hosts a hub can't reach: those that are lost, or all others if its own is."""
        here = hub.address.host
        for host, failure in self._lost.items():
            for other in self.hosts - {here} if host == here else {host}:
                hub.ended_hosts.setdefault(
                    other, failure if other == host else host_lost(other, "it is out of contact")
                )


class LocalPoller:
    """Stands for a `Poller`: what one hub has to do is a lane of the schedule."""

    wakeups = 0

    def __init__(self, hub: object, turns: Turns, stopped: Callable[[], None]) -> None:
        self._turns = turns
        self._lane = Lane(turns, hub)
        self._stopped = stopped
        self.call_soon = self.call_when_read = self._lane.put
        self.hold = self._lane.hold
        self.stop = stopped

    @property
    def thread_id(self) -> int | None:
        return self._turns.thread_id

    def call_here_or_soon(self, callback: Callable[[], None]) -> None:
        if self.thread_id == threading.get_ident():
            callback()
        else:
            self.call_soon(callback)

    def now(self) -> float:
        return self._turns.now

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        return self._turns.at(self._lane, self._turns.now + seconds, callback)

    def give_way(self) -> None:
        """Do nothing: one thread at a time runs."""

    def run(self) -> None:
        """The schedule does that."""

    def close(self) -> None:
        self._lane.close()


class _Inbound(dict[LocalLink, ProcAddress]):
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

    in_process = True

    def __init__(
        self, network: Network, address: ProcAddress, root: ProcAddress, local_host: str = ""
    ) -> None:
        self.network = network
        self.queue = partial(TurnQueue, network.turns)
        self.patches: dict[type, list[type]] = {}  # of `patch_actor`
        self.alive = True
        super().__init__(address, root)
        # links take a copy of the buffers themselves
        self.segments.make = lambda buffers: None  # type: ignore[method-assign]
        self.hosts = network.hosts
        self.overdue.watching = True  # for ever: no thread vanishes here
        self.pid = 0  # of a proc
        self.suspicion = ""  # of a proc, as its failure has them
        self.on_stop: Callable[[], None] = self.end_at_once
        self.on_death: Callable[[int], None]  # of a proc: with its exit status, as of a process
        self.on_still: Callable[[bool], None]
        network.joined(self)

    def _open(self, listener: socket.socket | None) -> None:
        place: Any = self  # these stand for what reads sockets
        place.poller = LocalPoller(self, self.network.turns, lambda: self.on_stop())
        place.answers = Unlent()
        place._inbound = _Inbound()

    def listen(self) -> None: ...  # links are made by name

    def thread(self, **how: Any) -> threading.Thread:
        return self.network.turns.thread(self, **how)

    def _way_to(self, address: ProcAddress) -> Any:
        way: Any = super()._way_to(address)
        if isinstance(way, LocalPeer):
            # where a thread waits that has sent too much before the process is up
            way._backlog._room = TurnCondition(self.network.turns, way._lock)
        return way

    def connect(self, address: ProcAddress, on_close: Callable[..., None]) -> Any:
        there = self.network.hubs.get(address)
        if there is None:
            raise ConnectionRefusedError(f"{address} does not listen")
        turns = self.network.turns
        mine = LocalLink(
            self, turns, address, self.dispatch, on_close, self.traffic, Asked(self.requests)
        )
        theirs = LocalLink(
            there, turns, self.address, there.dispatch, there._asker_lost, there.traffic, None
        )
        mine.join(theirs)
        there.callers[theirs] = self.address
        self.network.connected(mine, self.address, address)
        return mine

    @property
    def callers(self) -> dict[LocalLink, ProcAddress]:
        """The links that others have made to this hub, with their makers."""
        inbound: Any = self._inbound
        callers: dict[LocalLink, ProcAddress] = inbound
        return callers

    def _asker_lost(self, link: LocalLink, reason: str) -> None:
        address = self.callers.pop(link, None)
        if address is not None:
            self.requester_gone(address)

    def stand_still(self, still: bool) -> None:
        """Do nothing more, as a process that is stopped; or go on."""
        self.network.stand_still(self, still)
        self.poller.hold(still)  # type: ignore[attr-defined]
        self.on_still(still)

    def end_at_once(self, failure: Failure | None = None) -> None:
        """End a proc as if it were killed.

        Its threads end where they wait, and no message leaves it afterwards.
        """
        if not self.alive:
            return
        self.alive = False
        self.network.hubs.pop(self.address, None)
        self.network.procs.pop(self.pid, None)
        self.network.stand_still(self, False)
        self.end = failure or Failure("stopped", "its process has ended", proc=self.address.proc)
        for link in [peer.connection for peer in self._all_peers()]:
            if link is not None:
                link.close()
        self._inbound.close()
        self.poller.close()
        self.network.turns.kill(self)
