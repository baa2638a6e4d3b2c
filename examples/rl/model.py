"""The policy: a transformer over bytes, with a cache of keys and values for each running request."""

from dataclasses import replace
from importlib import import_module

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.parametrize import register_parametrization

from .plan import Plan
from .tasks import LONGEST_ANSWER, LONGEST_PROMPT, task

LENGTH = LONGEST_PROMPT + LONGEST_ANSWER
VOCABULARY = 128  # ASCII
Cached = tuple[Tensor, Tensor, Tensor]  # `start`, `slots` and a cache: see `Policy.forward`


def make_cache(plan: Plan, slots: int) -> Tensor:
    """Of requests that run: [layer, keys or values, slot, position, head, width of a head]."""
    return torch.zeros(plan.layers, 2, slots, LENGTH, plan.heads, plan.width // plan.heads)


class Adapter(nn.Module):
    """A matrix of low rank that is added to a layer's own."""

    def __init__(self, layer: nn.Linear, rank: int) -> None:
        super().__init__()
        self.lora_in = nn.Parameter(torch.randn(rank, layer.in_features) / layer.in_features**0.5)
        self.lora_out = nn.Parameter(torch.zeros(layer.out_features, rank))

    def forward(self, weight: Tensor) -> Tensor:
        return weight + 2 * self.lora_out @ self.lora_in


class Block(nn.Module):
    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.heads, width, wide = plan.heads, plan.width, 4 * plan.width
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.attention = nn.Linear(width, 3 * width)
        self.mix = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, wide), nn.GELU(), nn.Linear(wide, width))

    def forward(self, x: Tensor, positions: Tensor, slots: Tensor, cache: Tensor | None) -> Tensor:
        query, key, value = (
            each.unflatten(-1, (self.heads, -1))
            for each in self.attention(self.norms[0](x)).chunk(3, dim=-1)
        )
        seen = positions
        if cache is not None:
            cache[:, slots[:, None], positions] = torch.stack((key, value))
            key, value = cache[:, slots]
            seen = torch.arange(LENGTH).expand(len(slots), -1)
        mask = seen[:, None, None, :] <= positions[:, None, :, None]
        mixed = functional.scaled_dot_product_attention(
            query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), attn_mask=mask
        )
        x = x + self.mix(mixed.transpose(1, 2).flatten(2))
        return torch.add(x, self.mlp(self.norms[1](x)))


class Policy(nn.Module):
    """Bytes in, logits of the next byte out."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, plan.width)
        self.places = nn.Embedding(LENGTH, plan.width)
        self.blocks = nn.ModuleList([Block(plan) for _ in range(plan.layers)])
        self.norm = nn.LayerNorm(plan.width)
        self.out = nn.Linear(plan.width, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor, cached: Cached | None = None) -> Tensor:
        """[row, position] -> [row, position, byte].

        With `cached`, of `start`, `slots` and a cache, row `i` is what follows the first `start[i]`
        bytes of slot `slots[i]`. What stands behind the end of a row, to make all of one length, is
        never looked at.
        """
        each = torch.arange(len(tokens))
        start, slots, cache = cached or (each * 0, each, None)
        positions = start[:, None] + torch.arange(tokens.shape[1])
        x = self.tokens(tokens) + self.places(positions)
        for number, block in enumerate(self.blocks):
            x = block(x, positions, slots, None if cache is None else cache[number])
        logits: Tensor = self.out(self.norm(x))
        return logits


class HuggingFacePolicy(nn.Module):
    """A Llama of `transformers`, made at random. It has no cache of ours: see `Generator`."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        transformers = import_module("transformers")
        ends = {"vocab_size": VOCABULARY, "max_position_embeddings": LENGTH}
        inside = {"hidden_size": plan.width, "intermediate_size": 4 * plan.width}
        depth = {"num_hidden_layers": plan.layers, "num_attention_heads": plan.heads}
        config = transformers.LlamaConfig(**ends, **inside, **depth)
        self.model = transformers.LlamaForCausalLM(config)

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
        for layer in list(policy.modules()):
            if isinstance(layer, nn.Linear) and layer is not getattr(policy, "out", None):
                register_parametrization(layer, "weight", Adapter(layer, plan.lora))
    return policy


def learned(policy: nn.Module) -> dict[str, Tensor]:
    """What training changes, and generators have to get: all of it, or the adapters alone."""
    wanted = {name for name, each in policy.named_parameters() if each.requires_grad}
    return {name: each for name, each in policy.state_dict().items() if name in wanted}


def rows(texts: list[bytes]) -> Tensor:
    """[text, position]; what is behind the end of a text is 0."""
    return torch.tensor([list(text.ljust(LENGTH, b"\0")) for text in texts])


def answer_logprobs(policy: nn.Module, pairs: list[tuple[bytes, bytes]]) -> Tensor:
    """Of each byte of the answers of these prompts, one answer after the other."""
    tokens = rows([prompt + answer for prompt, answer in pairs])
    begins = torch.tensor([[len(prompt)] for prompt, _ in pairs])
    ends = torch.tensor([[len(prompt + answer)] for prompt, answer in pairs])
    place = torch.arange(1, LENGTH)
    logprobs = torch.log_softmax(policy(tokens[:, :-1]), dim=-1)
    logprobs = logprobs.gather(2, tokens[:, 1:, None]).squeeze(2)
    return logprobs[(begins <= place) & (place < ends)]


def imitate(plan: Plan) -> dict[str, Tensor]:
    """Weights of a model that has seen right answers for a few seconds, and knows the format."""
    policy = make_policy(replace(plan, lora=0))
    optimizer = torch.optim.AdamW(policy.parameters(), 3e-3)
    for step in range(plan.imitation):
        # numbers below 0: none that is asked later
        tasks = [task(-1 - row, plan.seed) for row in range(64 * step, 64 * (step + 1))]
        loss = -answer_logprobs(policy, [(each.prompt, each.answer) for each in tasks]).mean()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return {name: each.detach().clone() for name, each in policy.state_dict().items()}
