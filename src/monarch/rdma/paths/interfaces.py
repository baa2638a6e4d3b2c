"""Which network interface leads to another machine.

UCX would use any, also those of bridges that lead nowhere else.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct

from ..._core.plane import parse_channel
from ...errors import AddressError

_SIOCGIFADDR = 0x8915
_NAME_AND_ADDRESS = "16s4x4s8x"  # of `struct ifreq`, with an IPv4 address
_ANY_PORT = 9


def interface_between(here: str, there: str) -> str | None:
    """Name of this machine's interface towards another.

    It is None where that can't be told, or is the loopback.

    Args:
        here: This host, as in a `ProcAddress`.
        there: The other one. The name of a client's host tells nothing; then it is that at which
            `here` is reached.
    """
    for host in (there, here):
        address = _own_address_towards(host)
        if address is not None:
            return None if address.startswith("127.") else _interface_of(address)
    return None


def _own_address_towards(host: str) -> str | None:
    """The IPv4 address that packets to a host carry as their source; none is sent."""
    try:
        channel = parse_channel(host)
    except AddressError:
        return None
    if not channel.is_tcp:
        return None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((channel.host, _ANY_PORT))
        except OSError:  # no such name, no way there, only IPv6
            return None
        return str(probe.getsockname()[0])


def _interface_of(address: str) -> str | None:
    wanted = socket.inet_aton(address)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            request = struct.pack(_NAME_AND_ADDRESS, os.fsencode(name), bytes(4))
            try:
                answer = fcntl.ioctl(any_socket, _SIOCGIFADDR, request)
            except OSError:  # it has no IPv4 address
                continue
            if struct.unpack(_NAME_AND_ADDRESS, answer)[1] == wanted:
                return name
    return None
