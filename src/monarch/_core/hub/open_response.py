"""Calls that are answered through a port, and whether a copy is left that could do so.

The process of the actor that was called keeps the call. The port, and each copy of it, tells this
process when it has arrived, is handed on, has answered or is gone; and the process hears of the end
of those with copies.

A message with a copy is pickled once, whatever the number of its ranks, and news of several senders
come in any order. So messages are counted by their numbers, and each copy that arrives says how
many ranks its message had. A call is lost when nobody holds its port, and as many copies of each
message have arrived as it had ranks. In doubt it waits: a copy may be in a mailbox.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..calls.failed_call import Reply
from ..supervision.failure import Failure
from ..wire.address import ProcAddress
from ..wire.frame import Frame

if TYPE_CHECKING:
    from .contracts import Origin

ANSWERED, ARRIVED, GONE, HANDED_ON = range(4)
"""News of a port."""


class OpenResponse:
    """A call that waits for its answer through a port.

    Args:
        uid: Of the actor that was called.
        origin: Where the call came from.
        frame: The call, without its arguments.
        here: This process, which has the port that the endpoint was given.
        check: Called when the call may be lost.

    Attributes:
        holders: The processes that have the port or a copy, once for each.
        death: The end of one of these.
    """

    def __init__(
        self, uid: int, origin: Origin, frame: Frame, here: ProcAddress, check: Callable[[], object]
    ) -> None:
        self.uid = uid
        self.origin = origin
        self.frame = frame
        self.holders = [here]
        self.death: Failure | None = None
        self._check = check
        # copies that have yet to arrive, by message; how many there are, the first of them says
        self._awaited: dict[int, float] = {}

    def hear(self, holder: ProcAddress, news: int, message: int, ranks: int) -> None:
        """Take news of a copy on `holder`; `message` has brought it to so many ranks, or takes it
        away.
        """
        if news == HANDED_ON:
            self._awaited.setdefault(message, math.inf)
        elif news == ARRIVED:
            self._awaited[message] = min(self._awaited.get(message, math.inf), ranks) - 1
            self.holders.append(holder)
        elif holder in self.holders:
            self.holders.remove(holder)
            self._check()

    def process_gone(self, address: ProcAddress, answer: Reply) -> None:
        """Take the end of a process that has copies, which is the answer of one that has ended."""
        self.holders = [each for each in self.holders if each != address]
        if isinstance(answer, Failure):
            self.death = answer
        self._check()

    def is_lost(self) -> bool:
        """Return whether there is no copy left that could answer."""
        return not self.holders and all(left <= 0 for left in self._awaited.values())
