"""``python -m monarch.testing --hosts 10000 --kill 100 --seed 1``: calls to all, while hosts die.

It prints a table at the end.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence

from .client import Cast
from .simulation import Simulation, Unanswered


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m monarch.testing", description=__doc__)
    for name, default, text in (
        ("--hosts", 1000, "workers"),
        ("--procs", 8, "processes on each"),
        ("--casts", 3, "calls to all processes"),
        ("--kill", 0, "hosts that die in the midst of the calls"),
        ("--loss", 0.0, "probability that bytes are sent twice"),
    ):
        help_text = f"{text} (default: %(default)s)"
        parser.add_argument(name, type=type(default), default=default, help=help_text)
    parser.add_argument(
        "--fanout",
        type=int,
        help="hosts that one passes a call on to (default: knob max_cast_fanout)",
    )
    parser.add_argument(
        "--seed", type=int, default=None, help="repeats a run (default: another one each time)"
    )
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0; 1 if a caller waits in vain or order was not kept.

    It is 2 if the arguments make no sense.
    """
    given = _arguments(arguments)
    seed = random.SystemRandom().randrange(2**32) if given.seed is None else given.seed
    try:
        simulation = Simulation(
            seed=seed,
            hosts=given.hosts,
            procs_per_host=given.procs,
            loss=given.loss,
            fanout=given.fanout,
        )
        if not 0 <= given.kill <= given.hosts:
            raise ValueError(f"--kill must be 0 to {given.hosts}, got {given.kill}")
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    try:
        _run(simulation, given.casts, given.kill, random.Random(seed))
    except Unanswered as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    report = simulation.report()
    print(report)
    return 1 if report.twice or report.disorder or report.missing else 0


def _run(simulation: Simulation, casts: int, kill: int, chance: random.Random) -> None:
    _watch(simulation, simulation.attach(), "attaching")
    for number in range(casts):
        cast = simulation.cast()
        for _ in range(kill * (number + 1) // casts - kill * number // casts):
            simulation.kill_host(after=chance.uniform(0, 0.01))
        _watch(simulation, cast, f"call {number + 1} of {casts}")


def _watch(simulation: Simulation, cast: Cast, what: str) -> None:
    """Run until a cast is done, and say how far it is on a terminal."""
    if sys.stderr.isatty():
        step = 0.002
        while not cast.done and step < 600:
            simulation.run(until=simulation.now + step)
            step *= 1.5
            count = len(cast.answered) + len(cast.lost)
            print(
                f"\r\033[K{what}: {count:,} of {count + len(cast.missing):,}",
                end="",
                file=sys.stderr,
                flush=True,
            )
        print("\r\033[K", end="", file=sys.stderr)
    simulation.run(until=cast)


if __name__ == "__main__":
    sys.exit(main())
