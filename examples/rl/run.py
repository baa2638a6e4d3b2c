"""The program: imitation, reinforcement learning, a report.

python -m examples.rl --steps 60
"""

import argparse
import logging
import shlex
import tempfile
import time
from dataclasses import fields, replace
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

from monarch.elastic import Report as StepReport

from .drill import Drill, small_disk
from .model import ModelPlan, imitate
from .roles import HOSTS, Plan, Roles, start
from .rollouts import RolloutPlan
from .trainer import Report, TrainPlan

T = TypeVar("T")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.rl", description=__doc__)
    add = parser.add_argument
    add("--steps", default="60", help="of GRPO; `few` are enough to see that all of it works")
    add("--seed", type=int, default=0)
    add("--trainers", type=int, default=2)
    add("--generators", type=int, default=2)
    add("--verifiers", type=int, default=1)
    add("--max-age", type=int, default=2, help="steps that answers may be behind; 0: lockstep")
    add("--correct", action="store_true", help="clipped importance weights for old answers")
    add("--fsdp", action="store_true", help="trainers shard the model, instead of DDP")
    add("--lora", type=int, default=0, metavar="RANK", help="train and send adapters alone")
    add("--hf", action="store_true", help="a model of transformers, made at random")
    add("--checkpoint", type=Path, metavar="FOLDER", help="go on from there, and save there")
    add("--checkpoint-every", type=int, default=10, metavar="STEPS")
    add("--imitation", type=int, default=100, metavar="STEPS")
    add("--hosts", choices=HOSTS, default="local")
    add("--nodes", nargs="+", default=[], help="for --hosts ssh")
    add("--ssh-args", type=shlex.split, default=[], help="for ssh: --ssh-args='-F FILE'")
    add("--image", default="", help="for --hosts kubernetes")
    add("--namespace", default="default", help="for --hosts kubernetes")
    add("--drill", action="store_true", help="kill each role once, cut a host, fill the disk")
    return parser.parse_args()


def plan_of(options: argparse.Namespace) -> Plan:
    options.malice = 40 if options.drill else 0
    if options.steps == "few":
        options.steps, options.imitation = 4, 5
    options.steps = int(options.steps)
    parts: dict[str, type[Any]] = {"model": ModelPlan, "rollout": RolloutPlan, "train": TrainPlan}
    for name, part in parts.items():
        setattr(options, name, filled(part, options))
    return filled(Plan, options)


def filled(plan: type[T], options: argparse.Namespace) -> T:
    """A plan with the options that have the names of its fields."""
    known = vars(options)
    names = (each.name for each in fields(plan) if each.name in known)  # type: ignore[arg-type]
    return plan(**{name: known[name] for name in names})


# region run
def run(plan: Plan, drill: bool = False) -> dict[int, Report]:
    """Do it all; the last report of each step."""
    began = time.perf_counter()
    base = imitate(plan.model, plan.imitation, plan.rollout.seed)
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
    conclude(plan, roles, reports, seconds)
    if trouble is not None:
        trouble.report(reports)
    roles.rollouts.stop().get()
    roles.generators.stop(drain=0).get()
    roles.verifiers.stop(drain=0).get()
    return reports


# endregion


def show(each: StepReport, plan: Plan) -> None:
    if each.step % max(1, plan.train.steps // 15) == 0 or each.step == plan.train.steps - 1:
        report: Report = each.value
        bar = "#" * round(40 * report.reward)
        print(
            f"{each.step:4}  {report.reward:5.0%}  {report.age:4.1f}  {report.waited:4.1f} s  {bar}",
            flush=True,
        )


def conclude(plan: Plan, roles: Roles, reports: dict[int, Report], seconds: float) -> None:
    rewards = [reports[step].reward for step in sorted(reports)]
    samples = len(reports) * plan.rollout.groups * plan.rollout.answers
    part = max(1, len(rewards) // 6)
    last = fmean(rewards[-part:])
    print(f"\n{samples} samples in {seconds:.1f} s, {samples / seconds:.0f} per second")
    print(f"reward of the first steps {fmean(rewards[:part]):.0%}, of the last {last:.0%}")
    mixed = fmean(report.mixed for report in reports.values())
    print(f"answers with bytes of several versions of the weights: {mixed:.0%}")
    waited = sum(report.waited for report in reports.values())
    times = roles.rollouts.times.call_one().get()
    slowest = max(times, key=lambda who: times[who])
    print(f"trainers waited {waited / seconds:.0%} of the time; groups were longest in {slowest}")


def main() -> None:
    options = arguments()
    # what is replaced is a warning of these
    for name in ("monarch.service", "monarch.supervision", "monarch.elastic"):
        logging.getLogger(name).setLevel(logging.ERROR)
    plan = plan_of(options)
    if options.drill:
        with tempfile.TemporaryDirectory() as folder, small_disk(Path(folder)) as disk:
            train = replace(plan.train, checkpoint=disk, steps=max(plan.train.steps, 60))
            hosts = "processes" if plan.hosts == "local" else plan.hosts
            run(replace(plan, train=train, hosts=hosts), drill=True)
    else:
        if options.checkpoint is not None:
            options.checkpoint.mkdir(parents=True, exist_ok=True)
        run(plan)
