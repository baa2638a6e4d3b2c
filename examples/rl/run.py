"""The program: imitation, reinforcement learning, a report.

python -m examples.rl --steps 60
"""

import argparse
import logging
import re
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from .drill import Drill, small_disk
from .model import imitate
from .plan import Plan
from .roles import start
from .trainer import Report


def arguments() -> dict[str, Any]:
    """A plan's, and whether there is a drill."""
    parser = argparse.ArgumentParser(prog="python -m examples.rl", description=__doc__)
    told = dict(re.findall(r"^ +(\w+): (.+)$", Plan.__doc__ or "", re.MULTILINE))
    kinds = {"steps": lambda word: 4 if word == "few" else int(word), "checkpoint": Path}
    for name, default in asdict(Plan()).items():
        how: dict[str, Any] = {"type": kinds.get(name, type(default)), "metavar": name.upper()}
        if default is False:
            how = {"action": "store_true"}
        flag = "--" + name.replace("_", "-")
        parser.add_argument(flag, default=default, help=f"{told[name]} ({default})", **how)
    parser.add_argument("--drill", action="store_true", help="kill roles, cut a host, fill a disk")
    return vars(parser.parse_args())


def run(plan: Plan, drill: Path | None = None) -> dict[int, Report]:
    """Do it all, with a drill if there is a disk to fill; the last report of each step."""
    print(f"imitation of right answers: {plan.imitation} steps", flush=True)
    base = imitate(plan)
    began = time.perf_counter()
    roles = start(plan, base)
    trouble = Drill(roles, plan, drill) if drill else None
    reports: dict[int, Report] = {}
    print("step  reward  age  waited")
    for each in roles.trainers.run():
        reports[each.step] = each.value
        show(each.step, each.value, plan)
        if trouble is not None:
            trouble.after(each.step, each.value)
    conclude(plan, reports, time.perf_counter() - began)
    if trouble is not None:
        trouble.report(reports)
    roles.rollouts.stop().get()
    roles.generators.stop(drain=0).get()
    roles.verifiers.stop(drain=0).get()
    return reports


def show(step: int, report: Report, plan: Plan) -> None:
    if step % max(1, plan.steps // 15) == 0 or step == plan.steps - 1:
        told = f"{step:4}  {report.reward:5.0%}  {report.age:4.1f}  {report.waited:4.1f} s"
        print(told, "", "#" * round(40 * report.reward), flush=True)


def conclude(plan: Plan, reports: dict[int, Report], seconds: float) -> None:
    rewards = [reports[step].reward for step in sorted(reports)]
    samples = len(reports) * plan.groups * plan.answers
    first, last = fmean(rewards[:10]), fmean(rewards[-10:])
    mixed = fmean(report.mixed for report in reports.values())
    waited = sum(report.waited for report in reports.values()) / seconds
    print(f"\n{samples} samples in {seconds:.1f} s, {samples / seconds:.0f} per second")
    print(f"reward of the first 10 steps {first:.0%}, of the last {last:.0%}")
    print(f"answers with bytes of several versions of the weights: {mixed:.0%}")
    print(f"trainers waited {waited:.0%} of the time: `monarch why` says for whom")


def main() -> None:
    options = arguments()
    has_drill = options.pop("drill")
    plan = Plan(**options)
    logging.getLogger("monarch").setLevel(logging.ERROR)  # what is replaced is a warning
    if has_drill:
        hosts = "processes" if plan.hosts == "local" else plan.hosts  # one stands still
        with tempfile.TemporaryDirectory() as folder, small_disk(Path(folder)) as disk:
            plan = replace(plan, malice=40, hosts=hosts, checkpoint=disk, steps=max(plan.steps, 60))
            run(plan, drill=disk)
    else:
        run(plan)
