"""The other hosts that a client uses: attached, watched over, let go."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence, Set
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ... import config
from ..._lazy import lazy_logger
from ..._words import HOST_NAMES
from ..actors.request import StopCall
from ..calls.future import Future
from ..calls.pending import subscribe
from ..calls.promise import Promise, completed
from ..calls.remote_error import refusal
from ..extension import progress
from ..hub.control import send_record
from ..hub.control_records import Attach, Detach, EndHost, JoinHosts, ShutDownHost, StopClient
from ..hub.message_hub import MessageHub
from ..supervision.failure import HOST, NOT_ATTACHED, NOT_LET_IN, UNSTARTED, Failure
from ..wire import pickling
from ..wire.address import AGENT, ROOT, ProcAddress
from ..wire.frame import STANDING, VALUE, Frame

if TYPE_CHECKING:
    from ..net.trust import Trust

logger = lazy_logger("monarch.client")

Greet = Callable[[Sequence[ProcAddress]], None]

# seconds beyond the grace time in which other hosts say that what the client had there is gone
_LEAVE_BOUND = 1.0


class AttachedHosts:
    """The hosts that this client has attached.

    Args:
        hub: Hub of the client.
        show: Takes the output of procs there.
        greet: Called with agents that are attached, before anything else is sent to them.

    Attributes:
            looks_on: Whether this client only looks at what others do there: hosts that it attaches
            from now on keep their settings.
    """

    def __init__(
        self, hub: MessageHub, show: Callable[[ProcAddress, Any], None], greet: Greet
    ) -> None:
        self._hub = hub
        self._show = show
        self._greet = greet
        self._lock = threading.Lock()  # hosts are let go on any thread
        self._hosts: dict[str, set[object]] = {}  # and who has attached each
        self._trust: dict[str, Trust] = {}  # how each of them was attached
        self._left: set[str] = set()  # hosts that were attached
        self._given_up: set[str] = set()  # hosts that were let go before they were attached
        # identities of those that have answered, and their names
        self._workers: dict[str, str] = {}
        self._attaching: set[Future[bool]] = set()
        self.looks_on = False

    @property
    def names(self) -> list[str]:
        """The hosts that are attached."""
        return list(self._hosts)

    def no_way_in(self, host: str) -> Failure | None:
        """Why a host can't be used, if that is known: one that is not attached is opened by the
        shared secret, if there is one.
        """
        if host in self._hosts:
            return None
        self._hub.unattached.add(host)
        if self._hosts or self._left:  # the agent has a way to prove itself
            return None
        # brings TLS, which a program on one machine never needs
        from ..net.trust import require_secret

        try:
            require_secret(host)
        except ValueError as error:
            return Failure(HOST, f"{NOT_LET_IN}, and {error}", proc=host)
        return None

    @staticmethod
    def agents(hosts: Sequence[str]) -> tuple[ProcAddress, ...]:
        return tuple(ProcAddress(host, AGENT) for host in hosts)

    def attach(self, hosts: Sequence[str], trust: Trust, by: object, name: str) -> Future[bool]:
        """Say hello to the agent of each host; they watch over each other until `by` detaches them.

        `name` is that of all of them, for people.

        The future is done when all have answered. It raises RuntimeError as soon as one can't be
        reached: within `mesh_attach_config_timeout` if nothing listens there, at once if it is
        clear that waiting does not help.

        Raises:
            ValueError: One of them is attached already by another secret, or other certificates.
                Nothing was done.
        """
        with self._lock:
            for host in hosts:
                self._check_trust(host, trust)
            self._trust.update(dict.fromkeys(hosts, trust))
            known = {host for host in hosts if host in self._hosts or host in self._left}
            self._hub.unreached.update(host for host in hosts if host not in self._hosts)
            for host in hosts:
                self._hosts.setdefault(host, set()).add(by)
            self._left.difference_update(hosts)
            self._hub.unattached.difference_update(hosts)
            self._given_up.difference_update(hosts)
            names = {host: f"{name}[{at}]" for at, host in enumerate(hosts)} if name else {}
            HOST_NAMES.update(names)
            join = JoinHosts(tuple(hosts), trust, config.exported(), names)
            send_record(self._hub, self._hub.address.agent, join)
        request = _Attaching(self, hosts, known)
        request.send(range(len(hosts)))
        self._attaching.add(request.future)
        subscribe(request.future, lambda: self._attaching.discard(request.future))
        return request.future

    def _check_trust(self, host: str, trust: Trust) -> None:
        """Refuse another `trust` for an attached host: its link has proved its identity already."""
        attached = self._trust.get(host)
        if attached is None or attached == trust or host in self._hub.unreached:
            return
        if not host.startswith(("tcp://", "metatls://")):
            return
        raise ValueError(
            f"{host} is attached already ({attached.mode}); what is given now ({trust.mode}) is"
            " different and would have no effect: pass the same, or stop the first mesh of hosts"
        )

    def settle(self, timeout: float) -> None:
        """Wait until the hosts being attached are, or can't be; for `timeout` seconds at most.

        Messages to hosts that have not answered by then are lost with the program, which says so.
        """
        end = time.monotonic() + timeout
        for future in list(self._attaching):
            with suppress(RuntimeError, TimeoutError):
                future.get(timeout=max(0.0, end - time.monotonic()))
        if not all(future.done() for future in list(self._attaching)):
            silent = sorted(self._hub.unreached & self._hosts.keys())
            logger.warning(
                "the program ends before these hosts have answered; what it sent there is lost: %s",
                ", ".join(silent[:3]) + ", ..." * (len(silent) > 3),
            )

    def give_up(self, hosts: Sequence[str], why: str, by: object) -> None:
        """Give up on hosts that have not answered, unless others have attached them as well."""
        for host in hosts:
            if host in self._hub.unreached and self._hosts.get(host) == {by}:
                self._given_up.add(host)
                failure = Failure(UNSTARTED, f"{NOT_ATTACHED}: {why}", proc=host)
                self._hub.others.gone(ProcAddress(host, AGENT), failure, asks=False)

    def detach(self, hosts: Sequence[str], by: Set[object]) -> None:
        """Let go of hosts; unless others hold them as well, what this client has there ends."""
        with self._lock:
            for host in hosts:
                if host in self._hosts:  # else who has shut it down has let go of it for all
                    self._hosts[host] -= by
                    if not self._hosts[host]:
                        del self._hosts[host], self._trust[host]
                        self._left.add(host)
            for identity in [
                identity for identity, host in self._workers.items() if host not in self._hosts
            ]:
                del self._workers[identity]
            # all: hosts that were attached together are watched together, and each may have been
            # left at another time
            send_record(self._hub, self._hub.address.agent, Detach(tuple(self._left)))

    def shut_down(self, hosts: Sequence[str], grace: float) -> Future[None]:
        """Stop what runs on hosts, then end their workers once all have answered.

        A host that is lost has ended. What bounds it: the grace time, and the loss of those that do
        not answer.
        """
        agents = self.agents(hosts)
        holders = {by for host in hosts for by in self._hosts.get(host, ())}
        request = StopCall("the hosts to shut down", agents)
        done: Promise[None] = Promise(f"{len(hosts)} hosts to be shut down")

        def end() -> None:
            send_record(self._hub, agents, EndHost())
            self.detach(hosts, holders)
            done.resolve(None)

        send_record(self._hub, agents, ShutDownHost("shut down by a client", grace), request, ROOT)
        subscribe(request.future, end)
        return done.future

    def leave(self, others: Sequence[ProcAddress], reason: str, grace: float) -> Future[None]:
        """Stop what this client has on these hosts, and at `others`.

        What bounds it: the grace time, and a second.
        """
        agents = (*self.agents(list(self._hosts)), *others)
        if not agents:
            return completed(None)
        request = StopCall("the procs on other hosts to end", agents)
        send_record(self._hub, agents, StopClient(self._hub.root, reason, grace), request, ROOT)
        timer = self._hub.poller.call_later(grace + _LEAVE_BOUND, lambda: request.resolve(None))
        subscribe(request.future, timer.cancel)
        return request.future


class _Attaching(Promise[bool]):
    """The answers of the hosts, and then the output of what runs there: never done, as long as they
    are attached.

    Args:
        client: The hosts that the client has attached.
        hosts: Those that are asked.
        known: Hosts to which there may be a link that is about to be lost, as another worker runs
            there now. They are given a second chance.
    """

    def __init__(self, client: AttachedHosts, hosts: Sequence[str], known: set[str]) -> None:
        self._client = client
        self._hub = client._hub
        self._agents = client.agents(hosts)
        self._missing = dict(enumerate(hosts))
        self._attach = Attach(None if client.looks_on else config.exported())
        self._known = known
        self._shown: dict[int, int] = {}  # by rank: number of the last output shown
        super().__init__(f"{len(hosts)} hosts to be attached")
        limit = config.value("mesh_attach_config_timeout")
        progress(self._hub.poller, self._missing.values(), len(hosts), limit, self.future)

    def send(self, ranks: Sequence[int]) -> None:
        agents = tuple(self._agents[rank] for rank in ranks)
        for agent in agents:
            self._hub.host_is_back(agent.host)
        send_record(self._hub, agents, self._attach, self, ROOT, STANDING, ranks)
        self._client._greet(agents)

    def reply(self, frame: Frame) -> bool:
        if frame.rank in self._missing:
            del self._missing[frame.rank]
            self._hub.unreached.discard(self._agents[frame.rank].host)
            why = refusal(frame)
            if why is not None:
                self._fail(frame.rank, why)
            else:
                self._answered(frame.rank, pickling.loads(frame.payload))
        elif frame.flags == VALUE and frame.meta:
            # else repeated, or why its agent ends, which is told otherwise
            number = int.from_bytes(frame.meta, "big")
            if number > self._shown.get(frame.rank, 0):
                self._shown[frame.rank] = number
                output = pickling.loads(frame.payload, frame.buffers)
                self._client._show(self._agents[frame.rank], output)
        return False

    def _answered(self, rank: int, identity: str) -> None:
        host = self._agents[rank].host
        name = self._client._workers.setdefault(identity, host)
        if name != host:
            reason = f"it is {name} by another name: attach each worker once"
            failure = Failure(UNSTARTED, f"{NOT_ATTACHED}: {reason}", proc=host)
            # procs spawned under the other name fail, too
            self._hub.others.gone(self._agents[rank], failure, asks=False)
            self._fail(rank, reason)
        elif not self._missing:
            self.resolve(True)

    def peer_failed(self, address: ProcAddress, failure: Failure) -> bool:
        if address in self._agents:
            rank = self._agents.index(address)
            if rank in self._missing:
                self._could_not_reach(rank, failure)
        return False

    def _could_not_reach(self, rank: int, failure: Failure) -> None:
        host = self._agents[rank].host
        if host in self._known - self._client._given_up:
            self._known.discard(host)
            self._hub.poller.call_soon(lambda: self.send([rank]))
        else:
            del self._missing[rank]
            self._fail(rank, failure.reason.removeprefix(f"{NOT_ATTACHED}: "))

    def _fail(self, rank: int, reason: str) -> None:
        self.reject(
            RuntimeError(f"attach failed on {self._agents[rank].host} (rank {rank}): {reason}")
        )
