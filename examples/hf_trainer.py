"""Hugging Face's `Trainer` on a mesh: each rank is an actor, and accelerate finds the others by the
variables of torchrun.

A tiny language model is made from a config and learns to count. Nothing is downloaded.

    pip install 'pymonarch[examples]'
    python examples/hf_trainer.py

What to look for:

* ``setup_torch_elastic_env(procs)``   RANK, WORLD_SIZE and so on: all that accelerate asks for
* ``trainers.train.call()``            all ranks at once; a rank that fails is an error here, not a hang
"""

import os
import tempfile

from monarch.actor import Actor, endpoint, this_host
from monarch.config import configure
from monarch.spmd import setup_torch_elastic_env

RANKS, WORDS, LENGTH, SAMPLES = 2, 16, 8, 256


# region rank
class Rank(Actor):
    @endpoint
    def train(self, folder: str) -> tuple[int, float, float]:
        """The number of ranks that it saw, and the loss at first and in the end."""
        import torch
        from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

        torch.set_num_threads(1)
        torch.manual_seed(0)
        config = GPT2Config(
            vocab_size=WORDS,
            n_positions=LENGTH,
            n_embd=32,
            n_layer=1,
            n_head=2,
            bos_token_id=0,
            eos_token_id=0,
        )
        firsts = torch.randint(WORDS, (SAMPLES, 1))
        lines = (firsts + torch.arange(LENGTH)) % WORDS
        arguments = TrainingArguments(
            folder,
            use_cpu=True,
            per_device_train_batch_size=16,
            num_train_epochs=10,
            learning_rate=1e-2,
            logging_steps=8,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        trainer = Trainer(
            GPT2LMHeadModel(config),
            arguments,
            train_dataset=[{"input_ids": line, "labels": line} for line in lines],
        )
        trainer.train()
        losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        return arguments.world_size, float(losses[0]), float(losses[-1])


# endregion


def main() -> None:
    os.environ["HF_HUB_OFFLINE"] = "1"
    configure(
        preload=["torch._dynamo", "transformers", "accelerate"], host_spawn_ready_timeout="2m"
    )
    procs = this_host().spawn_procs({"gpus": RANKS})
    setup_torch_elastic_env(procs)
    ranks = procs.spawn("ranks", Rank)
    with tempfile.TemporaryDirectory() as folder:
        found = ranks.train.call(folder).get().values()
    for rank, (world, first, last) in enumerate(found):
        print(f"rank {rank} of {world}: loss {first:.2f}, then {last:.2f}")
        assert world == RANKS, "accelerate has not seen the other ranks"
        assert last < 0.5 < first, "it has not learned to count"
    procs.stop().get()


if __name__ == "__main__":
    main()
