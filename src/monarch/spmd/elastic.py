"""The variables that `torchrun` sets, set on the procs of a mesh.

See https://docs.pytorch.org/docs/stable/elastic/run.html.
"""

from __future__ import annotations

import asyncio
import os
import runpy
import socket
import sys
from collections.abc import Iterator, Sequence
from datetime import timedelta
from functools import partial
from importlib import import_module
from itertools import count
from typing import Any

from .. import _own_address
from .._core.plane import current_hub
from .._kept_store import KeptStore, keep
from .._own_address import FAMILIES, IPVersion
from .._startup.monarch_startup import meet
from ..actor import Actor, Point, ProcMesh, context, endpoint

_held: list[object] = []  # stores: torch's C++ keeps none


class SPMDActor(Actor):
    """One rank of an SPMD program.

    Ranks are row-major over the mesh; the last dimension is that of the procs of one host.
    """

    @endpoint
    def get_host_port(
        self, use_ipaddr: IPVersion | None = None, hosts: Sequence[str] | None = None
    ) -> tuple[str, int]:
        """Return a name of this rank's host and a TCP port that is free there.

        Args:
            use_ipaddr: ``"ipv4"`` or ``"ipv6"`` for an address of that kind; None for the host's
                name, or its IPv4 address where the name means nothing to this host itself.
            hosts: As of `own_name`.

        Raises:
            ValueError: `use_ipaddr` is none of these.
        """
        if use_ipaddr is not None and use_ipaddr not in FAMILIES:
            raise ValueError(f"use_ipaddr is 'ipv4', 'ipv6' or None, got {use_ipaddr!r}")
        with socket.socket(FAMILIES[use_ipaddr or "ipv4"], socket.SOCK_STREAM) as probe:
            probe.bind(("", 0))
            return own_name(use_ipaddr, hosts), probe.getsockname()[1]

    @endpoint
    def keep_store(self) -> KeptStore:
        """Keep a store at which ranks meet, as long as this process lives."""
        found, store = keep()
        _held.append(store)
        return found

    @endpoint
    def setup_env(self, master_addr: str, master_port: int, store: KeptStore | None = None) -> None:
        """Set this proc's variables.

        Args:
            master_addr: Name or address of the host on which rank 0 runs.
            master_port: TCP port there.
            store: Where ranks meet by `init_process_group()`; None: at that port.
        """
        _set_environment(master_addr, master_port)
        if store is not None:
            meet((master_addr, str(master_port)), partial(_made, store, count()))

    @endpoint
    def main(self, master_addr: str, master_port: int, script_args: Sequence[str]) -> bool:
        """Set this proc's variables, then run a script, or a module, as ``__main__``.

        Args:
            master_addr: Name or address of the host on which rank 0 runs.
            master_port: TCP port there.
            script_args: ``["script.py", "argument", ...]`` or
                ``["-m", "module", "argument", ...]``.

        Returns:
            True, when it has run to its end.

        Raises:
            ValueError: `script_args` names neither.
        """
        module = bool(script_args) and script_args[0] == "-m"
        program = list(script_args[1:] if module else script_args)
        if not program:
            raise ValueError(f"No script or module specified: got {list(script_args)}")
        _set_environment(master_addr, master_port)
        before, sys.argv = sys.argv, program
        try:
            if module:
                runpy.run_module(program[0], run_name="__main__", alter_sys=True)
            else:
                runpy.run_path(program[0], run_name="__main__")
        finally:
            sys.argv = before
        return True


