"""Names that a launcher gives to its workers, so that each can be attached by its name.

A worker is addressed as ``service<id>@tcp://host:port``. Links of this implementation find a worker
by its address alone and check who it is by its proof; the name is accepted and carried along.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

from ..actor import ProcId, Uid

SERVICE_PROC_IDS_ENV = "MONARCH_SERVICE_PROC_IDS"
"""Environment variable: the ids of a group of workers, as `serialize_service_proc_ids` writes
them.
"""

SERVICE_PROC_RANK_ENV = "MONARCH_SERVICE_PROC_RANK"
"""Environment variable: which of them a worker has."""

_LABEL = "service"
_VALUES = 2**64


def new_service_proc_id() -> ProcId:
    """A new id for one worker."""
    return ProcId(Uid.instance(_LABEL))


def allocate_service_proc_ids(count: int) -> list[ProcId]:
    """New ids for a group of workers, one after the other."""
    first = int.from_bytes(os.urandom(8), "big")
    return [
        ProcId(Uid.instance_from_value((first + rank) % _VALUES, _LABEL)) for rank in range(count)
    ]


def service_proc_addr(address: str, proc_id: ProcId | None) -> str:
    """Return an address with the id in front, where there is one.

    Args:
        address: Address of a worker.
        proc_id: Its id, if it has one.
    """
    return address if proc_id is None else f"{proc_id}@{address}"


def service_proc_addrs(addresses: Sequence[str], proc_ids: Sequence[ProcId] | None) -> list[str]:
    """`service_proc_addr` of each.

    Args:
        addresses: Addresses of workers.
        proc_ids: Their ids in the same order, if they have any.

    Raises:
        ValueError: There are more of one than of the other.
    """
    if proc_ids is None:
        return [*addresses]
    if len(addresses) != len(proc_ids):
        raise ValueError(
            f"got {len(addresses)} addresses of workers and {len(proc_ids)} ids for them"
        )
    return [
        service_proc_addr(address, proc_id)
        for address, proc_id in zip(addresses, proc_ids, strict=True)
    ]


def serialize_service_proc_ids(proc_ids: Sequence[ProcId]) -> str:
    """Return the ids as the text of an environment variable.

    Args:
        proc_ids: The ids.
    """
    return json.dumps([str(proc_id) for proc_id in proc_ids])


def deserialize_service_proc_ids(serialized: str) -> list[ProcId]:
    """The ids that `serialize_service_proc_ids` wrote.

    Args:
        serialized: The text of the environment variable.

    Raises:
        ValueError: It did not write that.
    """
    return [ProcId.from_string(text) for text in json.loads(serialized)]


def ranked_service_proc_id_from_env(*, rank_env: str = SERVICE_PROC_RANK_ENV) -> ProcId | None:
    """The id of this worker: that of the group at the rank in `rank_env`.

    It is None if either variable is not set.

    Args:
        rank_env: Name of the variable with the rank.

    Raises:
        ValueError: One of them can't be read, or the group has no such rank.
    """
    serialized, rank = os.environ.get(SERVICE_PROC_IDS_ENV), os.environ.get(rank_env)
    if serialized is None or rank is None:
        return None
    proc_ids = deserialize_service_proc_ids(serialized)
    if not 0 <= int(rank) < len(proc_ids):
        raise ValueError(
            f"{rank_env} is {rank}, and {SERVICE_PROC_IDS_ENV} has {len(proc_ids)} ids, from 0 on"
        )
    return proc_ids[int(rank)]
