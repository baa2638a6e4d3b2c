"""Plans of operations, found once by running them on fake tensors.

    fakes     fake tensors; `without_dynamo`, without an import of seconds
    plans     plans of operations, cached
    settings  flags of torch that change what an operation computes

Read `plans`.

Imports `tensor_engine`.
"""
