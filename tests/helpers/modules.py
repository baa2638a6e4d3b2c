"""Modules that tests of distributed tensors train, on the ranks as well: so they are importable
there.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class PlusSum(nn.Module):
    """Adds two parameters, which get one and the same gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.ones(2))
        self.b = nn.Parameter(torch.ones(2))

    def forward(self, x: Any) -> Any:
        return x + (self.a + self.b)
