"""The user at the other end of a local TCP connection, by the kernel's table."""

from __future__ import annotations

import ipaddress
import os
import socket
import struct

from ... import config
from .unix import PeerRefused, check_peer

NOT_OPEN = (
    "without a secret or certificates, only loopback may be used. Make a secret (`monarch secret`),"
    " or pass ca= and private_key=; or let whoever can connect run code here:"
    " allow_unauthenticated_tcp"
)

_MAPPED = bytes(10) + b"\xff\xff"  # an IPv4 address in a table of IPv6
_ESTABLISHED, _CLOSE_WAIT = b"01", b"08"


def check_same_user(sock: socket.socket) -> None:
    """Check that the other end is a process of our user on this host.

    Raises:
        PeerRefused: It is not, or the kernel does not say.
    """
    if sock.family == socket.AF_UNIX:
        check_peer(sock)
        return
    peer = sock.getpeername()
    if not is_loopback(peer[0]):
        raise PeerRefused(
            "it is not on this host, and without a secret or certificates only this host is let in"
        )
    uid = _user_of(peer, sock.getsockname())
    if uid is None:
        raise PeerRefused("the kernel does not say which user it runs as")
    if uid != os.geteuid():
        raise PeerRefused(f"it runs as user {uid}, not as user {os.geteuid()}")


def is_loopback(host: str) -> bool:
    address = ipaddress.ip_address(host)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def is_open_to(host: str) -> bool:
    """Return whether `host` may be connected from and to without authentication."""
    return is_loopback(host) or bool(config.value("allow_unauthenticated_tcp"))


def _user_of(local: tuple[str, int], remote: tuple[str, int]) -> int | None:
    """The user of the connected socket that has these ends, seen from itself."""
    ends = [(_packed(host), port) for host, port in (local[:2], remote[:2])]
    if all(len(host) == 4 for host, _ in ends):
        found = _look_up("/proc/net/tcp", ends)
        if found is not None:
            return found
        ends = [(_MAPPED + host, port) for host, port in ends]
    return _look_up("/proc/net/tcp6", ends)


def _packed(host: str) -> bytes:
    address = ipaddress.ip_address(host.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).packed


def _look_up(table: str, ends: list[tuple[bytes, int]]) -> int | None:
    try:
        with open(table, "rb") as file:
            text = file.read()
    except OSError:
        return None
    wanted = b" %s %s " % tuple(_hexadecimal(*end) for end in ends)
    start = text.find(wanted)
    if start < 0:
        return None
    state, _, _, _, uid, _, inode = text[start + len(wanted) :].split(None, 7)[:7]
    # nobody's: closed, or not accepted yet
    if state not in (_ESTABLISHED, _CLOSE_WAIT) or inode == b"0":
        return None
    return int(uid)


def _hexadecimal(host: bytes, port: int) -> bytes:
    """As the kernel prints it: words of four bytes, each as a number of this machine."""
    words = struct.unpack(f"={len(host) // 4}I", host)
    return b"%s:%04X" % (b"".join(b"%08X" % word for word in words), port)
