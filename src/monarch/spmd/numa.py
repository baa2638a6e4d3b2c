"""A program on the cores near a GPU: ``python -m monarch.spmd.numa node 0 python train.py``.

torch finds the cores, as for `torchrun --numa-binding`; the program takes the place of this one.
"""

from __future__ import annotations

import inspect
import os
import sys


def main(mode: str, gpu: str, *command: str) -> None:
    """Bind this process to the cores near a GPU, and run the command in its place.

    Args:
        mode: Which of them, as `torch.numa.binding.AffinityMode` has it.
        gpu: Its number, among those that this process may use.
        *command: The program and its arguments.

    Raises:
        SystemExit: torch finds no such GPU, or no ``numactl``.
    """
    try:
        from torch.numa import binding

        find = binding._get_validated_logical_cpus_to_bind_to
        which = next(iter(inspect.signature(find).parameters))  # its name differs between releases
        options = binding.NumaOptions(binding.AffinityMode(mode))
        cores = find(**{which: int(gpu)}, numa_options=options)
    except Exception as error:
        sys.exit(f"--numa-binding {mode}: torch finds no cores near GPU {gpu}: {error}")
    os.sched_setaffinity(0, cores)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(*sys.argv[1:])
