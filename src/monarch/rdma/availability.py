"""The means of this machine for transfers between hosts."""

from __future__ import annotations

import importlib.util
import os
import warnings

from .. import config

_DEVICES = "/sys/class/infiniband"


def is_ibverbs_available() -> bool:
    """Check whether this machine has an RDMA device that is not disabled.

    Devices are InfiniBand, RoCE and EFA; the knob `rdma_disable_ibverbs` disables them.
    """
    return not config.value("rdma_disable_ibverbs") and bool(_devices())


def _devices() -> list[str]:
    try:
        return sorted(os.listdir(_DEVICES))
    except OSError:
        return []


def is_rdma_available() -> bool:
    """The old name of `is_ibverbs_available`."""
    warnings.warn(
        "is_rdma_available() is now called is_ibverbs_available()", DeprecationWarning, stacklevel=2
    )
    return is_ibverbs_available()


def get_rdma_backend() -> str:
    """Return the transport of bytes between hosts.

    It is ``"ibverbs"``, ``"tcp"``, or ``"none"`` if neither is present and allowed.

    A guess from what this machine has. On one host there are other paths in any case: see
    `RDMABuffer.explain`.
    """
    if is_ibverbs_available():
        return "ibverbs"
    return "tcp" if config.value("rdma_allow_tcp_fallback") else "none"


def describe_between_hosts() -> str:
    """Describe in one line the transport between this machine and others, and why."""
    fallback = "nothing, as rdma_allow_tcp_fallback is False"
    if config.value("rdma_allow_tcp_fallback"):
        fallback = "messages"
    installed = importlib.util.find_spec("nixl") is not None
    if not is_ibverbs_available():
        reason = "rdma_disable_ibverbs is set" if _devices() else "there is no RDMA device"
        hint = "; rdma_paths=nixl would send over TCP, in the clear" if installed else ""
        return f"{fallback}: {reason}{hint}"
    if not installed:
        return f"{fallback}: nixl is not installed (pip install 'pymonarch[rdma]')"
    return f"nixl: over {', '.join(_devices())}"
