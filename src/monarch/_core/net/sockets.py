"""Sockets for channels: bound, tuned, named for messages.

Nothing here waits, but for the resolver in `listen_on`.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
from pathlib import Path

from ... import config
from ...errors import AddressError
from ..wire.channel import EVERYWHERE, Channel, unix_name
from .resolver import addresses_of
from .unix import BACKLOG, closed_on_error

_PROBES = 5  # of keepalive, before the kernel gives a connection up

Address = tuple[str, int] | str


def tune(sock: socket.socket) -> None:
    """Apply the TCP knobs; an accepted socket has them from its listener.

    Raises:
        ValueError: The system has no such congestion control, or does not let us use it.
    """
    # a write is a whole message as a rule: Nagle's algorithm would hold it back until the one
    # before is acknowledged
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    idle = round(config.value("channel_tcp_keepalive_idle"))
    if idle > 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, min(idle, 32767))
        sock.setsockopt(
            socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(1, min(idle, 32767) // _PROBES)
        )
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES)
    congestion = config.value("channel_tcp_congestion")
    if congestion:
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion.encode())
        except OSError as error:
            raise ValueError(
                f"channel_tcp_congestion: this system has no {congestion!r} for us"
                f" ({error.strerror}); /proc/sys/net/ipv4/tcp_allowed_congestion_control lists what"
                " it has"
            ) from None


def peer_name(sock: socket.socket) -> str:
    """Return the name of the peer, for messages."""
    if sock.family == socket.AF_UNIX:
        pid = int.from_bytes(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 4), "little")
        return f"process {pid}"
    host, port = sock.getpeername()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def listen_on(channel: Channel) -> socket.socket:
    """A listening, non-blocking socket for the address itself, not for the one it advertises.

    Raises:
        AddressError: It cannot be listened on here; the message says why.
        ValueError: A knob has a value that this system does not have.
    """
    try:
        if channel.fd >= 0:
            sock = _adopt(channel)
        elif not channel.is_tcp:
            sock = _bind_unix(channel)
        else:
            sock = _bind_tcp(channel)
    except AddressError:
        raise
    except OSError as error:
        hint = ""
        if channel.is_tcp and channel.fd < 0:
            hint = ". To be known by another address than one listens on, write dial@bind"
        raise AddressError(
            f"cannot listen on {channel.name}: {error.strerror or error}{hint}"
        ) from error
    sock.setblocking(False)
    return sock


def _adopt(channel: Channel) -> socket.socket:
    sock = socket.socket(fileno=channel.fd)
    try:
        if sock.family not in (socket.AF_INET, socket.AF_INET6) or not sock.getsockname()[1]:
            raise AddressError(
                f"cannot listen on {channel.name}: descriptor {channel.fd} is no TCP socket that is"
                " bound to a port"
            )
        if not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            sock.listen(BACKLOG)
        tune(sock)
    except BaseException:
        sock.detach()  # not ours
        raise
    sock.set_inheritable(False)
    return sock


def _bind_unix(channel: Channel) -> socket.socket:
    with closed_on_error(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as sock:
        name = unix_name(channel)
        if channel.scheme == "ipc":
            _remove_abandoned(name)
        sock.bind(name)
        if channel.scheme == "ipc":
            # before `listen`: until then the kernel refuses all who connect
            os.chmod(name, 0o600)
        sock.listen(BACKLOG)
    return sock


def _remove_abandoned(path: str) -> None:
    """Remove the socket that a dead process has left there."""
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            return
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        # 0, or another error: a process listens, or the file is not ours: the bind says so
        if probe.connect_ex(path) == errno.ECONNREFUSED:
            Path(path).unlink(missing_ok=True)


def _bind_tcp(channel: Channel) -> socket.socket:
    if channel.host == EVERYWHERE:
        choices = [
            (socket.AF_INET6, ("::", channel.port)),
            (socket.AF_INET, ("0.0.0.0", channel.port)),
        ]
    else:
        choices = addresses_of(channel.host, channel.port)
    for family, address in choices[:-1]:
        try:
            return _bind(family, address)
        except OSError:
            continue
    return _bind(*choices[-1])


def _bind(family: socket.AddressFamily, address: tuple[str, int]) -> socket.socket:
    with closed_on_error(socket.socket(family, socket.SOCK_STREAM)) as sock:
        # connections of the process before, in TIME_WAIT, would keep the port for a minute
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # `::` takes IPv4 as well, independent of the `bindv6only` setting of the system
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, address[0] != "::")
        tune(sock)
        sock.bind(address)
        sock.listen(BACKLOG)
    return sock
