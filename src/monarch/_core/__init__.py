"""The engine.

No torch, no HTTP; nothing here is public except through the actor API and the planes above it.

Read in this order, in which each imports only those before it: `shape` (geometry, pure), `wire`
(frames and pickling, pure), `supervision` (failure records and ownership, pure), `routing` (ways
between hosts, pure), `net` (the only sockets), `calls` (futures), `hub` (the messages of a process),
`actors`, `processes` (the host agent and its procs), `client` (the user's process), `mesh` (what
users hold in their hands). `plane` is all that planes may import. `extension`, below all of
these, has the points at which others add to the engine.
"""
