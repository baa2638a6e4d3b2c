"""The choice of a transport, which old programs make."""

from __future__ import annotations

from .. import config
from .._core.client import client
from .._core.wire.channel import parse_channel
from .._core.wire.transport import ChannelTransport

_transport: ChannelTransport | str | None = None


def enable_transport(transport: ChannelTransport | str) -> None:
    """Check the transport by which other hosts may reach this one.

    Kept for old programs and without effect: the client makes all links, and both sides use them.

    Args:
        transport: A `ChannelTransport`; ``"ipc"``, ``"tcp"``, ``"tls"``, ``"metatls"``,
            ``"metatls-hostname"``; or an address, ``"tcp://ip:port"``.

    Raises:
        ValueError: It is none of these.
        RuntimeError: Another was chosen before, or the program uses the API already.
    """
    global _transport
    chosen: ChannelTransport | str = ChannelTransport.parse(transport)
    if isinstance(transport, str) and "://" in transport:
        chosen = parse_channel(transport).name
    current = _transport or config.value("default_transport")
    if chosen == current:
        return
    if _transport is not None:
        raise RuntimeError(
            f"the transport of this program is {_transport} already; it can't change to {chosen}"
        )
    if client.is_running():
        raise RuntimeError(
            "enable_transport() must come before anything else that uses monarch in this program"
        )
    _transport = chosen
