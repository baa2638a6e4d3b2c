"""The black boxes of a host's procs: held during life, emptied on failure, kept an hour."""

from __future__ import annotations

import os
import time
from collections import deque

from ..._namedtuple import NamedTuple
from ..hub.black_box import empty_out, take_over
from ..hub.control_records import HostedProc, ProcReady
from .proc_entry import ProcEntry

_MOST = 256  # boxes, of 64 KiB each: what a host keeps of the dead is below 16 MiB
_KEPT = 3600.0  # seconds


class DeadProc(NamedTuple):
    """The black box of a dead proc.

    Attributes:
        proc: Its description, with its end.
        at: When it was emptied out; `time.time`.
        box: For `black_box.content_of`.
    """

    proc: HostedProc
    at: float
    box: bytes


class BlackBoxes:
    """See the module."""

    def __init__(self) -> None:
        self._held: dict[ProcEntry, int] = {}  # descriptors
        self._dead: deque[DeadProc] = deque(maxlen=_MOST)

    def take_over(self, entry: ProcEntry, record: ProcReady) -> None:
        """A proc has told the number of its descriptor."""
        if record.box >= 0 and entry not in self._held:
            ours = take_over(record.pid, record.box, str(entry.address))
            if ours >= 0:
                self._held[entry] = ours

    def empty_out(self, entry: ProcEntry) -> None:
        """A proc has ended. Boxes of stopped ones are of no interest."""
        fd = self._held.pop(entry, -1)
        if fd < 0:
            return
        if entry.end is None or entry.end.is_stop:
            os.close(fd)
        else:
            self._dead.append(DeadProc(entry.describe(), time.time(), empty_out(fd)))

    def all(self) -> list[DeadProc]:
        """The procs that failed within the last hour."""
        while self._dead and time.time() - self._dead[0].at > _KEPT:
            self._dead.popleft()
        return list(self._dead)
