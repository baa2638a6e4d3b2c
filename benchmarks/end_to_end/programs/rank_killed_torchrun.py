"""A script for torchrun, which starts all ranks again when one dies."""

import sys

import torch.distributed as dist

from benchmarks.end_to_end.programs.rank_killed import Plan, Task, train_from_checkpoint

if __name__ == "__main__":
    folder, steps, killed_in, every = sys.argv[1:]
    dist.init_process_group("gloo")
    train_from_checkpoint(Task(Plan(folder, int(steps), int(killed_in))), int(every))
