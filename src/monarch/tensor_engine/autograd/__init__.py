"""Backward passes: in pieces (`gradients`), and with bodies on the ranks (`remote_autograd`).

Imports `tensor_engine`, `tensor_engine.functions`, `tensor_engine.tensors`.
"""
