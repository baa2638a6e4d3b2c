"""The route of a frame that leaves its host: sender, receiver, and place in the order.

The route stands before the frame's own meta, and the frame is flagged `ROUTED`, so that a
gateway reads a few bytes and touches neither payload nor buffers. Layout (little endian)::

    order u64 | cast u64 | four lengths u16 | host and proc of the receiver, host and proc of the sender
"""

from __future__ import annotations

import pickle
from struct import Struct

from ..._namedtuple import NamedTuple
from ..supervision.failure import Failure
from ..wire.address import ProcAddress
from ..wire.frame import GONE, ROUTED, Frame, FrameError

_HEADER = Struct("<QQHHHH")
_ORDER = Struct("<Q")

RESENT = 1
"""The order of an answer that was perhaps sent before: a caller that has it already drops it."""


class Route(NamedTuple):
    """The way of a frame between hosts.

    Attributes:
        to: The process that it is for.
        source: The process that it is from.
        order: Its number among all that `source` has sent to this host, see `order`; 0 where none
            is kept.
        cast: The cast that it belongs to, see `cast`; 0 for none.
    """

    to: ProcAddress
    source: ProcAddress
    order: int = 0
    cast: int = 0


def route_prefix(route: Route) -> bytes:
    """The route as it stands before a frame's meta.

    Raises:
        ValueError: A name is longer than 65,535 bytes.
    """
    names = [name.encode() for name in (*route.to, *route.source)]
    if max(map(len, names)) > 0xFFFF:
        raise ValueError(
            f"a host or process name of more than 65,535 bytes: {route.to}, {route.source}"
        )
    return b"".join((_HEADER.pack(route.order, route.cast, *map(len, names)), *names))


def with_prefix(frame: Frame, prefix: bytes) -> Frame:
    """The frame behind a route that was encoded before."""
    return frame._replace(flags=frame.flags | ROUTED, meta=prefix + frame.meta)


def with_route(frame: Frame, route: Route) -> Frame:
    return with_prefix(frame, route_prefix(route))


def with_order(frame: Frame, order: int) -> Frame:
    """A routed frame with another number."""
    return frame._replace(meta=_ORDER.pack(order) + frame.meta[_ORDER.size :])


def read_route(frame: Frame) -> tuple[Route, int]:
    """The route of a routed frame, and the number of bytes that it takes of the meta.

    Raises:
        FrameError: The frame has none.
    """
    meta = frame.meta
    try:
        order, cast, a, b, c, d = _HEADER.unpack_from(meta)
        one = _HEADER.size + a
        two, three = one + b, one + b + c
        end = three + d
        if end > len(meta):
            raise ValueError
        to = ProcAddress(meta[_HEADER.size : one].decode(), meta[one:two].decode())
        source = ProcAddress(meta[two:three].decode(), meta[three:end].decode())
    except Exception as error:
        raise FrameError("a route that does not fit its frame") from error
    return Route(to, source, order, cast), end


def split_route(frame: Frame) -> tuple[Route, Frame]:
    """The route of a routed frame, and the frame as it was before.

    Raises:
        FrameError: The frame has none.
    """
    route, size = read_route(frame)
    return route, frame._replace(flags=frame.flags & ~ROUTED, meta=frame.meta[size:])


def gone(to: ProcAddress, who: ProcAddress, failure: Failure) -> Frame:
    """News for `to`: a process has ended, or with an agent a whole host."""
    return with_route(Frame(GONE, 0, 0, 0, 0, 0, b"", pickle.dumps(failure)), Route(to, who))
