"""The caller's side of a call: futures, pending operations, and errors as they cross processes.

Lives here: nothing that knows how a message travels, or what an actor is. Read `future`, then
`promise` (what completes one) and `pending` (what both share), `waiting` (how threads and tasks
wait), `waits` (who waits for what, for the detector of deadlocks), `failed_call` and `remote_error`
(what a caller is told).

Imports `net`, `shape`, `supervision`, `wire`.
"""
