"""The other hosts that a client uses: attached, watched over, let go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ... import config
from ..supervision.failure import Failure
from ..wire import pickling
from ..wire.address import AGENT, ROOT, SYSTEM, ProcAddress
from ..wire.frame import ERROR, STANDING, VALUE, Frame
from .future import Described, Future, completed
from .node import Node
from .remote_error import load_error
from .request import StopCall

if TYPE_CHECKING:
    from ..net.trust import Trust

_LEAVE_BOUND = 1.0  # seconds beyond the grace time in which other hosts say that what the client had there is gone


class AttachedHosts:
    """Args:
    node: Hub of the client.
    show: Takes the output of procs there.
    """

    def __init__(self, node: Node, show: Callable[[Any], None]) -> None:
        self._node = node
        self._show = show
        self._hosts: dict[str, int] = {}  # how often each is attached

    @staticmethod
    def agents(hosts: Sequence[str]) -> tuple[ProcAddress, ...]:
        return tuple(ProcAddress(host, AGENT) for host in hosts)

    def attach(self, hosts: Sequence[str], trust: Trust) -> Future[bool]:
        """Say hello to the agent of each; from then on they watch over each other for this client.

        The future is done when all have answered. It raises RuntimeError as soon as one can't be reached: within
        `mesh_attach_config_timeout` if nobody listens there, at once if it is clear that waiting does not help.
        """
        agents = self.agents(hosts)
        for host in hosts:
            self._node.host_is_back(host)
            self._hosts[host] = self._hosts.get(host, 0) + 1
        self._node.call_system(self._node.address.agent, "join", tuple(hosts), trust, config.exported())
        request = _Attaching(agents, self._show)
        content = pickling.dumps(((config.exported(),), {}))
        self._node.cast(agents, SYSTEM, b"attach", content, request, ROOT, STANDING)
        return request.future

    def detach(self, hosts: Sequence[str]) -> None:
        """Let go of hosts: what this client has there ends."""
        for host in hosts:
            self._hosts[host] = self._hosts.get(host, 0) - 1
            if self._hosts[host] <= 0:
                del self._hosts[host]
        self._node.call_system(self._node.address.agent, "detach", tuple(hosts))

    def leave(self, reason: str, grace: float) -> Future[None]:
        """Stop what this client has on other hosts. What bounds it: the grace time, and a second."""
        if not self._hosts:
            return completed(None)
        agents = self.agents(list(self._hosts))
        request = StopCall("the procs on other hosts to end", agents)
        content = pickling.dumps(((self._node.root, reason, grace), {}))
        self._node.cast(agents, SYSTEM, b"stop_client", content, request, ROOT)
        timer = self._node.poller.call_later(grace + _LEAVE_BOUND, lambda: request.future._resolve(None))
        request.future._subscribe(timer.cancel)
        return request.future


class _Attaching:
    """The answers of the hosts, and then the output of what runs there: never done, as long as they are attached."""

    def __init__(self, agents: Sequence[ProcAddress], show: Callable[[Any], None]) -> None:
        self._missing = set(range(len(agents)))
        self._agents = list(agents)
        self._show = show
        self.future: Future[bool] = Future._new(Described(f"{len(agents)} hosts to be attached"))

    def reply(self, frame: Frame) -> bool:
        if frame.rank in self._missing:
            self._missing.discard(frame.rank)
            if frame.flags == ERROR:
                self._fail(frame.rank, str(load_error(frame.payload).exception))
            elif frame.flags != VALUE:
                self._fail(frame.rank, pickling.loads(frame.payload).reason)
            elif not self._missing:
                self.future._resolve(True)
        elif frame.flags == VALUE:
            event = pickling.loads(frame.payload, frame.buffers)
            if not isinstance(event, Failure):  # why its agent ends, which is told in other ways as well
                self._show(event)
        return False

    def peer_failed(self, address: ProcAddress, failure: Failure) -> bool:
        if address in self._agents:
            rank = self._agents.index(address)
            if rank in self._missing:
                self._missing.discard(rank)
                self._fail(rank, failure.reason)
        return False

    def _fail(self, rank: int, reason: str) -> None:
        self.future._reject(RuntimeError(f"attach failed on {self._agents[rank].host} (rank {rank}): {reason}"))
