"""All that decides what a run does: each role has it."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Plan:
    """Each of these is a flag of `python -m examples.rl`.

    Attributes:
        steps: of GRPO; `few` are enough to see that all of it works
        seed: of tasks and answers
        imitation: steps of it, before GRPO begins
        trainers: ranks of one elastic group
        generators: replicas of a service
        verifiers: replicas of a service
        hosts: local, processes, slurm, ssh or kubernetes
        nodes: for ssh, with commas between; trainers are on the first, if there are several
        ssh_args: for ssh: --ssh-args='-F FILE'
        image: for kubernetes
        namespace: for kubernetes
        width: of the model
        layers: of the model
        heads: of the model
        lora: rank of adapters, which are then all that is trained and sent; 0: none
        hf: a model of transformers, made at random
        groups: in the batch of a step
        answers: in a group
        max_age: steps that weights may be behind those that learn from their answers; 0: lockstep
        malice: each task with a number that is a multiple has a bad checker; 0: none
        learning_rate: of AdamW
        clip: of GRPO
        correct: clipped importance weights for old answers, beside dropping the oldest
        fsdp: trainers shard the model, instead of DDP
        checkpoint: folder to go on from, and to save in
        checkpoint_every: steps between two of these
    """

    steps: int = 60
    seed: int = 0
    imitation: int = 100
    trainers: int = 2
    generators: int = 2
    verifiers: int = 1
    hosts: str = "local"
    nodes: str = ""
    ssh_args: str = ""
    image: str = ""
    namespace: str = "default"
    width: int = 64
    layers: int = 2
    heads: int = 4
    lora: int = 0
    hf: bool = False
    groups: int = 16
    answers: int = 8
    max_age: int = 2
    malice: int = 0
    learning_rate: float = 1e-3
    clip: float = 0.2
    correct: bool = False
    fsdp: bool = False
    checkpoint: Path | None = None
    checkpoint_every: int = 10
