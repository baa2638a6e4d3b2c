"""Addresses of hosts, for ``MASTER_ADDR`` and the like."""

from __future__ import annotations

import socket
from enum import Enum


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
    """The address of a host, for example ``127.0.0.1``, or ``[::1]`` in brackets.

    Raises:
        RuntimeError: Its name does not resolve to such an address.
    """
    why: OSError | None = None
    for family in _FAMILIES[addr_type]:
        try:
            host = str(socket.getaddrinfo(hostname, port, family, socket.SOCK_STREAM)[0][4][0])
        except OSError as error:
            why = error
        else:
            return f"[{host}]" if family == socket.AF_INET6 else host
    raise RuntimeError(f"{hostname!r} could not be resolved ({addr_type.name}): {why}")


def get_sockaddr(hostname: str, port: int) -> str:
    """The address of a host with a port, for example ``127.0.0.1:8080`` or ``[::1]:8080``.

    Raises:
        RuntimeError: Its name does not resolve.
    """
    return f"{get_ipaddr(hostname, port)}:{port}"
