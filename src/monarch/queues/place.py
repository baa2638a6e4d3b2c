"""The meshes on which queues and replay buffers may live."""

from __future__ import annotations

from ..actor import ProcMesh


def one_proc(procs: ProcMesh, what: str) -> ProcMesh:
    """Check that a mesh has one process, and return it.

    Args:
        procs: The mesh.
        what: What lives there, for errors.

    Raises:
        TypeError: It is no proc mesh.
        ValueError: It has several processes.
    """
    if not isinstance(procs, ProcMesh):
        raise TypeError(f"{what} lives in a mesh of one process, got {procs!r}")
    if procs.extent.nelements != 1:
        raise ValueError(
            f"{what} lives in one process, {procs!r} has {procs.extent.nelements}: slice it"
        )
    return procs
