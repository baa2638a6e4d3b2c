"""The agent's spawner: a child that may be busy, stopped, or gone."""

from __future__ import annotations

import os
import select
import signal
import socket
from collections.abc import Callable
from typing import Any

from ..._child_watch import ChildWatch, changes
from ..net.poller import Poller
from ..supervision.failure import frozen_reason
from .control import ControlQueue, ControlReader
from .heartbeat import Pauses

Heard = Callable[[Any, list[int]], None]
MakeSpawner = Callable[[Heard, Callable[[str], None]], Any]


class SpawnerLink:
    """The way to the spawner, and what it says.

    Args:
        poller: Of the agent.
        control: Socket to the spawner.
        pid: Its process.
        heard: Takes each of its records, and the descriptors that came with it.
        lost: Called with the reason when it is gone.
    """

    def __init__(
        self,
        poller: Poller,
        control: socket.socket,
        pid: int,
        heard: Heard,
        lost: Callable[[str], None],
    ) -> None:
        self._control = control
        self._pid = pid
        self._heard = heard
        self._lost = lost
        poller.add(control.fileno(), self._hear)
        self._queue = ControlQueue(control, lambda events: poller.modify(control.fileno(), events))
        self.send = self._queue.send
        self._reader = ControlReader(control)
        self._pauses = Pauses(poller, self._frozen)
        self._children = ChildWatch()
        poller.add(self._children.fd, lambda events: self._changed())
        self._changed()  # before this agent was told

    def _hear(self, events: int) -> None:
        if events & select.EPOLLOUT:
            self._queue.flush()
        try:
            record, fds = self._reader.receive()
        except BlockingIOError:
            return
        except (EOFError, ConnectionError):
            self._lost("the process that forks its procs was killed")
            return
        self._heard(record, fds)

    def _changed(self) -> None:
        self._children.clear()
        for pid, status in changes(self._pid):
            self._pauses.changed(pid, os.WIFSTOPPED(status))

    def _frozen(self, pid: int, seconds: float) -> None:
        os.kill(pid, signal.SIGKILL)  # its parent is this process, so the number is still its own
        self._lost(f"the process that forks its procs was {frozen_reason(seconds)}")
