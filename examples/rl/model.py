"""The policy: a transformer over bytes, with a cache of keys and values for each running request."""

from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from .plan import Plan
from .tasks import LONGEST_ANSWER, LONGEST_PROMPT, task

LENGTH = LONGEST_PROMPT + LONGEST_ANSWER
VOCABULARY = 128  # ASCII


@dataclass
class Cache:
    """Keys and values of the requests that run: [layer, slot, position, head, width of a head]."""

    keys: Tensor
    values: Tensor

    @classmethod
    def of(cls, plan: Plan, slots: int) -> "Cache":
        shape = (plan.layers, slots, LENGTH, plan.heads, plan.width // plan.heads)
        return cls(torch.zeros(shape), torch.zeros(shape))


class Adapted(nn.Module):
    """A linear layer, with a low-rank matrix that is added to its own."""

    def __init__(self, linear: nn.Linear, rank: int) -> None:
        super().__init__()
        self.linear = linear
        self.lora_in = nn.Parameter(torch.randn(rank, linear.in_features) / linear.in_features**0.5)
        self.lora_out = nn.Parameter(torch.zeros(linear.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        added: Tensor = 2 * (x @ self.lora_in.T @ self.lora_out.T)
        out: Tensor = self.linear(x)
        return out + added


class Block(nn.Module):
    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.heads = plan.heads
        self.norms = nn.ModuleList([nn.LayerNorm(plan.width), nn.LayerNorm(plan.width)])
        self.attention = nn.Linear(plan.width, 3 * plan.width)
        self.mix = nn.Linear(plan.width, plan.width)
        self.grow = nn.Linear(plan.width, 4 * plan.width)
        self.shrink = nn.Linear(4 * plan.width, plan.width)

    def forward(
        self, x: Tensor, positions: Tensor, cached: tuple[Tensor, Tensor] | None, slots: Tensor
    ) -> Tensor:
        query, key, value = (
            each.unflatten(-1, (self.heads, -1))
            for each in self.attention(self.norms[0](x)).chunk(3, dim=-1)
        )
        if cached is None:
            seen = positions
        else:
            keys, values = cached
            keys[slots[:, None], positions] = key
            values[slots[:, None], positions] = value
            key, value = keys[slots], values[slots]
            seen = torch.arange(LENGTH).expand(len(slots), -1)
        mask = seen[:, None, None, :] <= positions[:, None, :, None]
        mixed = functional.scaled_dot_product_attention(
            query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), attn_mask=mask
        )
        x = x + self.mix(mixed.transpose(1, 2).flatten(2))
        out: Tensor = x + self.shrink(functional.gelu(self.grow(self.norms[1](x))))
        return out


class Policy(nn.Module):
    """Bytes in, logits of the next byte out."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, plan.width)
        self.places = nn.Embedding(LENGTH, plan.width)
        self.blocks = nn.ModuleList([Block(plan) for _ in range(plan.layers)])
        self.norm = nn.LayerNorm(plan.width)
        self.out = nn.Linear(plan.width, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor, cached: tuple[Tensor, Tensor, Cache] | None = None) -> Tensor:
        """[row, position] -> [row, position, byte].

        With `cached`, of `start`, `slots` and a cache, row `i` is what follows the first `start[i]`
        bytes of slot `slots[i]`. What stands behind the end of a row, to make all of one length, is
        never looked at.
        """
        count = len(tokens)
        start, slots, cache = cached or (torch.zeros(count).long(), torch.arange(count), None)
        positions = start[:, None] + torch.arange(tokens.shape[1])
        x = self.tokens(tokens) + self.places(positions)
        for number, block in enumerate(self.blocks):
            seen = None if cache is None else (cache.keys[number], cache.values[number])
            x = block(x, positions, seen, slots)
        logits: Tensor = self.out(self.norm(x))
        return logits


class HuggingFacePolicy(nn.Module):
    """A Llama of `transformers`, made at random. It has no cache of ours: see `Generator`."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        transformers = import_module("transformers")
        self.model: Any = transformers.LlamaForCausalLM(
            transformers.LlamaConfig(
                vocab_size=VOCABULARY,
                hidden_size=plan.width,
                intermediate_size=4 * plan.width,
                num_hidden_layers=plan.layers,
                num_attention_heads=plan.heads,
                max_position_embeddings=LENGTH,
            )
        )

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.model(tokens, use_cache=False).logits
        return logits


def make_policy(plan: Plan, weights: dict[str, Tensor] | None = None) -> nn.Module:
    """The same model in each process: with these weights, or random ones of a fixed seed.

    The adapters of LoRA are new, as the weights come from a model that had none.
    """
    torch.set_num_threads(1)
    torch.manual_seed(0)
    policy: nn.Module = HuggingFacePolicy(plan) if plan.hf else Policy(plan)
    if weights is not None:
        policy.load_state_dict(weights)
    if plan.lora:
        policy.requires_grad_(False)
        torch.manual_seed(0)
        for module in list(policy.modules()):
            for name, child in list(module.named_children()):
                if isinstance(child, nn.Linear) and child is not getattr(policy, "out", None):
                    setattr(module, name, Adapted(child, plan.lora))
    return policy


def learned(policy: nn.Module) -> dict[str, Tensor]:
    """What training changes, and generators have to get: all of it, or the adapters alone."""
    wanted = {name for name, each in policy.named_parameters() if each.requires_grad}
    return {name: each for name, each in policy.state_dict().items() if name in wanted}


def rows(texts: list[bytes]) -> Tensor:
    """[text, position]; what is behind the end of a text is 0."""
    return torch.tensor([list(text.ljust(LENGTH, b"\0")) for text in texts])


def imitate(plan: Plan) -> dict[str, Tensor]:
    """Weights of a model that has seen right answers for a few seconds, and knows the format."""
    policy = make_policy(replace(plan, lora=0))
    optimizer = torch.optim.AdamW(policy.parameters(), 3e-3)
    number = -1
    for _ in range(plan.imitation):
        tasks = [
            task(number - row, plan.seed) for row in range(64)
        ]  # below 0: none that is asked later
        number -= len(tasks)
        tokens = rows([each.prompt + each.answer for each in tasks])
        prompts = torch.tensor([len(each.prompt) for each in tasks])
        ends = torch.tensor([len(each.prompt + each.answer) for each in tasks])
        place = torch.arange(1, LENGTH)
        counts = (place >= prompts[:, None]) & (place < ends[:, None])
        logits = policy(tokens[:, :-1])
        loss = functional.cross_entropy(logits[counts], tokens[:, 1:][counts])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return {name: each.detach().clone() for name, each in policy.state_dict().items()}
