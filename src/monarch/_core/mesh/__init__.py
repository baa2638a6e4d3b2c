"""The public objects of the engine: host, proc and actor meshes, controllers, mocks.

Every mesh is a value: ids, addresses and a shape. Slicing makes another value and talks to nobody.
Only the mesh that a spawn returned is *owned*: it can be stopped, and the actor that made it stops
it when it ends.
"""
