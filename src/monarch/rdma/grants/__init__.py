"""The right to reach memory of another process: who gives it, and who holds it.

    records      the messages of `rdma`
    registry     the owner's side
    leases       the holder's side
    control_rpc  questions to a process itself

Read `registry` first.

Imports `_core.plane`, `actor`, `rdma`, `rdma.paths`.
"""
