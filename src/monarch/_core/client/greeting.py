"""The greeting of each host agent that a client uses: a control record of a plane."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import config
from ..extension import kept_logs
from ..hub.contracts import Hub
from ..hub.control import send_record
from ..wire.address import ProcAddress

Record = tuple[Any, ...]


class Greeting:
    """Sends it, to each agent once. There is one at a time."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._own: list[ProcAddress] = []  # the agent of this machine, if it was started
        self.record: Any = None

    def set(self, record: Record) -> None:
        """Send this from now on to agents that are not used yet, and to that of this machine."""
        self.record = record
        self.send(self._own)

    def send(self, agents: Sequence[ProcAddress]) -> None:
        """These agents are used from now on: nothing was spawned there yet."""
        if agents == [self._hub.address.agent]:
            self._own = list(agents)
        if self.record is None and config.value("enable_file_capture"):
            self.record = kept_logs()
        if self.record is not None and agents:
            send_record(self._hub, agents, self.record)
