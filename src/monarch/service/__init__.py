"""Replicated services: one handle, many replicas of an actor; what fails is replaced under it.

`handle` is what callers hold, `keeper` an actor that owns the replicas. Each process that calls has
one `router` for a service, which knows the replicas, counts the outstanding calls of each, and
picks one; so a call goes from its caller straight to a replica. `calls` are requests that may be
asked again elsewhere. `batching` stands alone: it works on any async actor.

Read `handle`, then `router` and `keeper`.

Imports `_core.plane`, `actor`, `telemetry`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy_names

if TYPE_CHECKING:
    from .batching import batched
    from .handle import Service, ServiceEndpoint
    from .records import ReplicaStatus

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "batching": ("batched",),
        "handle": ("Service", "ServiceEndpoint"),
        "records": ("ReplicaStatus",),
    },
)

__all__ = ["ReplicaStatus", "Service", "ServiceEndpoint", "batched"]
