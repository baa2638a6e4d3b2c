"""Packages for procs: environments on hosts, each of which is made once, and shared.

`in_environment` has a virtual environment made from a file of requirements, by an actor on each
host (`hosts`); `venv` is what happens there. `mirror` brings a conda environment of this machine
there, file by file; `enter` is the side of the agents, which have `prefix` write its paths anew,
and start procs in it.

Read `hosts`, then `venv`.

Imports `_core.plane`, `actor`, `programs`, `sync`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy_names

if TYPE_CHECKING:
    from .conda import CondaEnvironment
    from .hosts import in_environment

__getattr__, __dir__ = lazy_names(  # an agent needs little of it
    __name__, {"conda": ("CondaEnvironment",), "hosts": ("in_environment",)}
)

__all__ = ["CondaEnvironment", "in_environment"]
