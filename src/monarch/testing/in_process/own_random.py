"""Random numbers of torch that each proc draws for itself, as each process does.

torch has one generator for all. So its state changes with the turn: what a proc draws, or seeds,
nothing else sees.
"""

from __future__ import annotations

import sys
from typing import Any
from weakref import WeakKeyDictionary


class OwnRandom:
    """The states of torch's generator, by what they belong to.

    Args:
        program: The owner of the generator's present state.
    """

    def __init__(self, program: object) -> None:
        self._states: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
        self._owner = program

    def belongs_to(self, owner: object) -> None:
        """Let the generator be that of `owner`, which has the turn."""
        torch = sys.modules.get("torch")
        generator = getattr(torch, "default_generator", None)  # not while torch is being imported
        if torch is None or generator is None or owner is self._owner:
            return
        self._states[self._owner], self._owner = generator.get_state(), owner
        state = self._states.get(owner)
        generator.set_state(torch.Generator().get_state() if state is None else state)
