"""The engine.

No torch, no HTTP; nothing here is public except through `monarch.actor` and the planes above it.

Read in this order: `shape` (geometry, pure), `wire` (frames and pickling, pure), `supervision`
(failure records and ownership, pure), `net` (the only sockets), `runtime` (the only threads and
processes), `mesh` (what users hold in their hands).
"""
