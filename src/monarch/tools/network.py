"""Addresses of hosts, for ``MASTER_ADDR`` and the like."""

from __future__ import annotations

import socket
from enum import Enum
from ipaddress import ip_address


class AddrType(Enum):
    """Which kind of address is wanted; the default is IPv6 where the host has one."""

    Default = 1
    IPv4 = 2
    IPv6 = 3


_FAMILIES = {
    AddrType.Default: (socket.AF_INET6, socket.AF_INET),
    AddrType.IPv4: (socket.AF_INET,),
    AddrType.IPv6: (socket.AF_INET6,),
}


def get_ipaddr(hostname: str, port: int, addr_type: AddrType = AddrType.Default) -> str:
    """The address of a host, for example ``127.0.0.1`` or ``::1``, as ``MASTER_ADDR`` has it.

    Link-local addresses are passed over: other hosts can't use them.

    Raises:
        RuntimeError: Its name does not resolve to such an address.
    """
    why: OSError | str = "link-local addresses alone"
    for family in _FAMILIES[addr_type]:
        try:
            found = socket.getaddrinfo(hostname, port, family, socket.SOCK_STREAM)
        except OSError as error:
            why = error
            continue
        for *_, (host, *_) in found:
            if not ip_address(host).is_link_local:
                return str(host)
    raise RuntimeError(f"{hostname!r} could not be resolved ({addr_type.name}): {why}")


def get_sockaddr(hostname: str, port: int) -> str:
    """The address of a host with a port, for example ``127.0.0.1:8080`` or ``[::1]:8080``.

    Raises:
        RuntimeError: Its name does not resolve.
    """
    host = get_ipaddr(hostname, port)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
