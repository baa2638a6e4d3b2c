"""The addresses that programs pass around, as values: where a host listens, how it is dialed.

====================================  ====================================================================
form                                  meaning
====================================  ====================================================================
``tcp://host:port``                   a name, an IPv4 address, or an IPv6 address in brackets
``tcp://*:port``                      listen on every interface; cannot be dialed
``tcp://host:fd7``                    listen on the socket that this process inherited as descriptor 7
``metatls://host:port``               as tcp, and never without TLS
``ipc:///path``                       a Unix socket; ``%U`` is the number of the user of the process that uses it
``inproc://n``                        a Unix socket without a file, for the processes of one user on one host
``dial@bind``                         is reached as `dial`, listens on `bind`: behind a forwarded port, in a pod
``name@url``                          as `url`; the name of a service, which old programs put there, is dropped
====================================  ====================================================================
"""

from __future__ import annotations

import os
import re

from ..._namedtuple import NamedTuple
from ...errors import AddressError

EVERYWHERE = "*"
LONGEST_PATH = 107  # bytes; the kernel's limit for the name of a Unix socket, less its end

_TCP = ("tcp", "metatls")
_FORMS = (
    "tcp://host:port, tcp://[ipv6]:port, tcp://*:port (listens everywhere), tcp://host:fd7 (an"
    " inherited socket), metatls://host:port, ipc:///path, inproc://number, and dial@bind, where"
    " both are such addresses"
)
_NEXT_URL = re.compile(r"@(?=[a-z]+://)")
_HOST_NAME = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)(\.(?!-)[a-z0-9_-]{1,63}(?<!-))*")
_DIGITS = re.compile(r"[0-9]{1,10}")


class Channel(NamedTuple):
    """One parsed address; compares equal however it was written.

    Attributes:
        scheme: ``tcp``, ``metatls``, ``ipc`` or ``inproc``.
        host: Of tcp and metatls: a name in lower case, an address in its shortest form, or
            `EVERYWHERE`.
        port: Of tcp and metatls; 0 = any free one when listening, or that of `fd`.
        path: Of ipc, an absolute path; of inproc, the number.
        fd: Descriptor of the bound socket to adopt, or -1.
        bind: Where to listen, if not here.
    """

    scheme: str
    host: str = ""
    port: int = 0
    path: str = ""
    fd: int = -1
    bind: Channel | None = None

    @property
    def name(self) -> str:
        """How others dial it; equal channels have equal names, even if they bind others."""
        if self.scheme not in _TCP:
            return f"{self.scheme}://{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{f'fd{self.fd}' if self.fd >= 0 else self.port}"

    @property
    def listening(self) -> Channel:
        """The place to listen at."""
        return self.bind or self

    @property
    def is_tcp(self) -> bool:
        return self.scheme in _TCP

    @property
    def dialable(self) -> bool:
        """True if the name says enough to connect to it."""
        return not self.is_tcp or (self.host != EVERYWHERE and self.port > 0)

    def __str__(self) -> str:
        return self.name if self.bind is None else f"{self.name}@{self.bind.name}"


def parse_channel(text: str) -> Channel:
    """The channel that `text` names.

    Raises:
        AddressError: It has none of the forms above.
    """
    if not isinstance(text, str):
        raise AddressError(f"{text!r} is no address: wanted a text, one of {_FORMS}.")
    urls = _NEXT_URL.split(text.strip())
    if len(urls) > 1 and "://" not in urls[0]:
        del urls[0]  # the name of a service
    if len(urls) > 2:
        raise _malformed(text, "it joins more than two addresses by @")
    channels = [_parse_one(text, url) for url in urls]
    if len(channels) == 1:
        return channels[0]
    dial, bind = channels
    if dial.host == EVERYWHERE or dial.fd >= 0:
        raise _malformed(
            text, f"{dial.name}, in front of the @, is what others dial: it needs a host and a port"
        )
    return dial._replace(bind=bind)


def unix_name(channel: Channel) -> str:
    """Return the name to bind or connect for an ipc or inproc channel."""
    if channel.scheme == "ipc":
        return channel.path.replace("%U", str(os.geteuid()))
    return f"\0monarch/inproc/{os.geteuid()}/{channel.path}"


def _parse_one(text: str, url: str) -> Channel:
    scheme, separator, rest = url.partition("://")
    if separator and scheme in _TCP:
        return _parse_tcp(text, scheme, rest)
    if separator and scheme == "ipc":
        return _parse_ipc(text, rest)
    if separator and scheme == "inproc":
        if not _DIGITS.fullmatch(rest):
            raise _malformed(text, f"{rest!r} is no number")
        return Channel(scheme, path=str(int(rest)))
    raise _malformed(text, f"{scheme + separator!r}, with which it starts, is none of them")


def _parse_tcp(text: str, scheme: str, rest: str) -> Channel:
    host, separator, port = rest.rpartition(":")
    if not separator or (port.endswith("]") and rest.startswith("[")):
        raise _malformed(text, "it has no port")
    host = _parse_host(text, host)
    if port.startswith("fd") and _DIGITS.fullmatch(port[2:]) and int(port[2:]) < 2**31:
        return Channel(scheme, host, fd=int(port[2:]))
    if not _DIGITS.fullmatch(port) or int(port) > 65535:
        raise _malformed(
            text, f"{port!r} is no port: wanted 0 to 65535, where 0 listens on any free one"
        )
    return Channel(scheme, host, int(port))


def _parse_host(text: str, host: str) -> str:
    if host == EVERYWHERE:
        return host
    if host.startswith("[") and host.endswith("]"):
        return _parse_ip(text, host[1:-1], 6)
    if ":" in host:
        raise _malformed(text, f"an IPv6 address stands in brackets: [{host}]")
    host = host.lower()
    if host.replace(".", "").isdigit():
        return _parse_ip(text, host, 4)
    if len(host) > 253 or not _HOST_NAME.fullmatch(host.removesuffix(".")):
        raise _malformed(text, f"{host!r} is no host")
    return host


def _parse_ip(text: str, host: str, version: int) -> str:
    import ipaddress  # only here: every program imports this module, few parse such an address

    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        address = None
    if address is None or address.version != version:
        raise _malformed(text, f"{host!r} is no IPv{version} address")
    return str(address)


def _parse_ipc(text: str, path: str) -> Channel:
    if not path.startswith("/") or "\0" in path:
        raise _malformed(text, f"{path!r} is no absolute path")
    if len(path.encode(errors="surrogateescape")) > LONGEST_PATH:
        raise _malformed(
            text, f"the path of a socket may have {LONGEST_PATH} bytes, this one is longer"
        )
    return Channel("ipc", path=path)


def _malformed(text: str, why: str) -> AddressError:
    return AddressError(
        f"invalid address {_short(repr(text))}: {_short(why)}. Wanted one of {_FORMS}."
    )


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "..."


_LONGEST_SHOWN = 300
