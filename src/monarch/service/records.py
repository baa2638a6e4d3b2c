"""Messages between a service's keeper and the processes that call it.

Plain data, which an I/O thread may read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .._namedtuple import NamedTuple
from ..actor import HostMesh

LEAST_LOADED, ROUND_ROBIN = "least loaded", "round robin"


class Spec(NamedTuple):
    """How a service is kept. The arguments of `Service`, checked.

    Attributes:
        uid: Of the service.
    """

    uid: int
    name: str
    hosts: HostMesh
    actor: type
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    replicas: int
    procs: Mapping[str, int]
    bootstrap: Callable[[], Any] | None
    max_restarts: int
    health: str | None
    health_interval: float
    health_timeout: float


class Way(NamedTuple):
    """How calls are routed, for each process that makes some. As in `Service`."""

    route: str
    retries: int
    idempotent: frozenset[str] | bool
    patience: float
    in_flight: float


class Members(NamedTuple):
    """The replicas that take calls.

    The keeper ──▶ each process that calls the service. Answer: None, once the process has no call
    outstanding at others.

    Attributes:
        uid: Of the service.
        version: Counts the changes.
        replicas: Place and target of each.
        hopeless: Why there will be no more of them; empty while there may be.
        ended: Whether the service has, so that these are the last.
    """

    uid: int
    version: int
    replicas: tuple[tuple[int, Any], ...]
    hopeless: str = ""
    ended: bool = False


class ReplicaStatus(NamedTuple):
    """One replica of a service, as `Service.status` tells.

    Attributes:
        place: Its number in the service; a replica that takes the place of another has its number.
        name: Of its meshes of procs and actors.
        state: ``"starting"``, ``"ready"``, ``"draining"``, ``"waiting"`` before the next attempt to
            start, or ``"given up"``.
        restarts: How often the replica in this place was replaced.
        last_failure: Why, the last time; empty if never.
    """

    place: int
    name: str
    state: str
    restarts: int
    last_failure: str
