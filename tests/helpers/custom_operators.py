"""An operator that a module of the program brings; processes that have not imported it do not have
it.
"""

from __future__ import annotations

import torch


@torch.library.custom_op("tests_helpers::thrice", mutates_args=())
def thrice(x: torch.Tensor) -> torch.Tensor:
    return x * 3


@thrice.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)
