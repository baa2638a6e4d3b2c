"""The command: see the docstring of the package."""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from endings.cases import draw
from endings.sandbox import why_not
from endings.verdict import violations
from helpers.processes import heed_signals


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        "python -m tests.endings", description="Ends programs at random, and looks at what is left."
    )
    parser.add_argument("--runs", type=int, default=100, help="programs (default: 100)")
    parser.add_argument("--at-once", type=int, default=2, help="at a time (default: 2)")
    parser.add_argument("--seed", type=int, default=None, help="of what is drawn")
    parser.add_argument("--first", type=int, default=0, help="number of the first one")
    given = parser.parse_args(arguments)
    if reason := why_not():
        parser.error(reason)
    heed_signals()
    seed = random.randrange(2**32) if given.seed is None else given.seed
    print(f"seed {seed}", flush=True)
    wrong = 0
    with ThreadPoolExecutor(given.at_once) as pool:

        def run(number: int) -> bool:
            case = draw(seed, number)
            found = violations(case)
            if found:
                print(f"--- {number}: {case}", *found, sep="\n", flush=True)
            return bool(found)

        wrong = sum(pool.map(run, range(given.first, given.first + given.runs)))
    print(f"{given.runs} endings, {wrong} of them wrong; seed {seed}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
