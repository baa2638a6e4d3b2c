"""One call to many processes: encoded once, and written to every connection that has room.

Waits for nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..._interrupts import HeldInterrupts
from ..net.group import Group
from ..wire.address import ProcAddress
from ..wire.frame import Frame, encode_around_rank, pack_rank
from .contracts import Way
from .local_peer import LocalPeer


def write_to_each(
    peers: Mapping[ProcAddress, Way],
    procs: Iterable[tuple[int, ProcAddress]],
    call: Frame,
    answers: Group | None,
) -> Sequence[tuple[int, ProcAddress]]:
    """Write a call to the peers with an idle connection that is up; return the others.

    Args:
        procs: With the rank of each, which is all that differs in what they get.
        answers: The connections that the answers come over. They are lent meanwhile, as the first
            answers would wake up the poller's thread, which would slow down the thread that
            still asks the others.
    """
    before, after = encode_around_rank(call)
    if answers is None:
        return _write(peers, procs, before, after, call.request)
    # one that came before they are given back would leave them lent for ever
    with HeldInterrupts(_do_nothing):
        lent = answers.borrow()
        try:
            return _write(peers, procs, before, after, call.request)
        finally:
            if lent:
                answers.give_back()


def _write(
    peers: Mapping[ProcAddress, Way],
    procs: Iterable[tuple[int, ProcAddress]],
    before: bytes,
    after: bytes,
    request: int,
) -> list[tuple[int, ProcAddress]]:
    left = []
    for one in procs:
        peer = peers.get(one[1])
        # only where one write does: what waits, or is not connected, takes the usual way after
        # these
        connection = peer.connection if peer.__class__ is LocalPeer else None
        if connection is None or not connection.write_if_idle(
            b"".join((before, pack_rank(one[0]), after)), request
        ):
            left.append(one)
    return left


def _do_nothing() -> None: ...
