"""Feeds all targets in turn, for some minutes, with inputs that follow from one seed."""

from __future__ import annotations

import argparse
import random
import time

from . import live
from .inputs import FuzzFailure, once, run_clever, run_plain
from .targets import TARGETS, doors

_PLAIN, _CLEVER = 4000, 300  # inputs of a target per round, over its weight


def main(arguments: list[str] | None = None) -> int:
    given = _parse(arguments)
    wanted = set(given.target or [target.name for target in TARGETS] + list(live.NAMES))
    every = [*TARGETS, *(live.targets() if wanted.intersection(live.NAMES) else [])]
    targets = [target for target in every if target.name in wanted]
    try:
        if given.again is not None:
            for target in targets:
                once(target, bytes.fromhex(given.again))
            return 0
        print(f"seed {given.seed}")
        end, rounds = time.monotonic() + 60 * given.minutes, 0
        while time.monotonic() < end:
            for target in targets:
                run_plain(target, given.seed + rounds, max(1, _PLAIN // target.weight))
                run_clever(target, given.seed + rounds, max(1, _CLEVER // target.weight))
            rounds += 1
            print(
                f"round {rounds} ended, {(end - time.monotonic()) / 60:.0f} minutes left",
                flush=True,
            )
    except FuzzFailure as failure:
        print(f"FAILURE\n{failure}", flush=True)
        return 1
    finally:
        doors.close()
        live.live.close()
    print(f"{rounds} rounds over {', '.join(target.name for target in targets)}: nothing found")
    return 0


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description="Any bytes, for every parser of bytes."
    )
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument(
        "--seed", type=int, default=random.randrange(2**32), help="the inputs follow from it"
    )
    parser.add_argument(
        "--target",
        action="append",
        choices=[*(target.name for target in TARGETS), *live.NAMES],
        help="may be given several times; default: all",
    )
    parser.add_argument("--again", metavar="HEX", help="one input, that was printed")
    return parser.parse_args(arguments)
