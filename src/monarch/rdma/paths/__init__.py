"""The ways to move bytes between a process and a buffer of another one.

What lives here: one module per way, each with a `Path` that says whether it works and opens a
`BufferLink`; `PATHS`, in the order of preference; and `choice`, which takes the first that works, for
`transfer`. Every path passes tests/procs/test_rdma_paths.py. What may not live here: who owns the
memory and who may read it, which is the business of the owner's `Registry`. Read `path` next.

Imports `_core.plane`, `actor`, `rdma`, `rdma.grants`.
"""
