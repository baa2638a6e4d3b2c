"""Tensors on meshes as programs hold them, and how operations on them are issued.

    engine_meshes  where meshes come from
    device_mesh    meshes; `rank_mesh`, as operations need them; `streams`, lines of operations
    tensor_base    values and their memory; `tensor`, the handles; `tensor_methods`
    activation     the active mesh, which takes torch's operations
    references     tensors as arguments; `operand_checks`, errors of some that don't fit
    collectives    moves between ranks, in `mesh_groups`; `process_group`, one for the user
    borrows        moves between streams
    fetching       values, back to the program; `shard_table` shows them
    seeding        random numbers of the ranks; `generators`, of the program

Read `tensor`, then `activation`.

Imports `_core.plane`, `_patterns`, `actor`, `tensor_engine`, `tensor_engine.controller`,
`tensor_engine.groups`, `tensor_engine.planning`, `tensor_engine.worker`.
"""
