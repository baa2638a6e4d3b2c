"""A simulator of programs with distributed tensors, without the machines: time, memory, traces.

A `Simulator` has a mesh, on which programs run as on any other. Behind it is no worker but a model
of one:

===============  ======================================================================================================
`simulator`      what programs hold; `history` keeps their instructions for another time
`model`          gets the instructions that workers would get; answers, and recorded programs
`interpreter`    when each instruction begins and ends, and what memory its results take
`cost`           the work in an operation of torch, and how long that takes on a `machine`
`moves`          who meets whom; how long data is on its way say the formulas of `collectives`
`cohorts`        where each rank is in time; ranks that do the same are computed once
`rank_memory`    what the ranks hold
`record`         what happened, for `trace`, `graph` and `picture`
===============  ======================================================================================================

`meter` finds the numbers of the machine at hand: ``python -m monarch.simulator profile``. The
formulas, and what they leave out, are in docs/simulator.md. What may not live here: anything that
workers need.

Read `simulator`, then `model` and `interpreter`.

Imports `actor`, `tensor_engine`, `tensor_engine.controller`, `tensor_engine.groups`,
`tensor_engine.planning`, `tensor_engine.tensors`, `tensor_engine.worker`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy_names

if TYPE_CHECKING:
    from .machine import MACHINES as MACHINES
    from .machine import Link as Link
    from .machine import Machine as Machine
    from .machine import load as load
    from .meter import measure as measure
    from .mocking import patch_tensor_engine as patch_tensor_engine
    from .simulator import Simulator as Simulator
    from .simulator import Step as Step
    from .simulator import replay as replay
    from .simulator import set_meta as set_meta

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "machine": ("MACHINES", "Link", "Machine", "load"),
        "meter": ("measure",),
        "mocking": ("patch_tensor_engine",),
        "simulator": ("Simulator", "Step", "replay", "set_meta"),
    },
)
