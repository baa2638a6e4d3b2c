"""Jobs on Kubernetes; announced, and not there yet."""

from __future__ import annotations

from typing import Any

from .features import missing

_INSTEAD = (
    "Kubernetes behind a job; start `monarch worker` in each pod and attach them with attach_to_workers(workers=[...]), or list "
    "them for hosts_from_config,"
)


class KubernetesJob:
    """Workers in pods."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        missing("KubernetesJob", _INSTEAD)


class ImageSpec:
    """The image of such a pod."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        missing("ImageSpec", _INSTEAD)


class KubeConfig:
    """How to reach the cluster."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        missing("KubeConfig", _INSTEAD)


__all__ = ["ImageSpec", "KubeConfig", "KubernetesJob"]
