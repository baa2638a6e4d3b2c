"""Whole state dicts on top of transfers: shared, pulled, pushed and followed.

    state          `share_state`, `pull` and `push`
    tensors        tensors of a state dict, and `distributed`, of a `DTensor`
    shards         which part of a whole a process has; `blocks`, which bytes two parts share
    seqlock        writes that readers notice; `seqlock_owner`, their count
    replica        a copy that follows, and is read by others
    directory      which reader reads from whom; `directories`, those of a process

Imports `_core.plane`, `actor`, `rdma`, `rdma.buffers`, `rdma.grants`, `rdma.paths`.
"""
