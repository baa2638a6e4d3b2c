"""A script for torchrun: each rank tells what a step took."""

import sys

from benchmarks.end_to_end.programs.training import milliseconds_a_step

if __name__ == "__main__":
    # One write a line: ranks share a pipe.
    sys.stdout.write(f"a step took {milliseconds_a_step(int(sys.argv[1]))}\n")
