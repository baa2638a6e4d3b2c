"""A small transformer in plain torch, which runs on one rank as on distributed tensors."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  # as everybody calls it

from benchmarks.end_to_end.programs.training import BATCH, HEADS, LAYERS, LENGTH, LETTERS, WIDTH


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attend, self.collect = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = self.attend(self.first(x)).reshape(BATCH, LENGTH, 3, HEADS, WIDTH // HEADS)
        queries, keys, values = heads.permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        x = x + self.collect(seen.transpose(1, 2).reshape(BATCH, LENGTH, WIDTH))
        found: torch.Tensor = x + self.down(F.gelu(self.up(self.second(x))))
        return found


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.letters = nn.Embedding(LETTERS, WIDTH)
        self.layers = nn.Sequential(*[Layer() for _ in range(LAYERS)])
        self.head = nn.Linear(WIDTH, LETTERS)

    def forward(self, letters: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.head(self.layers(self.letters(letters)))
        return found


def batch() -> torch.Tensor:
    return torch.randint(LETTERS, (BATCH, LENGTH + 1))


def loss_of(model: nn.Module, letters: torch.Tensor) -> torch.Tensor:
    """How well the model tells each next letter."""
    return F.cross_entropy(model(letters[:, :-1]).flatten(0, 1), letters[:, 1:].flatten())
