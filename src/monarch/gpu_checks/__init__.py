"""The checks of `monarch doctor --gpu`: what this package does on GPUs, tried on this host.

A check is a short program as a user would write it, in the public names of this package. It returns
its findings in a few words, or raises an error. Each runs in a process of its own, so that
one which breaks, or hangs, does not take the others with it. Without a GPU the same programs run on
CPUs, as far as that makes sense, over gloo.

`check` says what a check is and runs one; `checks` has them. What may not live here: tables and
options, which are of `doctor_gpu`.

Imports `actor`, `rdma`, `spmd`, `telemetry`, `tensor_engine`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy_names

if TYPE_CHECKING:
    from .checks import CHECKS as CHECKS
    from .checks import survey as survey

# these import torch
__getattr__, __dir__ = lazy_names(__name__, {"checks": ("CHECKS", "survey")})
