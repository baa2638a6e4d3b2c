"""The ways from one process to others: which there are, and what became of those that ended."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence

from ..net.poller import guarded
from ..supervision.failure import Failure
from ..supervision.tombstones import Tombstones
from ..wire.address import AGENT, ProcAddress
from ..wire.frame import CALL, URGENT, Frame
from .backpressure_gate import BackpressureGates
from .contracts import Request, Way
from .neighbours import Neighbours


class Peers:
    """The part of the message hub that knows other processes."""

    full: BackpressureGates
    neighbours: Neighbours

    def __init__(self, address: ProcAddress, root: ProcAddress) -> None:
        self.address = address
        self.root = root
        self.names = {address.host}  # of this host
        # hosts with processes that are reached directly: this one, by all its names, and neighbours
        self.hosts = {address.host}
        self.requests: dict[int, Request] = {}
        self.peers: dict[ProcAddress, Way] = {}
        self._urgent_peers: dict[ProcAddress, Way] = {}
        self._ended: Tombstones[ProcAddress] = Tombstones()
        self.peer_lost_hooks: list[Callable[[ProcAddress, Failure], None]] = []
        # and when it was heard of
        self.last_death: tuple[ProcAddress, Failure, float] | None = None
        self._lock = threading.Lock()
        self.end: Failure | None = None  # why nothing can be sent any more
        # hosts that are known to be gone before anybody asks for them
        self.ended_hosts: dict[str, Failure] = {}
        self.unreached: set[str] = set()  # hosts that are about to be attached
        self.unattached: set[str] = set()  # hosts that are used all the same

    def process_fate(self, address: ProcAddress) -> Failure | None:
        """Why a process is gone, if it is known to be, and for good."""
        peer = self.peers.get(address)
        failure = peer.failure if peer is not None else self._known_end(address)
        return None if failure is None or failure.restarts else failure

    def note_end(self, address: ProcAddress, failure: Failure) -> None:
        """A process has ended that this one has never talked to."""
        self._ended.note(address, failure)

    def host_is_back(self, host: str) -> None:
        """Forget the state of a host's former agent: another one runs there now."""
        agent = ProcAddress(host, AGENT)
        with self._lock:
            self.ended_hosts.pop(host, None)
            self._ended.pop(agent, None)
            self.peers.pop(agent, None)

    def _known_end(self, address: ProcAddress) -> Failure | None:
        """Why nothing can be sent to a process, if that is known without asking."""
        known = self.end or self.ended_hosts.get(address.host) or self._ended.get(address)
        if known is None and address.host not in self.names:
            return self._ended.get(address.agent)
        return known

    def process_ended(
        self,
        address: ProcAddress,
        failure: Failure,
        witness: Way | None = None,
        ended: Collection[int] = (),
    ) -> None:
        """A process is gone: end the ways to it, tell every hook, then those who wait for it.

        On any thread.

        Args:
            witness: The way that has found out, and has ended.
            ended: Numbers of the requests that ended with it.
        """
        numbers = [*ended]
        for peer in (self._urgent_peers.get(address), self.peers.get(address)):
            if peer is not None and peer is not witness:
                numbers += peer.end(failure)
        self.tell(address, failure, numbers)
        if not failure.restarts:
            with self._lock:
                if address not in self._ended and not self._may_come_back(address):
                    self._ended.note(address, failure)
                self.peers.pop(address, None)
                self._urgent_peers.pop(address, None)
        if address == self.address.agent:  # without the gateway there is no way to other hosts
            self.forget_peers(
                [other for other in list(self.peers) if other.host not in self.hosts], failure
            )

    def _may_come_back(self, address: ProcAddress) -> bool:
        """Another host may be started again under its name.

        Only the client knows when: it attaches it again, or at last.
        """
        if address.proc == AGENT:
            return address.host not in self.hosts and self.address != self.root
        return address.host in self.unattached  # the end of its agent is known

    def tell(self, address: ProcAddress, failure: Failure, ended: Collection[int] = ()) -> None:
        """Tell every hook, for which it may be no news; then these requests, as a refused caller
        must not know more than the owner; then those who wait for room there. An error in one does
        not keep the others from being called.
        """
        if not failure.is_stop:
            self.last_death = address, failure, time.monotonic()
        for hook in tuple(self.peer_lost_hooks):  # which may take itself out
            guarded(hook, address, failure)
        for number in ended:
            request = self.requests.get(number)
            if request is not None and guarded(request.peer_failed, address, failure):
                self.requests.pop(number, None)
        self.full.process_ended(address)

    def forget_peers(self, addresses: Sequence[ProcAddress], failure: Failure) -> None:
        """Refuse messages to these processes from now on: they have ended, or soon will."""
        for address in addresses:
            if failure.restarts:
                self._ended.pop(address, None)
            if address not in self._ended:
                self.peers.get(address) or self._new_peer(self.peers, address)
                self.process_ended(address, failure)

    def peer_for(self, address: ProcAddress, frame: Frame) -> Way:
        if frame.flags & URGENT and frame.kind == CALL and address.host in self.hosts:
            # overtakes: over a connection of its own, which a full mailbox does not hold up
            return self._urgent_peers.get(address) or self._new_peer(self._urgent_peers, address)
        return self.peers.get(address) or self._new_peer(self.peers, address)

    def _new_peer(self, peers: dict[ProcAddress, Way], address: ProcAddress) -> Way:
        failure = self._known_end(address) or self.neighbours.no_way(address)
        peer = self._way_to(address)
        if failure is not None:
            peer.end(failure)
            return peer
        with self._lock:
            return peers.setdefault(address, peer)

    def _way_to(self, address: ProcAddress) -> Way:
        """A new way to a process."""
        raise NotImplementedError

    def _all_peers(self) -> list[Way]:
        return [*self.peers.values(), *self._urgent_peers.values()]
