"""Workers on the nodes of a running Ray cluster.

    job      `RayJob`
    control  asks for them from here
    hosts    what runs on the nodes

Read `job`, then `hosts`.

Imports `job.base`, `trust`.
"""
