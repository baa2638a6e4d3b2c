"""Taking hosts into use on which workers listen."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from .._core.actors.context import current_hub
from .._core.calls.future import Future
from .._core.client import client
from .._core.client.client import after_the_end as after_the_end
from .._core.client.faults import why_hosts_end as why_hosts_end
from .._core.mesh.attachment import Attachment, check_workers
from .._core.mesh.host_mesh import HostMesh
from .._core.net.dial import forwarded as forwarded
from .._core.shape import Extent, Shape
from .._core.wire.channel import parse_channel, unix_name
from .._guards.main_guard import refuse_imports

if TYPE_CHECKING:
    from .._core.net.trust import Trust

    TextOrPath = str | os.PathLike[str] | None

_attached_via: str | None = None
_named: WeakKeyDictionary[Attachment, tuple[str, Extent]] = WeakKeyDictionary()


def attached() -> list[tuple[str, Extent]]:
    """Return name and extent of each host mesh that has a name and was not let go."""
    return [named for attachment, named in list(_named.items()) if attachment.ended is None]


def socket_path(address: str) -> str:
    """The path of an ``ipc://`` address, for this user."""
    return unix_name(parse_channel(address))


def attach_to_workers(
    *,
    ca: str | os.PathLike[str] | None = None,
    workers: Sequence[str | Future[str]],
    private_key: str | os.PathLike[str] | None = None,
    name: str | None = None,
    secret: str | None = None,
) -> HostMesh:
    """Attach hosts that already run a worker.

    Returns at once; `HostMesh.initialized` is done when they are attached.

    Links are made by this side alone: no worker has to be able to reach the client.

    Args:
        ca: File, or PEM text, with the certificates of those who signed the keys of the workers;
            None for a shared secret (``MONARCH_SECRET``, ``MONARCH_SECRET_FILE``, or
            ``~/.monarch/secret``).
        workers: An address for each, such as ``"tcp://10.0.0.7:26600"``, or a future of one.
        private_key: File, or PEM text, with this client's key and certificate; None with a shared
            secret.
        name: For people.
        secret: The shared secret, where it is in none of those places.

    Returns:
        A mesh of the one dimension ``hosts``, in the order of `workers`.

    Raises:
        ValueError: `workers` is empty, or has an address twice; the certificates or the secret are
            not usable, or differ from those by which one of the hosts is attached already.
        AddressError: One of them is no address that can be dialed.
        TypeError: `workers` is no list of addresses, or `name` no text.
    """
    if isinstance(workers, str) or not isinstance(workers, Sequence):
        raise TypeError(f"workers is a list of addresses, got {workers!r}")
    if not workers:
        raise ValueError("attach_to_workers needs at least one worker, got an empty list")
    for worker in workers:
        if not isinstance(worker, (str, Future)):
            raise TypeError(f"a worker is an address or a future of one, got {worker!r}")
    if name is not None and not isinstance(name, str):
        raise TypeError(f"the name of a host mesh is a string, got {name!r}")
    _check_client("attach_to_workers")
    attachment = Attachment(list(workers), _trust_for(ca, private_key, secret), name or "")
    extent = Extent(["hosts"], [len(workers)])
    if name is not None:
        _named[attachment] = name, extent
    shape = Shape.from_extent(extent)
    return HostMesh(attachment.hosts, shape, "", attachment, name, True)


def _trust_for(ca: TextOrPath, private_key: TextOrPath, secret: str | None = None) -> Trust:
    # brings TLS, which a program on one machine never needs
    from .._core.net.trust import trust_for

    return trust_for(ca, private_key, secret=secret)


def _check_client(function: str) -> None:
    refuse_imports(function)
    hub = current_hub()
    if hub.address != hub.root:
        raise RuntimeError(f"{function} is for the client; actors get the mesh as an argument")


def attach(
    addr: str,
    *,
    ca: str | os.PathLike[str] | None = None,
    private_key: str | os.PathLike[str] | None = None,
    secret: str | None = None,
) -> None:
    """Reach all other hosts through one worker: over a forwarded port, from behind a router.

    Call it before anything else.

    Args:
        addr: Address of that worker.
        ca: As in `attach_to_workers`.
        private_key: As in `attach_to_workers`.
        secret: As in `attach_to_workers`.

    Raises:
        RuntimeError: This program uses the API already, or goes through another worker.
        AddressError: `addr` is no address that can be dialed.
    """
    global _attached_via
    refuse_imports("attach")
    trust = _trust_for(ca, private_key, secret)
    (host,) = check_workers([addr], trust)
    if _attached_via is not None and client.is_running():
        if host == _attached_via:
            return
        raise RuntimeError(
            f"this program reaches other hosts through {_attached_via}; it can't change to {host}"
        )
    if client.is_running():
        raise RuntimeError(
            "attach() must come before anything else that uses monarch in this program"
        )
    client.client().route_via(host, trust)
    _attached_via = host
