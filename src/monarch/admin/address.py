"""The address of the admin interface: on this machine alone, or for others, with TLS."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Sequence

from .. import config
from .._namedtuple import NamedTuple
from .._own_address import is_loopback

LOCAL_NAMES = ("127.0.0.1", "localhost", "::1")

_CERT, _KEY = "HYPERACTOR_TLS_CERT", "HYPERACTOR_TLS_KEY"
_BACKLOG = 128


class Address(NamedTuple):
    """A TCP address to listen at.

    Attributes:
        host: A name, or a number.
        port: 0 for any that is free.
    """

    host: str
    port: int

    @property
    def is_local(self) -> bool:
        """True if only this machine reaches it."""
        return is_loopback(self.host)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Tls(NamedTuple):
    """Files for TLS; empty for none.

    Attributes:
        cert: With the certificate.
        key: With its key.
    """

    cert: str = ""
    key: str = ""


def parse(text: str | None) -> Address:
    """Read an address.

    Args:
        text: ``"host:port"``, ``"[::1]:port"``; None for that of the configuration.

    Raises:
        ValueError: It is none.
    """
    given: str = config.value("mesh_admin_addr") if text is None else text
    host, colon, port = given.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535 or not host:
        raise ValueError(
            'the address of the admin interface is "host:port", such as "127.0.0.1:0", not'
            f" {given!r}"
        )
    return Address(host.removeprefix("[").removesuffix("]"), int(port))


def narrowed(address: Address, tls: Tls) -> Address:
    """Take ``[::]``, the default of Monarch 0.7, for this machine where there is no TLS."""
    return address if tls.cert or address.host != "::" else address._replace(host="127.0.0.1")


def tls_files() -> Tls:
    """The files that the environment names.

    Raises:
        ValueError: It names only one, or one that can't be read.
    """
    cert, key = os.environ.get(_CERT, ""), os.environ.get(_KEY, "")
    if bool(cert) != bool(key):
        raise ValueError(f"{_CERT} and {_KEY} go together: only {_CERT if cert else _KEY} is set")
    for path in filter(None, (cert, key)):
        if not os.access(path, os.R_OK):
            raise ValueError(f"TLS for the admin interface: the file {path!r} can't be read")
    return Tls(cert, key)


def listen(address: Address, tls: Tls) -> socket.socket:
    """Take the address.

    Raises:
        ValueError: Other machines reach it, and there is no TLS.
        OSError: It is taken, or none of this machine.
    """
    if not address.is_local and not tls.cert:
        raise ValueError(
            f"the admin interface can't listen at {address}, which other machines reach, without"
            f" TLS: set {_CERT} and {_KEY}, or listen at 127.0.0.1 and forward the port, such as by"
            " ssh -L"
        )
    try:
        [(family, kind, _, _, where), *_] = socket.getaddrinfo(
            *address, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except socket.gaierror as error:
        raise OSError(
            errno.EADDRNOTAVAIL, f"the admin interface can't listen at {address}: {error.strerror}"
        ) from None
    listener = socket.socket(family, kind)
    try:
        # not while another listens, only after it has
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(where)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        hint = "; port 0 takes any that is free" if error.errno == errno.EADDRINUSE else ""
        raise OSError(
            error.errno, f"the admin interface can't listen at {address}: {error.strerror}{hint}"
        ) from None
    return listener


def names_of(address: Address, more: Sequence[str]) -> list[str]:
    """The names by which a server may be asked: the rest would be a stranger's.

    Args:
        address: Where it listens.
        more: That a proxy in front of it has.
    """
    own = [] if address.is_local else [socket.gethostname(), socket.getfqdn()]
    return [*LOCAL_NAMES, address.host, *own, *more]
