"""A script for torchrun."""

import os

from benchmarks.end_to_end.programs import training

if __name__ == "__main__":
    training.first_step()
    if os.environ["RANK"] == "0":
        print("first step", flush=True)
