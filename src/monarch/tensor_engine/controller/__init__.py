"""Instructions on their way from the program to the ranks.

    engine    batches of instructions
    executor  what carries them out; `workers`, where that are processes

Read `engine`.

Imports `_core.plane`, `actor`, `tensor_engine`, `tensor_engine.planning`, `tensor_engine.worker`.
"""
