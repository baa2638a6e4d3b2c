"""Patterns built on the engine; those for programs have their names in `monarch.actor`.

Read `pools` and `controllers`: what an actor can be used for. `attaching` uses hosts on which a
`worker` lets clients in; `retrying` repeats calls; `endpoints` and `returns_future` make functions
callable as endpoints and calls are; `activities` says what actors do; `ids` are identities to make
and compare; `later` leads to planes.

Imports `_core.actors`, `_core.calls`, `_core.client`, `_core.hub`, `_core.mesh`, `_core.net`,
`_core.processes`, `_core.shape`, `_core.supervision`, `_core.wire`.
"""
