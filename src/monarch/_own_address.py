"""The name or address of this host, for others, and whether others reach one at all.

`spmd`, `elastic` and `tensor_engine` tell it to processes that are to meet here.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence
from typing import Literal
from urllib.parse import urlsplit

IPVersion = Literal["ipv4", "ipv6"]
FAMILIES = {"ipv4": socket.AF_INET, "ipv6": socket.AF_INET6}
_LOOPBACK = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}
_OUTSIDE = {socket.AF_INET: "192.0.2.1", socket.AF_INET6: "2001:db8::1"}  # RFC 5737, RFC 3849


def own_name(
    use_ipaddr: IPVersion | None = None, hosts: Sequence[str] | None = None, here: str = ""
) -> str:
    """Return the name of this host, or its address where the name means nothing to the host itself.

    Args:
        use_ipaddr: ``"ipv4"`` or ``"ipv6"`` for an address of that kind in any case.
        hosts: Where several hosts use it: their addresses, as far as they are known. It is then
            where the others reach this one: where it was attached, or from where it reaches them.
        here: The address of this host, if it was attached.
    """
    family = FAMILIES[use_ipaddr or "ipv4"]
    if hosts is not None:
        attached = _dialed(here)
        others = [name for name in map(_dialed, hosts) if name and name != attached]
        one_machine = all(map(is_loopback, (attached, *others)))
        if attached and not use_ipaddr and (one_machine or not is_loopback(attached)):
            return attached
        for other in filter(None, (attached, *others)):
            address = _own_address(family, other)
            if address and (one_machine or not is_loopback(address)):
                return address
    name = socket.gethostname()
    return _own_address(family) or _LOOPBACK[family] if use_ipaddr or not _resolves(name) else name


def is_loopback(host: str) -> bool:
    """True if only this machine reaches it, by a number or as ``localhost``."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _dialed(host: str) -> str:
    """The name or address in that of a host; empty for the program's own, which has none."""
    return urlsplit(host).hostname or ""


def _resolves(name: str) -> bool:
    try:
        return bool(socket.getaddrinfo(name, None))
    except OSError:
        return False


def _own_address(family: socket.AddressFamily, other: str = "") -> str:
    """The address from which this host reaches another, or any; empty if it does not."""
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((other or _OUTSIDE[family], 9))  # sends nothing: it chooses a route
        except OSError:
            return ""
        return str(probe.getsockname()[0])
