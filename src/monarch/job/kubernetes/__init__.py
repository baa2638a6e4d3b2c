"""Workers in pods of a Kubernetes cluster.

    job       `KubernetesJob`
    manifest  the objects that it makes
    pods      what their states mean
    wait      until all pods serve
    api       requests to the API server
    config    where that is, and who asks: `KubeConfig`
    forward   from a client outside of the cluster to a pod

Read `job`, then `manifest` and `pods`.

Imports `actor`, `job`, `trust`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._lazy import lazy_names

if TYPE_CHECKING:
    from .config import KubeConfig as KubeConfig
    from .job import KubernetesJob as KubernetesJob
    from .manifest import ImageSpec as ImageSpec

__getattr__, __dir__ = lazy_names(
    __name__, {"config": ("KubeConfig",), "job": ("KubernetesJob",), "manifest": ("ImageSpec",)}
)

__all__ = ["ImageSpec", "KubeConfig", "KubernetesJob"]
