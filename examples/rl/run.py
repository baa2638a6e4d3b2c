"""The program: imitation, reinforcement learning, a report.

python -m examples.rl --steps 60 --plot curve.svg
"""

import argparse
import logging
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from monarch.elastic import Report as StepReport

from .drill import Drill, small_disk
from .model import ModelPlan, imitate
from .roles import HOSTS, Plan, Roles, start
from .rollouts import RolloutPlan
from .trainer import Report, TrainPlan


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
    add("--image", default="", help="for --hosts kubernetes")
    add("--drill", action="store_true", help="kill each role once, cut a host, fill the disk")
    add("--plot", type=Path, metavar="FILE", help="draw the rewards: an SVG")
    return parser.parse_args()


def plan_of(options: argparse.Namespace) -> Plan:
    few = options.steps == "few"
    return Plan(
        ModelPlan(lora=options.lora, hf=options.hf),
        RolloutPlan(max_age=options.max_age, seed=options.seed, malice=40 if options.drill else 0),
        TrainPlan(
            steps=4 if few else int(options.steps),
            correct=options.correct,
            fsdp=options.fsdp,
            checkpoint=options.checkpoint,
            checkpoint_every=options.checkpoint_every,
        ),
        imitation=5 if few else options.imitation,
        trainers=options.trainers,
        generators=options.generators,
        verifiers=options.verifiers,
        hosts=options.hosts,
        nodes=options.nodes,
        image=options.image,
    )


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


def draw(rewards: list[float], path: Path) -> None:
    """A line from the left to the right, of as many points as there are steps."""
    width, height, edge = 640, 240, 30
    points = [
        (edge + (width - 2 * edge) * step / max(1, len(rewards) - 1), height - edge - 180 * reward)
        for step, reward in enumerate(rewards)
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    marks = "".join(
        f'<path d="M{edge} {height - edge - 1.8 * mark}H{width - edge}" stroke="#ddd"/>'
        f'<text x="2" y="{height - edge - 1.8 * mark + 4}">{mark}</text>'
        for mark in (0, 50, 100)
    )
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-size="11"'
        f' font-family="sans-serif">{marks}<polyline points="{line}" fill="none"'
        f' stroke="#2a6f97" stroke-width="2"/><text x="{edge}" y="{height - 8}">right answers, in'
        f" percent, over {len(rewards)} steps of GRPO</text></svg>\n"
    )


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
            reports = run(replace(plan, train=train, hosts=hosts), drill=True)
    else:
        if options.checkpoint is not None:
            options.checkpoint.mkdir(parents=True, exist_ok=True)
        reports = run(plan)
    if options.plot is not None:
        draw([reports[step].reward for step in sorted(reports)], options.plot)
