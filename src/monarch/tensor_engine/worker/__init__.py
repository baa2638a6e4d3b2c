"""The ranks: what runs the instructions of a controller.

    worker              the actor that gets them
    runner              runs those of one stream; `functions` and `templates`, how it finds what
    stream_state        the values of a stream; `stream_rendezvous`, on their way between two
    worker_collectives  moves between ranks; `worker_borrows`, between streams
    engine_transfer     moves between engines
    programs            recorded programs
    torch_groups        groups of torch for functions of the user
    loans               tensors lent to actors; `local`, references as a rank reads them

Read `worker`, then `runner`.

Imports `_core.plane`, `actor`, `rdma`, `rdma.grants`, `tensor_engine`, `tensor_engine.groups`,
`tensor_engine.planning`.
"""
