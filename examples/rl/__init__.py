"""Asynchronous reinforcement learning of a language model, end to end.

    python -m examples.rl              two minutes at most, on two cores; needs torch
    python -m examples.rl --drill      the same, while each part is killed once
    python -m examples.rl --help       other hosts, FSDP2, LoRA, checkpoints

Each file is one role; read them in this order:

    plan         all that decides what a run does
    tasks        what is asked, and the programs that check answers
    model        the policy: a transformer of bytes, with a cache of keys and values
    verifier     runs the checks, within limits of time and memory
    generator    answers prompts, many at a time, with the newest weights
    rollouts     keeps generators and verifiers busy, and fills the replay buffer
    trainer      learns from groups of answers, on ranks that may die
    roles        starts all of them, on this machine or on hosts of a cluster
    drill        what goes wrong on purpose
    run          the program: imitation, reinforcement learning, the report
"""
