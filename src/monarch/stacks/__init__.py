"""The stacks of every thread of every process of a program, equal ones together.

It is for programs that hang.

The host agent is asked (`host`): it runs no user code, so it always answers. It asks each process;
its I/O thread answers (`capture`); those that run no Python, as C code holds the GIL, it has dump
their stacks by a signal, or looks at with py-spy (`dump`). `grouping` finds the classes of equal
stacks; it is pure. `report` shows them.

Read `gather`, then `host` and `capture`.

Imports `_core.plane`, `_patterns`, `actor`, `programs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy_names

if TYPE_CHECKING:
    from .grouping import StackClass
    from .model import Frame, ProcStacks, ThreadStack
    from .report import Stacks

# what a process needs to answer is less than what it takes to ask
__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "grouping": ("StackClass",),
        "model": ("Frame", "ProcStacks", "ThreadStack"),
        "report": ("Stacks",),
    },
)

__all__ = ["Frame", "ProcStacks", "StackClass", "Stacks", "ThreadStack"]
