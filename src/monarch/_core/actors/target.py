"""The actors that an endpoint addresses: one id, and a process for each rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..hub.contracts import Request
from ..shape import Extent
from ..supervision.failure import Failure
from ..wire.address import ProcAddress
from .context import context

if TYPE_CHECKING:
    from ..hub.message_hub import MessageHub
    from ..wire.reducers import Dumped, Loan
    from .base_cell import BaseCell
    from .ports import Port


class Target:
    """The addressed ranks of an actor mesh.

    Args:
        uid: The actor's id, the same in every process.
        name: Name of the mesh, for messages.
        procs: The process of each rank, in row-major order.
        extent: The geometry of the ranks addressed.
    """

    __slots__ = ("extent", "name", "procs", "uid")

    def __init__(self, uid: int, name: str, procs: Sequence[ProcAddress], extent: Extent) -> None:
        self.uid = uid
        self.name = name
        self.procs = procs
        self.extent = extent

    def cast(
        self,
        meta: bytes,
        content: Dumped | Loan,
        request: Request | None,
        ranks: Sequence[int] | None = None,
        reply_to: Port[Any] | None = None,
        flags: int = 0,
        sender: BaseCell | None = None,
    ) -> int:
        """Send a call to some ranks, or to all; return the number of the request.

        The sender is the actor `sender`, by default the current one. A message with a `Loan` is
        sent as that is made.
        """
        cell = context()._cell if sender is None else sender
        procs = self.procs if ranks is None else [self.procs[rank] for rank in ranks]
        if reply_to is not None:
            request = reply_to._as_request(procs[0], ranks[0] if ranks else 0)
        if request is None:
            cell.note_unsettled(self.uid, procs)
        if isinstance(content, tuple):
            return cell.hub.cast(procs, self.uid, meta, content, request, cell.uid, flags, ranks)
        with content as dumped:
            return cell.hub.cast(procs, self.uid, meta, dumped, request, cell.uid, flags, ranks)

    def known_failure(self, hub: MessageHub) -> Failure | None:
        """Why the first rank that is known to be gone, and for good, is.

        Each one-way message asks: so few calls for each rank.
        """
        fates = hub.actors.fates
        for address in self.procs:
            peer = hub.peers.get(address)
            if peer is None or peer.failure is not None or (address, self.uid) in fates:
                failure = hub.fate(address, self.uid)
                if failure is not None:
                    return failure
        return None

    def living_ranks(self, hub: MessageHub) -> list[int]:
        """Ranks that are not known to be gone."""
        return [
            rank for rank, address in enumerate(self.procs) if hub.fate(address, self.uid) is None
        ]

    def __reduce__(self) -> Any:
        return Target, (self.uid, self.name, tuple(self.procs), self.extent)
