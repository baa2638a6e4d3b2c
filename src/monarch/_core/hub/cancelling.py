"""Calls that are dropped before they begin.

The word to drop a call follows it on the same way, so that it finds it there; one that has begun does not hear of it. What
was dropped is answered as such.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..wire.address import ProcAddress
from ..wire.frame import CALL, CANCEL, Frame
from .contracts import Hub


def cancel_call(hub: Hub, number: int, actor: int, procs: Iterable[tuple[int, ProcAddress]]) -> bool:
    """Have a call dropped by the actors that have not begun with it.

    Args:
        number: Of the request.
        actor: Id of the actors that were called.
        procs: Where they are, with the rank of each.
    """
    for rank, address in procs:
        hub.send_to(address, Frame(CALL, CANCEL, rank, actor, 0, number, b"", b""))
    return True
