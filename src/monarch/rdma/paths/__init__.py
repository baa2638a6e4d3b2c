"""The ways from a process to a buffer.

What lives here: one module per path, each a `Path` that says whether it leads somewhere and opens a
`Link`; `PATHS`, in the order of preference; and `choice`, which takes the first that works. Every
path passes tests/procs/test_rdma_paths.py. What may not live here: whose memory it is and who may
come in, which is the owner's `Registry`. Read `path` next.

Imports `_core.plane`, `actor`, `rdma`.
"""
