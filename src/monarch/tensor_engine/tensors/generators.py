"""Generators of random numbers that a program hands to operations.

An example is ``torch.rand(3, generator=generator)``.

The generator is here, and the numbers are drawn on the ranks. So each operation takes the state of
the generator along, and all ranks draw the same. How many numbers it draws is not known here; so
the generator goes on from a new seed, which is drawn from it. Hence the numbers drawn depend on
nothing but the state of the generator, which can be saved and set as ever, and only the first
operation after that draws what it would draw in a single process.
"""

from __future__ import annotations

import torch

from ..controller.engine import holder


def take(generator: torch.Generator, function: str) -> torch.Generator:
    """The state of a generator, for the ranks; it goes on from another one.

    Args:
        generator: The generator of the program.
        function: What draws.

    Raises:
        NotImplementedError: A function is being recorded; its replays would draw the same again.
    """
    if (held := holder()) is not None:
        held.draws(function)
    taken = generator.clone_state()
    seed = torch.empty((), dtype=torch.int64, device=generator.device).random_(generator=generator)
    generator.manual_seed(int(seed))
    return taken
