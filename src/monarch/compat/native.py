"""Functions of private modules of Monarch 0.7 that no public module here needs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from .._core.actors.context import context
from ..actor import ProcMesh


def has_tensor_engine() -> bool:
    """Tell if distributed tensors work here: they need torch."""
    return find_spec("torch") is not None


@contextmanager
def fake_sync_state() -> Iterator[None]:
    """Hide the running event loop from what runs in the block."""
    running = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(running)


def get_active_proc_meshes() -> list[ProcMesh]:
    """List the proc meshes that the calling actor, or the client, has spawned and not stopped."""
    handles = (getattr(owned, "handle", None) for owned in context()._cell.ownership.meshes())
    found = [handle() for handle in handles if handle is not None]
    return [mesh for mesh in found if isinstance(mesh, ProcMesh)]
