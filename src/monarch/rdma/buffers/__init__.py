"""The public face of transfers: handles to memory, and actions on many of them.

    buffer   `RDMABuffer`, a handle to some
    ranges   overlaps of what one action reads and writes
    action   `RDMAAction`

Imports `_core.plane`, `actor`, `rdma`, `rdma.grants`, `rdma.paths`.
"""
