"""Workers in pods of a Kubernetes cluster.

    job       `KubernetesJob`
    manifest  the objects that it makes
    pods      what their states mean
    wait      until all pods serve
    api       requests to the API server
    config    where that is, and who asks: `KubeConfig`
    forward   from a client outside of the cluster to a pod

Read `job`, then `manifest` and `pods`.

Imports `_patterns`, `actor`, `job`, `job.base`, `trust`.
"""

from __future__ import annotations

from ..._public import publish
from .config import KubeConfig
from .job import KubernetesJob
from .manifest import ImageSpec

__all__ = ["ImageSpec", "KubeConfig", "KubernetesJob"]

publish(__name__, globals(), __all__)
