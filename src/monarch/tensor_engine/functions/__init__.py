"""Functions, objects and modules of the user that live on the ranks.

    remote_functions  functions; `call_arguments` and `propagation`, what goes in and comes out
    endpoints         endpoints of actors on tensors
    opaque            objects of any kind: `opaque_object`, `opaque_module`, `remote_class`
    pipes             processes that make values for ranks

Read `remote_functions`.

Imports `_core.plane`, `actor`, `tensor_engine`, `tensor_engine.planning`, `tensor_engine.tensors`,
`tensor_engine.worker`.
"""
