"""Scripts for ``torchrun`` as jobs; announced, and not there yet."""

from __future__ import annotations

from typing import Any, NoReturn

from .features import missing

_INSTEAD = "scripts of torchrun behind a job; an actor on each rank, with monarch.spmd.setup_torch_elastic_env(procs), does the same, but"


class SPMDJob:
    """A script on every rank of a job."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        missing("SPMDJob", _INSTEAD)


class StoreJob:
    """Hosts that find each other by a store of torch.distributed."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        missing("StoreJob", _INSTEAD)


def serve(*args: Any, **kwargs: Any) -> NoReturn:
    """Start such a job."""
    missing("serve", _INSTEAD)


__all__ = ["SPMDJob", "StoreJob", "serve"]
