"""The names of transports, and the choice of one, which old programs make."""

from __future__ import annotations

from enum import Enum

from .. import config
from .._core.client import client
from .._core.wire.channel import parse_channel


class ChannelTransport(str, Enum):
    """How processes talk to each other."""

    Unix = "Unix"
    TcpWithLocalhost = "TcpWithLocalhost"
    TcpWithHostname = "TcpWithHostname"
    MetaTlsWithHostname = "MetaTlsWithHostname"
    MetaTlsWithIpV6 = "MetaTlsWithIpV6"
    Tls = "Tls"
    Local = "Local"
    Quic = "Quic"
    MetaQuicWithHostname = "MetaQuicWithHostname"
    MetaQuicWithIpV6 = "MetaQuicWithIpV6"

    @classmethod
    def parse(cls, spec: ChannelTransport | str) -> ChannelTransport:
        """Return the transport that a name, or an address ``tcp://host:port``, asks for.

        Args:
            spec: A name, an address, or a transport, which is returned.

        Raises:
            ValueError: There is no such transport.
        """
        if isinstance(spec, ChannelTransport):
            return spec
        found = _SHORT.get(spec) or cls.__members__.get(spec)
        if found is None and isinstance(spec, str) and spec.startswith("tcp://"):
            found = cls.TcpWithHostname
        if found is None:
            raise ValueError(
                f"invalid str for BindSpec: {spec!r}; use one of {', '.join(_SHORT)}, or"
                " 'tcp://ip:port'"
            )
        return found


class BindSpec(str):
    """The checked argument of `enable_transport`: the name of a transport, or an address.

    Raises:
        ValueError: There is no such transport.
    """

    def __new__(cls, spec: ChannelTransport | str) -> BindSpec:
        transport = ChannelTransport.parse(spec)
        return super().__new__(cls, spec if "://" in spec else transport.value)

    def __repr__(self) -> str:
        return f"BindSpec({str(self)!r})"


_SHORT = {
    "ipc": ChannelTransport.Unix,
    "unix": ChannelTransport.Unix,
    "tcp": ChannelTransport.TcpWithHostname,
    "metatls": ChannelTransport.MetaTlsWithIpV6,
    "metatls-hostname": ChannelTransport.MetaTlsWithHostname,
    "tls": ChannelTransport.Tls,
}

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
