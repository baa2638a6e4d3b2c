"""Functions for the ranks of a mesh, ready to be called.

`monarch.builtins.log` has logging, `monarch.builtins.random` random numbers.

Each is what `monarch.remote` makes: ``log_remote("at step", step)`` runs on every rank of the
active mesh.

Read `random`; `log` is the same, shorter.

Imports `tensor_engine`, `tensor_engine.tensors`.
"""

from __future__ import annotations

from .log import log_remote, set_logging_level_remote

__all__ = ["log_remote", "set_logging_level_remote"]
