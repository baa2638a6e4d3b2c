"""Groups of ranks that communicate.

    groups      over `torch.distributed`; `gloo`, for tensors on CPUs
    in_process  ranks that are threads of one process
    rendezvous  where all ranks of an engine meet

Read `groups`.

Imports `_core.plane`, `tensor_engine`.
"""
