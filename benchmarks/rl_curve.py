"""What examples/rl learns while its roles are killed, beside what it learns undisturbed:
`python -m benchmarks.rl_curve`, from the repository's root.

Each seed runs once with the drill and once without. Both have bad checkers among their tasks, and a
checkpoint now and then, so only kills, a slow generator, a full disk and a host that is cut off set
them apart. Curves are equal within their spread if the means of their last steps differ by no more
than seeds do: the larger standard deviation of the two.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from benchmarks.machine import describe

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks" / "results" / "rl_curve.json"


def learn(seed: int, steps: int, max_age: int, drill: bool) -> list[float]:
    """Run the example here, once in a process; the reward of each step."""
    from examples.rl.drill import small_disk
    from examples.rl.plan import Plan
    from examples.rl.run import run

    with tempfile.TemporaryDirectory() as folder, small_disk(Path(folder)) as disk:
        plan = Plan(
            steps=steps,
            seed=seed,
            max_age=max_age,
            malice=40,
            hosts="processes",
            checkpoint=disk,
        )
        with contextlib.redirect_stdout(io.StringIO()):
            reports = run(plan, disk if drill else None)
    return [reports[step].reward for step in sorted(reports)]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rl_curve", description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--max-age", type=int, default=0, help="default: 0, in lockstep")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        seed, way = options.one
        print(json.dumps(learn(int(seed), options.steps, options.max_age, way == "kills")))
        return
    machine = describe()
    curves: dict[str, list[list[float]]] = {"undisturbed": [], "kills": []}
    for seed in range(options.seeds):
        for way, found in curves.items():
            program = [sys.executable, "-m", "benchmarks.rl_curve", "--one", str(seed), way]
            program += ["--steps", str(options.steps), "--max-age", str(options.max_age)]
            said = subprocess.run(program, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
            found.append([round(each, 4) for each in json.loads(said.splitlines()[-1])])
            print(f"seed {seed}, {way}: {fmean(found[-1][-20:]):.1%}", flush=True)
    result: dict[str, Any] = {"machine": machine, "steps": options.steps, "curves": curves}
    RESULT.write_text(json.dumps(result) + "\n")
    lasts = {way: [fmean(curve[-20:]) for curve in found] for way, found in curves.items()}
    for way, last in lasts.items():
        first = fmean(fmean(curve[:10]) for curve in curves[way])
        print(f"{way}: {first:.1%} at first, {fmean(last):.1%} ± {stdev(last):.1%} in the last 20")
    difference = abs(fmean(lasts["kills"]) - fmean(lasts["undisturbed"]))
    spread = max(map(stdev, lasts.values()))
    print(f"they differ by {difference:.1%}, seeds by {spread:.1%}")
    sys.exit(difference > spread)


if __name__ == "__main__":
    main()
