"""All that decides what a run does: each role has it."""

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Plan:
    steps: int = 60
    seed: int = 0
    imitation: int = 100  # steps
    # roles, and where they are
    trainers: int = 2
    generators: int = 2
    verifiers: int = 1
    hosts: str = "local"
    nodes: list[str] = field(default_factory=list)  # for ssh: trainers on the first, if several
    ssh_args: list[str] = field(default_factory=list)
    image: str = ""  # for kubernetes
    namespace: str = "default"
    # the model
    width: int = 64
    layers: int = 2
    heads: int = 4
    lora: int = 0  # rank of the adapters, which are then all that learns; 0: none
    hf: bool = False  # a model of `transformers`, instead of ours
    # rollouts
    groups: int = 16  # in the batch of a step
    answers: int = 8  # in a group
    max_age: int = 2  # steps that weights may be behind those that learn from what they said
    malice: int = 0  # each task whose number is a multiple has a bad checker
    # training
    learning_rate: float = 1e-3
    clip: float = 0.2
    correct: bool = False  # old answers by clipped importance weights, beside dropping the oldest
    fsdp: bool = False
    checkpoint: Path | None = None
    checkpoint_every: int = 10
