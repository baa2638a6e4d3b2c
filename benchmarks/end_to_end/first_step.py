"""From Enter to the first training step: from the start of a user's program until all ranks have
stepped.

The programs are in `programs/`. Each begins with a cold interpreter, and with nothing of it
running.
"""

from __future__ import annotations

import subprocess
import sys
import time

from benchmarks.end_to_end.contenders import OURS, Contender, Quantity, Row, main
from benchmarks.targets import Target

PROGRAMS = "benchmarks.end_to_end.programs"


def seconds_until_step(*command: str) -> dict[str, float]:
    begun = time.perf_counter()
    with subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        took = [
            time.perf_counter() - begun for line in program.stdout if line.startswith("first step")
        ]
    if program.returncode or len(took) != 1:
        raise RuntimeError(
            f"{command} ended with {program.returncode}, and told of {len(took)} first steps"
        )
    return {"until all have stepped": took[0]}


def with_actors(ranks: int) -> dict[str, float]:
    return seconds_until_step("-m", f"{PROGRAMS}.first_step_pymonarch", str(ranks))


def with_torchrun(ranks: int) -> dict[str, float]:
    torchrun = ("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}")
    return seconds_until_step(*torchrun, "-m", f"{PROGRAMS}.first_step_torchrun")


def with_ray(ranks: int) -> dict[str, float]:
    return seconds_until_step("-m", f"{PROGRAMS}.first_step_ray", str(ranks))


ROW = Row(
    name="first_step",
    title="From Enter to the first training step",
    contenders={
        OURS: Contender(with_actors, ("torch",)),
        "torchrun": Contender(with_torchrun, ("torch",)),
        "Ray actors": Contender(with_ray, ("torch", "ray")),
    },
    quantities={
        "until all have stepped": Quantity(
            "s", {"torchrun": Target(2, 5), "Ray actors": Target(2, 5)}
        )
    },
    settings={"ranks": 8},
)


if __name__ == "__main__":
    main(ROW)
