"""One-sided transfers: control goes in messages, data beside them.

`RDMABuffer` names memory where it lies; a holder of the name reads or writes it, and nothing of
the owner's takes part. `RDMAAction` does many of these at a time. The path is chosen per buffer and
process, and `RDMABuffer.explain` tells which.

What lives here, bottom up: `memory`, what programs hand in; `grants`, what processes tell
each other, the owner's side and the holder's; `paths`, the ways to move bytes; `transfer`, which
ties these together; `plane`, one per process; `buffers`, the public face; on top of it `states`,
whole state dicts and their replicas. Importing this imports neither torch nor numpy.

What may not live here: data sent with messages (`_core.wire`). Read docs/rdma.md, then `transfer`
and `grants`.

Imports `_core.plane`, `actor`, `rdma.buffers`, `rdma.grants`, `rdma.paths`, `rdma.states`.
"""

from __future__ import annotations

from .._public import publish
from .availability import (
    describe_between_hosts,
    get_rdma_backend,
    is_ibverbs_available,
    is_rdma_available,
)
from .buffers.action import RDMAAction
from .buffers.buffer import Explanation, RDMABuffer
from .errors import (
    BufferAccessError,
    BufferDroppedError,
    InconsistentStateError,
    NoPathError,
    OwnerLostError,
    RDMAError,
    RDMAReadTransferWarning,
    RDMATcpFallbackWarning,
    RDMAWarning,
    RDMAWriteTransferWarning,
    TransferTimeoutError,
)
from .paths.choice import PathReport
from .states.replica import Replica
from .states.shards import Shard, Split
from .states.state import SharedState, empty_like, pull, push, share_state

__all__ = [
    "BufferAccessError", "BufferDroppedError", "Explanation", "InconsistentStateError", "NoPathError", "OwnerLostError",
    "PathReport", "RDMAAction", "RDMABuffer", "RDMAError", "RDMAReadTransferWarning", "RDMATcpFallbackWarning",
    "RDMAWarning", "RDMAWriteTransferWarning", "Replica", "Shard", "SharedState", "Split", "TransferTimeoutError",
    "describe_between_hosts", "empty_like", "get_rdma_backend", "is_ibverbs_available", "is_rdma_available", "pull",
    "push", "share_state",
]  # fmt: skip

publish(__name__, globals(), __all__)
