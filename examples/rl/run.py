"""The program: imitation, reinforcement learning, a report.

python -m examples.rl --steps 60
"""

import argparse
import logging
import shlex
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean

from monarch.elastic import Report as StepReport

from .drill import Drill, small_disk
from .model import imitate
from .plan import Plan
from .roles import HOSTS, start
from .trainer import Report


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.rl", description=__doc__)
    add = parser.add_argument
    add("--steps", help="of GRPO; `few` are enough to see that all of it works")
    for name in ("seed", "trainers", "generators", "verifiers"):
        add(f"--{name}", type=int)
    add("--max-age", type=int, help="steps that answers may be behind; 0: lockstep")
    add("--correct", action="store_true", help="clipped importance weights for old answers")
    add("--fsdp", action="store_true", help="trainers shard the model, instead of DDP")
    add("--lora", type=int, metavar="RANK", help="train and send adapters alone")
    add("--hf", action="store_true", help="a model of transformers, made at random")
    add("--checkpoint", type=Path, metavar="FOLDER", help="go on from there, and save there")
    add("--checkpoint-every", type=int, metavar="STEPS")
    add("--imitation", type=int, metavar="STEPS")
    add("--hosts", choices=HOSTS)
    add("--nodes", nargs="+", help="for --hosts ssh")
    add("--ssh-args", type=shlex.split, help="for ssh: --ssh-args='-F FILE'")
    add("--image", help="for --hosts kubernetes")
    add("--namespace", help="for --hosts kubernetes")
    add("--drill", action="store_true", help="kill each role once, cut a host, fill the disk")
    parser.set_defaults(**asdict(Plan()))
    return parser.parse_args()


def plan_of(options: argparse.Namespace) -> Plan:
    known = dict(vars(options), malice=40 if options.drill else 0)
    if known.pop("drill"):
        known["hosts"] = "processes" if options.hosts == "local" else options.hosts
    few = {"steps": 4, "imitation": 5} if options.steps == "few" else {"steps": int(options.steps)}
    return Plan(**known | few)


# region run
def run(plan: Plan, drill: bool = False) -> dict[int, Report]:
    """Do it all; the last report of each step."""
    began = time.perf_counter()
    base = imitate(plan)
    print(f"imitation: {plan.imitation} steps, {time.perf_counter() - began:.1f} s", flush=True)
    began = time.perf_counter()
    roles = start(plan, base)
    roles.rollouts.watch.broadcast()
    trouble = Drill(roles, plan) if drill else None
    reports: dict[int, Report] = {}
    print("step  reward  age  waited")
    for each in roles.trainers.run():
        reports[each.step] = each.value
        show(each, plan)
        if trouble is not None:
            trouble.after(each)
    seconds = time.perf_counter() - began
    conclude(plan, reports, seconds)
    if trouble is not None:
        trouble.report(reports)
    roles.rollouts.stop().get()
    roles.generators.stop(drain=0).get()
    roles.verifiers.stop(drain=0).get()
    return reports


# endregion


def show(each: StepReport, plan: Plan) -> None:
    if each.step % max(1, plan.steps // 15) == 0 or each.step == plan.steps - 1:
        report: Report = each.value
        bar = "#" * round(40 * report.reward)
        print(
            f"{each.step:4}  {report.reward:5.0%}  {report.age:4.1f}  {report.waited:4.1f} s  {bar}",
            flush=True,
        )


def conclude(plan: Plan, reports: dict[int, Report], seconds: float) -> None:
    rewards = [reports[step].reward for step in sorted(reports)]
    samples = len(reports) * plan.groups * plan.answers
    part = max(1, len(rewards) // 6)
    last = fmean(rewards[-part:])
    print(f"\n{samples} samples in {seconds:.1f} s, {samples / seconds:.0f} per second")
    print(f"reward of the first steps {fmean(rewards[:part]):.0%}, of the last {last:.0%}")
    mixed = fmean(report.mixed for report in reports.values())
    print(f"answers with bytes of several versions of the weights: {mixed:.0%}")
    waited = sum(report.waited for report in reports.values())
    print(f"trainers waited {waited / seconds:.0%} of the time: `monarch why` says for whom")


def main() -> None:
    options = arguments()
    # what is replaced is a warning of these
    for name in ("monarch.service", "monarch.supervision", "monarch.elastic"):
        logging.getLogger(name).setLevel(logging.ERROR)
    plan = plan_of(options)
    if options.drill:
        with tempfile.TemporaryDirectory() as folder, small_disk(Path(folder)) as disk:
            run(replace(plan, checkpoint=disk, steps=max(plan.steps, 60)), drill=True)
    else:
        if options.checkpoint is not None:
            options.checkpoint.mkdir(parents=True, exist_ok=True)
        run(plan)
