"""The client with hosts in its own process."""

from __future__ import annotations

from functools import partial
from typing import Any

from ..._core.client.client import Client
from ..._core.wire.address import ProcAddress
from .cells import LocalService
from .host import LocalAgent
from .hub import LocalHub, Network

HOME = "client-host"
"""Name of the host that the test itself runs on."""


class LocalClient(Client):
    """As the client of a process; the agents of its hosts are there when it is.

    Args:
        network: What they are part of.
    """

    service_kind = LocalService

    def __init__(self, network: Network) -> None:
        kind: Any = partial(LocalHub, network)
        self.hub_kind = kind
        super().__init__(HOME)
        self.hub.ended_hosts = {}  # those of the real client are of its whole process
        self._agents = [LocalAgent(network, host, self.hub.address) for host in network.hosts]

    def ensure_agent(self) -> ProcAddress:
        agent = self.hub.address.agent
        self.follow(agent)
        return agent

    def _look_for_signals(self) -> None: ...  # which takes time: that of the program does

    def _release(self) -> None: ...
