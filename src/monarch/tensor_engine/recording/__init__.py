"""Instructions that are kept: to be sent together, or replayed.

    instruction_buffer  what holds them back
    recorder            the instructions of one call of a recorded function
    recording           recorded functions

Read `recording`.

Imports `tensor_engine`, `tensor_engine.controller`, `tensor_engine.planning`,
`tensor_engine.tensors`, `tensor_engine.worker`.
"""
