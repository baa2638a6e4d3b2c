"""Processes reachable from here without being attached: clients on this machine, and other hosts.

A mesh, or a port, may come to a process that has nothing to do with its owner: a child made by
`multiprocessing`, a fork, a program that finds it in a file. Such a process is a client of its own,
with a host of its own. The host of a client has no address, so there is no link that could lead to
it; what runs there is reached over Unix sockets, as on the same host, or not at all. Both sides
find each other so, and each checks that the other is of the same user.

Ownership is as ever: a client owns the actors that it spawns on another's processes, and they end
with its connection.
"""

from __future__ import annotations

from collections.abc import Callable

from ..net import unix
from ..supervision.failure import HOST, Failure, host_lost
from ..wire.address import AGENT, ProcAddress, has_address
from .contracts import Hub

GONE = "the program that it belongs to has ended, or runs on another machine"


class Neighbours:
    """The peers of this process that were never attached.

    Args:
        hub: That of this process.
    """

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        # a worker's processes are no neighbours of clients: they go by an address, at which anybody
        # finds them
        self._has_any = hub.root.proc != AGENT and not has_address(hub.address.host)
        self.abroad: Callable[[str], Failure | None] = lambda host: None
        """Asked before a host that has an address is used for the first time: why it can't be
        reached, if that is known.
        """

    def include(self, address: ProcAddress) -> bool:
        """Return whether processes of another host are reached like local ones.

        Determined at the first meeting.
        """
        if not self._has_any or has_address(address.host):
            return False
        hub = self._hub
        if address.host not in hub.hosts:
            # before the look: the way to it is that of a local process from now on, also to learn
            # that it has ended
            hub.hosts.add(address.host)
            failure = self._look_for(address)
            if failure is not None:
                hub.note_end(address.agent, failure)
        return True

    def no_way(self, address: ProcAddress) -> Failure | None:
        """Why nothing can be sent to a process, as far as that is known without waiting."""
        host = address.host
        if host in self._hub.names:
            return None
        if self.include(address):
            return self._hub.process_fate(address.agent)
        return self.abroad(host)

    def _look_for(self, address: ProcAddress) -> Failure | None:
        """Return the failure of a process that can't be reached; None if it can.

        A client may have no agent yet, and a process may have ended before.
        """
        for there in dict.fromkeys((address, address.agent)):
            try:
                # only whether it lets us in: the peer connects by itself later
                unix.connect(self._hub.local(there)).close()
                return None
            except unix.PeerRefused as error:
                return Failure(HOST, str(error), proc=str(there))
            except ConnectionRefusedError:
                continue
            except OSError:
                # it does listen, or this process has no descriptor left: the peer tries again
                return None
        return host_lost(str(address.agent), GONE)