def setup_torch_elastic_env(
    procs: ProcMesh,
    master_addr: str | None = None,
    master_port: int | None = None,
    use_ipaddr: IPVersion | None = None,
) -> None:
    """Set the variables of torch elastic in every proc.

    ``torch.distributed.init_process_group()`` then needs no arguments. Ranks meet over the
    connections that the program has; no port is opened for it, also where `master_addr` is given.

    They are ``MASTER_ADDR``, ``MASTER_PORT``, ``RANK``, ``LOCAL_RANK``, ``WORLD_SIZE``,
    ``LOCAL_WORLD_SIZE``, ``GROUP_RANK``, ``GROUP_WORLD_SIZE``, ``ROLE_RANK``, ``ROLE_WORLD_SIZE``
    and ``ROLE_NAME``.

    Of several hosts, ``MASTER_ADDR`` is the address at which that of rank 0 was attached; if it is
    the program's own, the one from which it reaches the others. Its name may mean a loopback
    address there, and nothing to the others.

    Args:
        procs: The mesh. Ranks are row-major; the index in the last dimension is the local rank.
        master_addr: Name or address of the host of rank 0; None asks rank 0.
        master_port: TCP port there; given with `master_addr`, or not at all.
        use_ipaddr: ``"ipv4"`` or ``"ipv6"``: ask rank 0 for an address of that kind instead of its
            host's name.

    Raises:
        RuntimeError: An event loop runs in this thread; await `setup_torch_elastic_env_async`
            instead.
        AssertionError: Only one of `master_addr` and `master_port` is given.
        TypeError: `procs` is no ProcMesh.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        asyncio.run(setup_torch_elastic_env_async(procs, master_addr, master_port, use_ipaddr))
        return
    raise RuntimeError(
        "an event loop runs in this thread: write `await setup_torch_elastic_env_async(...)`"
        " instead"
    )


async def setup_torch_elastic_env_async(
    procs: ProcMesh,
    master_addr: str | None = None,
    master_port: int | None = None,
    use_ipaddr: IPVersion | None = None,
) -> None:
    """As `setup_torch_elastic_env`, to be awaited.

    For arguments and errors see there.
    """
    if not isinstance(procs, ProcMesh):
        raise TypeError(
            f"setup_torch_elastic_env takes a ProcMesh, as spawn_procs() returns, got {procs!r}"
        )
    if (master_addr is None) != (master_port is None):
        raise AssertionError(
            f"give both master_addr and master_port, or neither; got {master_addr!r} and"
            f" {master_port!r}"
        )
    ranks: Any = procs.spawn("_SPMDActor", SPMDActor)
    first = ranks.slice(**dict.fromkeys(procs.extent.labels, 0))
    try:
        if master_addr is None:
            hosts = list(dict.fromkeys(address.host for address in procs._addresses()))
            master_addr, master_port = await first.get_host_port.call_one(
                use_ipaddr, hosts if len(hosts) > 1 else None
            )
        store = await first.keep_store.call_one()
        await ranks.setup_env.call(master_addr, master_port, store)
    finally:
        await ranks.stop("the environment is set")


def variables(point: Point, master_addr: str, master_port: int) -> dict[str, str]:
    """Return the variables of a rank.

    Args:
        point: Its place in the mesh of all ranks; the last dimension is that of the ranks of one
            host.
        master_addr: Name or address of the host on which rank 0 runs.
        master_port: TCP port there.
    """
    local = point.extent.sizes[-1] if point.extent.sizes else 1
    rank, size = point.rank, point.extent.nelements
    values = {
        "MASTER_ADDR": master_addr, "MASTER_PORT": master_port, "RANK": rank, "WORLD_SIZE": size,
        "LOCAL_RANK": rank % local, "LOCAL_WORLD_SIZE": local, "GROUP_RANK": rank // local,
        "GROUP_WORLD_SIZE": size // local, "ROLE_RANK": rank, "ROLE_WORLD_SIZE": size,
        "ROLE_NAME": "rank",
    }  # fmt: skip
    return {name: str(value) for name, value in values.items()}


def own_name(use_ipaddr: IPVersion | None = None, hosts: Sequence[str] | None = None) -> str:
    """Return a name of this host; for arguments see `_own_address.own_name`."""
    return _own_address.own_name(use_ipaddr, hosts, current_hub().address.host)


def _made(kept: KeptStore, times: Iterator[int], torchs: Any, timeout: timedelta) -> Any:
    """Make a store for torch: a new one each time, as all ranks have the same number of them."""
    store = import_module("monarch._polled_store").PolledStore(kept, lambda: None, timeout)
    _held.append(store)
    return torchs.PrefixStore(str(next(times)), store)


def _set_environment(master_addr: str, master_port: int) -> None:
    os.environ.update(variables(context().actor_instance.rank, master_addr, master_port))
