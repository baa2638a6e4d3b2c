"""The numbers by which telemetry's tables know hosts, procs, meshes and actors.

Hashes of names and addresses: each process computes the same ones for itself, so rows of different
processes join, and a question can be asked again.
"""

from __future__ import annotations

import functools
from hashlib import blake2b

from .._core.plane import SYSTEM, ProcAddress


@functools.lru_cache(maxsize=10_000)
def _number(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


def host_id(host: str) -> int:
    """The id of a host, and of the mesh that it is by itself."""
    return _number(f"host {host}")


def proc_id(address: ProcAddress) -> int:
    """The id of a process."""
    return _number(f"proc {address.host} {address.proc}")


def actor_id(address: ProcAddress, uid: int) -> int:
    """The id of one actor, which is one rank of a mesh."""
    return _number(f"actor {address.host} {address.proc} {uid}")


def mesh_id(uid: int | str) -> int:
    """The id of a mesh of procs or actors."""
    return uid if isinstance(uid, int) else _number(f"mesh {uid}")


def message_id(address: ProcAddress, number: int) -> int:
    """A message that a process has sent or handled.

    The three numbers behind it are free for what becomes of it.
    """
    return (actor_id(address, SYSTEM) + 4 * number) & 0xFFFF_FFFF_FFFF_FFFC


def track_id(above: int, name: str) -> int:
    """The id of a track of a timeline that is below another one."""
    return _number(f"track {above} {name}")


def event_id(who: int, time: int) -> int:
    """The id of an event of an actor, at a time in nanoseconds."""
    return (who ^ time * 0x9E3779B97F4A7C15) & 0xFFFF_FFFF_FFFF_FFFF
