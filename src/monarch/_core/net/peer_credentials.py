"""The user at the other end of a connection, as the kernel knows it.

Of a local TCP connection it is asked by sock_diag(7), which looks one socket up. /proc/net/tcp says
the same, but to read it takes 4 ms while a thousand connections are open: a flood would cost
us more than it costs the attacker.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import struct

from ... import config
from .unix import PeerRefused, credentials

NOT_OPEN = (
    "without a secret or certificates, only loopback may be used. `monarch secret"
    " ~/.monarch/secret` makes a secret: copy that file to every host. Or pass ca= and private_key=;"
    " or let all who can connect run code here: configure(allow_unauthenticated_tcp=True)"
)

_NETLINK_SOCK_DIAG = 4
_BY_FAMILY = 20  # the type of a question about a socket, and of its answer
_QUESTION = struct.Struct("=IHHII 4BI 2s2s 16s16s IQ")  # nlmsghdr, inet_diag_req_v2
_ANSWER = struct.Struct("=4xH 11xB 62x II")  # type; state, uid and inode of inet_diag_msg
_CONNECTED = 1, 8  # states: ESTABLISHED; CLOSE_WAIT, as we have shut our side down

Who = int | str
"""A user of this host; an address of another one."""


def check_same_user(sock: socket.socket) -> None:
    """Check that the other end is a process of our user on this host.

    Raises:
        PeerRefused: It is not, or the kernel does not say.
    """
    who = who_at(sock)
    if isinstance(who, str):
        raise PeerRefused(
            "the kernel does not say which user it runs as"
            if is_loopback(who)
            else "it is not on this host, and without a secret or certificates only this host is let in"
        )
    if who != os.geteuid():
        raise PeerRefused(f"it runs as user {who}, not as user {os.geteuid()}")


def is_loopback(host: str) -> bool:
    address = ipaddress.ip_address(host)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def is_open_to(host: str) -> bool:
    """Return whether `host` may be connected from and to without authentication."""
    return is_loopback(host) or bool(config.value("allow_unauthenticated_tcp"))


def who_at(sock: socket.socket) -> Who:
    """Return who is at the other end of a connection.

    Raises:
        OSError: It has gone again.
    """
    if sock.family == socket.AF_UNIX:
        return credentials(sock)[1]
    peer = sock.getpeername()
    user = user_at(peer, sock.getsockname())
    return peer[0] if user is None else user


def user_at(peer: tuple[str, int], own: tuple[str, int]) -> int | None:
    """Return the user of the socket at the other end; None if it is on another host, or closed.

    Args:
        peer: The address of the other end.
        own: The address of this one.
    """
    family = socket.AF_INET6 if ":" in peer[0] else socket.AF_INET
    hosts = [socket.inet_pton(family, each[0].partition("%")[0]) for each in (peer, own)]
    ports = [each[1].to_bytes(2, "big") for each in (peer, own)]
    question = _QUESTION.pack(
        _QUESTION.size, _BY_FAMILY, 1, 0, 0, family, socket.IPPROTO_TCP, 0, 0, 0, *ports, *hosts, 0, 2**64 - 1
    )  # fmt: skip
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as kernel:
            kernel.sendto(question, (0, 0))
            answer = kernel.recv(4096)
    except OSError:  # this system does not tell
        return None
    kind, state, uid, inode = _ANSWER.unpack_from(answer)
    # a socket without an inode is closed; where there is none, one that listens may be found
    return uid if kind == _BY_FAMILY and state in _CONNECTED and inode else None
