"""The head of a call: the method, and the geometry of the mesh or slice it was sent to.

It is the same for every call of one endpoint, so it is encoded once per endpoint and decoded once
per receiver.
"""

from __future__ import annotations

import functools

from ..shape import Extent
from ..wire.frame import REPLY, Frame

NO_EXTENT = Extent([], [])

SUPERVISE = b"\0supervise"
"""Meta of the message by which an owner hears of a failure; no method can be called that."""

SETTLE = b"\0settle"
"""Meta of a call that every actor answers: everything sent to it before has been handled."""

UPDATE_CLASS = b"\0update_class"
"""Meta of the call that has an actor take another class."""

TRACE = b"\0\0"
"""Between the meta of a call and the W3C trace context of its caller, where that has one."""

_ANYTHING = "backslashreplace"


class Traced(str):
    """The name of an endpoint that was called with a trace context, for those who look at that.

    Attributes:
        trace: It, as the header ``traceparent`` has it.
    """

    trace = ""

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)


def encode_meta(method: str, extent: Extent) -> bytes:
    """Write the name of an endpoint, and the extent that was called, as a frame carries them."""
    parts = [method]
    for label, size in zip(extent.labels, extent.sizes, strict=True):
        parts += [label, str(size)]
    return "\0".join(parts).encode()


def answer_to(call: Frame, flags: int, payload: bytes = b"") -> Frame:
    """Make the frame that answers a call."""
    return Frame(REPLY, flags, call.rank, call.target, call.sender, call.request, b"", payload)


@functools.lru_cache(maxsize=4096)
def decode_meta(meta: bytes) -> tuple[str, Extent]:
    """The name of an endpoint, and the extent that was called; a name that no endpoint has, where a
    broken peer has sent anything.
    """
    if meta.startswith(b"\0"):
        return meta.decode(errors=_ANYTHING), NO_EXTENT
    call, _, trace = meta.partition(TRACE)
    text = call.decode(errors=_ANYTHING)
    method, *geometry = text.split("\0")
    try:
        extent = Extent(geometry[::2], list(map(int, geometry[1::2])))
    except ValueError:
        method, extent = text, NO_EXTENT
    if trace:
        method = Traced(method)
        method.trace = trace.decode(errors=_ANYTHING)
    return method, extent
