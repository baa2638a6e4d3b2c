"""The user's own process, root of the supervision tree.

Lives here: what a script needs beyond what any process with actors does. Read `client`, then
`faults` (what becomes of an unhandled failure), `attached` (the hosts it has taken into
use), `pending_output` (output comes before the answer).

Imports `actors`, `calls`, `hub`, `net`, `processes`, `shape`, `supervision`, `wire`.
"""
