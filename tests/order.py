"""Tests in random orders: `python -m tests.order --runs 5`.

Each run shuffles the files, and the tests of each, by a seed that it prints; `--seed` does one again.
What follows ``--`` goes to pytest: without it the tests run that a plain `pytest` runs.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # as pytest has it

from trust import OPTIONS, ROOT


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.order", description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="how many orders; default: 5")
    parser.add_argument("--seed", type=int, help="the first order's seed; the next ones count on")
    parser.add_argument(
        "options", nargs="*", help=f"for pytest, behind --; default: {' '.join(OPTIONS)}"
    )
    given = parser.parse_args(argv)
    first = random.randrange(1_000_000) if given.seed is None else given.seed
    failed = []
    for seed in range(first, first + given.runs):
        print(f"== order {seed}", flush=True)
        options = given.options or OPTIONS
        command = [sys.executable, "-m", "pytest", "-q", f"--shuffle={seed}", *options]
        if subprocess.run(command, cwd=ROOT, check=False).returncode:
            failed.append(seed)
    print(f"{given.runs - len(failed)} of {given.runs} orders passed; failed: {failed or 'none'}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
