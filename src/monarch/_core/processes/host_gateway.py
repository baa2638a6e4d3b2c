"""A host's gateway, in its agent: between Unix sockets here and links to other hosts.

Decisions are in `routing.gateway`, which is pure; this carries it out. All of it runs on the
poller's thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from ... import config
from ..hub.message_hub import MessageHub
from ..net.connection import Connection
from ..net.links import Links
from ..net.segment import Segment
from ..net.trust import UNIX_ONLY, Trust, trust_for
from ..routing.cast import attaches
from ..routing.gateway import Gateway
from ..supervision.failure import Failure
from ..wire.address import AGENT, ProcAddress, random_name
from ..wire.frame import Frame

_LAST_WORDS = 1.0  # seconds within which what a process that has ended said last is read
_LEAVE = 1.0  # seconds that the farewell to other hosts may take
_MINUTE = 60
_BEGIN = 1_700_000_000  # seconds since 1970 at which epochs are counted from


class HostGateway:
    """The gateway of a host, with its connections.

    Args:
        hub: Hub of the agent.
        trust: Whom this host lets in, and how it proves itself; those that it dials may be given
            others. None for the shared secret, or for Unix sockets alone where there is none.
        on_host_gone: Called with its name when another host has left, or is lost.
    """

    def __init__(
        self, hub: MessageHub, trust: Trust | None, on_host_gone: Callable[[str], None]
    ) -> None:
        self._hub = hub
        self._on_host_gone = on_host_gone
        # processes here that have sent something to other hosts
        self._callers: dict[str, Connection] = {}
        self._ending: dict[str, Callable[[], None]] = {}
        epoch = int(time.time() - _BEGIN) // _MINUTE
        self.core = Gateway(self, config.value("max_cast_fanout"), epoch, *_timeouts())
        self.core.names = hub.names
        self.links = Links(
            hub.poller, random_name(), lambda: hub.address.host, trust or _by_secret(), self
        )
        hub.gateway = self._from_here
        hub.inbound_lost_hooks.append(self._caller_lost)
        hub.peer_lost_hooks.append(self._process_ended)

    def adapt(self) -> None:
        """Take over knobs that were changed."""
        self.links.adapt()
        self.core.reconnect, self.core.orphans = _timeouts()

    def close(self, reason: str) -> None:
        """Leave: casts are over, and every neighbour is told."""
        self.core.close()
        self.links.close(reason, _LEAVE)

    # from processes here

    def _from_here(self, connection: Connection | None, frame: Frame) -> None:
        if connection is not None:
            # it has said who it is
            self._callers[connection.peer.proc] = connection  # type: ignore[attr-defined]
        self.core.from_proc(frame)

    def _caller_lost(self, address: ProcAddress) -> None:
        if address.host in self._hub.names:
            self._callers.pop(address.proc, None)
            tell = self._ending.get(address.proc)
            if tell is not None:
                tell()

    def _process_ended(self, address: ProcAddress, failure: Failure) -> None:
        """A local process has ended, or its link; others are told once all it has said is read."""
        name = address.proc
        if address.host not in self._hub.names:
            return

        def tell() -> None:
            if self._ending.pop(name, None) is not None:
                self.core.proc_ended(address, failure)

        self._ending[name] = tell
        if name in self._callers:
            self._hub.poller.call_later(_LAST_WORDS, tell)
        else:
            tell()

    # what the core acts on

    def to_host(self, host: str, frame: Frame) -> None:
        self.links.send(host, frame, starting=attaches(frame))

    def give_up(self, host: str, reason: str) -> None:
        self.links.give_up(host, reason)

    def to_procs(
        self, frames: Sequence[tuple[ProcAddress, Frame]]
    ) -> list[tuple[ProcAddress, Failure]]:
        segment: Segment | None = None
        if len(frames) > 1 and frames[0][1].buffers:
            segment = self._hub.segments.make(frames[0][1].buffers)
        ended = []
        for address, frame in frames:
            if address.proc == AGENT:
                self._hub.others.arrived(frame, asks=True)
            elif failure := self._hub.peer_for(address, frame).send(frame, segment):
                ended.append((address, failure))
        return ended

    def answer(self, proc: str, frame: Frame) -> None:
        if proc == AGENT:
            self._hub.others.arrived(frame, asks=False)
        elif proc in self._callers:
            self._callers[proc].send(frame)

    def answer_all(self, proc: str, frames: bytes) -> None:
        connection = self._callers.get(proc)
        if connection is not None:
            connection.send_encoded(frames)

    def gone(self, proc: ProcAddress, frame: Frame) -> None:
        self.answer(proc.proc, frame)
        peer = self._hub.peers.get(proc)
        if proc.proc == AGENT or (peer is not None and peer.connection is not None):
            self.to_procs([(proc, frame)])

    def host_gone(self, host: str, failure: Failure) -> None:
        self._on_host_gone(host)

    def call_later(self, seconds: float, function: Callable[[], None]) -> Any:
        return self._hub.poller.call_later(seconds, function)

    # what links tell

    def frame_from(self, host: str, frame: Frame) -> None:
        self.core.from_host(host, frame)

    def link_up(self, host: str) -> None:
        pass

    def link_lost(self, host: str, reason: str) -> None:
        self.core.link_lost(host, reason)

    def called(self, name: str) -> None:
        self._hub.names.add(name)
        self._hub.hosts.add(name)


def _timeouts() -> tuple[float, float]:
    return config.value("channel_reconnect_timeout"), config.value("mesh_orphan_timeout")


def _by_secret() -> Trust:
    try:
        return trust_for()
    except ValueError:  # a file that can't be read: each link's error names it
        return Trust(UNIX_ONLY)
