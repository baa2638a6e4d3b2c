"""The messages of a process to and from other hosts, by way of its host's gateway."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence

from ..._namedtuple import NamedTuple
from ..calls.pending import PendingOperation
from ..routing.cast import Entry, Header, pack_table, with_header
from ..routing.order import Lane
from ..routing.route import RESENT, Route, split_route
from ..supervision.failure import Failure, not_attached, not_let_in
from ..supervision.tombstones import Tombstones
from ..wire import pickling
from ..wire.address import AGENT, ProcAddress
from ..wire.frame import CALL, CREDIT, GONE, PAUSE, PORT, REPLY, ROUTED, Frame
from .contracts import Hub, Request
from .pressure import counted, size_of
from .remote import CastGroup, Inflow, Outflow, RemoteOrigin, RemotePeer

_TABLES = 64  # calls to several hosts that are kept in a form that is ready to be sent


class _Table(NamedTuple):
    """The packed form of a call to several hosts, kept for the next call to the same ones."""

    procs: Sequence[ProcAddress]
    ranks: Sequence[int] | None
    packed: bytes
    peers: Sequence[RemotePeer]
    group: CastGroup
    ended: Sequence[tuple[ProcAddress, Failure]]


class RemoteRouter:
    """The routes of this process to processes of other hosts.

    Args:
        hub: That of this process.
    """

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._inflows: dict[Lane, Inflow] = {}
        self._answers: dict[Lane, Inflow] = {}
        self._outflows: dict[ProcAddress, Outflow] = {}
        # callers that have ended: their answers are dropped
        self._past: Tombstones[ProcAddress] = Tombstones()
        self._tables: OrderedDict[int, _Table] = OrderedDict()
        self._lock = threading.Lock()

    def peer(self, address: ProcAddress) -> RemotePeer:
        """A process of another host, to be sent requests."""
        return RemotePeer(self._hub, address, self.send)

    # sending

    def send(self, frame: Frame) -> Failure | None:
        """Send a frame that has a route; the failure if the gateway is gone."""
        hub = self._hub
        if hub.gateway is not None:
            hub.gateway(None, frame)
            return None
        return hub.peer_for(hub.address.agent, frame).send(frame)

    def cast(
        self,
        procs: Sequence[ProcAddress],
        ranks: Sequence[int] | None,
        call: Frame,
        request: Request | None,
    ) -> None:
        """Send one message for those of `procs` on other hosts; gateways distribute it."""
        table = self._tables.get(id(procs))
        if (
            table is None
            # the key is an `id`: a list that has gone may have had the same
            or table.procs is not procs
            or table.ranks is not ranks
            or not table.group.complete
        ):
            table = self._new_table(procs, ranks, call)
        for address, ended in table.ended:
            self._hub.not_sent(call.request, request, address, ended)
        if not table.peers:
            return
        header = Header(0, self._hub.address, (), table.packed)
        failure = self.send(with_header(call._replace(flags=call.flags | ROUTED), header))
        if failure is not None:
            for peer in table.peers:
                self._hub.not_sent(call.request, request, peer.address, failure)
        table.group.count(call)

    def _new_table(
        self, procs: Sequence[ProcAddress], ranks: Sequence[int] | None, call: Frame
    ) -> _Table:
        """Pack the called processes by host, apart from those known to have ended."""
        hub = self._hub
        hosts: dict[str, tuple[list[str], list[int]]] = {}
        peers: list[RemotePeer] = []
        ended: list[tuple[ProcAddress, Failure]] = []
        for index, address in enumerate(procs):
            if address.host in hub.hosts:
                continue
            peer = hub.peer_for(address, call)
            assert isinstance(peer, RemotePeer)
            failure = peer.known_failure()
            if failure is not None:
                ended.append((address, failure))
                continue
            names, numbers = hosts.setdefault(address.host, ([], []))
            names.append(address.proc)
            numbers.append(index if ranks is None else ranks[index])
            peers.append(peer)
        packed = pack_table(
            [Entry(host, tuple(names), tuple(numbers)) for host, (names, numbers) in hosts.items()]
        )
        table = _Table(procs, ranks, packed, peers, CastGroup(peers), ended)
        if not peers:  # there may be a way another time, once these hosts were attached
            return table
        with self._lock:
            old = self._tables.pop(id(procs), None)
            self._tables[id(procs)] = table
            if old is None and len(self._tables) > _TABLES:
                _, old = self._tables.popitem(last=False)
        if old is not None:
            old.group.dissolve()
        return table

    # receiving, on the poller's thread or the one that has borrowed the connection

    def arrived(self, frame: Frame, asks: bool) -> None:
        """A frame for this process has come from another host.

        Args:
            asks: As a request; otherwise as the answer to one.
        """
        route, frame = split_route(frame)
        if frame.kind in (CALL, PORT):
            inflow = self._inflow(self._inflows, route)
            self._hub.dispatch(RemoteOrigin(self.send, route, self._answered), frame)
            # after the dispatch: credit is for messages that have reached their receiver
            inflow.took(counted(frame))
        elif frame.kind == REPLY:
            self._replied(route, frame)
        elif frame.kind == GONE:
            self.gone(route.source, pickling.loads(frame.payload), asks)
        elif frame.kind == PAUSE:
            self._hub.dispatch(RemoteOrigin(self.send, route, self._answered), frame)
        elif frame.kind == CREDIT:
            outflow = self._outflows.get(route.source) if frame.rank else None
            peer = None if frame.rank else self._hub.peers.get(route.source)
            if outflow is not None:
                outflow.credit(frame.request)
            elif isinstance(peer, RemotePeer):
                peer.credit(frame.request)

    def _inflow(self, inflows: dict[Lane, Inflow], route: Route) -> Inflow:
        # who sends by another name of this host expects credit from that one
        lane = Lane(route.source, route.to.host)
        inflow = inflows.get(lane)
        if inflow is None:
            self._past.pop(route.source, None)  # it has started again
            inflow = inflows[lane] = Inflow(self.send, route.source, route.to)
        return inflow

    def _answered(self, caller: ProcAddress, size: int) -> None:
        """An answer of that size was sent, on any thread."""
        outflow = self._outflows.get(caller)
        if outflow is None:
            if caller in self._past:
                return
            outflow = self._outflows.setdefault(caller, Outflow(self._hub))
        outflow.went(size)

    def _replied(self, route: Route, frame: Frame) -> None:
        if not route.cast:
            self._inflow(self._answers, route).took(size_of(frame), answers=1)
        request = self._hub.requests.get(frame.request)
        if (
            route.order == RESENT
            and isinstance(request, PendingOperation)
            # answers are sent again when a host on the way is lost; a `stream` would give one twice
            and request.has_answer_of(frame.rank)
        ):
            return
        self._hub.dispatch(RemoteOrigin(self.send, route, self._answered), frame)

    def gone(self, who: ProcAddress, failure: Failure, asks: bool) -> None:
        """A process, or with an agent a whole host, has ended."""
        whole_host = who.proc == AGENT
        if whole_host and who.host in self._hub.unreached:
            failure = not_attached(failure)
        elif whole_host and who.host in self._hub.unattached:
            failure = not_let_in(failure)
        inflows = self._inflows if asks else self._answers
        ended = [
            lane
            for lane in inflows
            if lane.source == who or (whole_host and lane.source.host == who.host)
        ]
        for lane in ended:
            del inflows[lane]
        if asks:
            for source in dict.fromkeys(lane.source for lane in ended):
                # first: an answer sent meanwhile must not make a new `Outflow`: its credit would
                # never come
                self._past.note(source, failure)
                outflow = self._outflows.pop(source, None)
                if outflow is not None:
                    outflow.credit()
                self._hub.requester_gone(source)
        else:
            peers = list(self._hub.peers)
            others = [
                peer for peer in peers if whole_host and peer.host == who.host and peer != who
            ]
            self._hub.forget_peers([who, *others], failure)
