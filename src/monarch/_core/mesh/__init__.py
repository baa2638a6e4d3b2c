"""The public objects of the engine: host, proc and actor meshes.

Every mesh is a value: ids, addresses and a shape. Slicing makes another value and sends nothing.
Only the mesh that a spawn returned is *owned*: it can be stopped, and the actor that made it stops
it when it ends.

Read `proc_mesh` and `actor_mesh`, then `launch` and `owned` (what a spawn does, and what it leaves
to its owner), `host_mesh`.

Imports `actors`, `calls`, `client`, `hub`, `net`, `processes`, `shape`, `supervision`,
`wire`.
"""
