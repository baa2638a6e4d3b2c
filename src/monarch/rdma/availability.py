"""What this machine has for transfers between hosts."""

from __future__ import annotations

import os
import warnings

from .. import config

_DEVICES = "/sys/class/infiniband"


def is_ibverbs_available() -> bool:
    """Whether this machine has an RDMA device (InfiniBand, RoCE, EFA), and `rdma_disable_ibverbs` is not set."""
    if config.value("rdma_disable_ibverbs"):
        return False
    try:
        return bool(os.listdir(_DEVICES))
    except OSError:
        return False


def is_rdma_available() -> bool:
    """The old name of `is_ibverbs_available`."""
    warnings.warn("is_rdma_available() is now called is_ibverbs_available()", DeprecationWarning, stacklevel=2)
    return is_ibverbs_available()


def get_rdma_backend() -> str:
    """What carries bytes between hosts: ``"ibverbs"``, ``"tcp"``, or ``"none"`` where neither is there or allowed.

    A guess from what this machine has. On one host there are other paths, whatever this says: see `RDMABuffer.explain`.
    """
    if is_ibverbs_available():
        return "ibverbs"
    return "tcp" if config.value("rdma_allow_tcp_fallback") else "none"
