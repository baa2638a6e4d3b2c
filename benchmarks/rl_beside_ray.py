"""A job of reinforcement learning on Monarch (`benchmarks.rl_monarch`) and on Ray
(`benchmarks.rl_ray`): `python -m benchmarks.rl_beside_ray`, from the repository's root.

Both are what is at the heart of examples/rl, with its model, tasks and loss. They do the same steps
on this machine, in turn, each in a fresh program: two trainers, two generators, a verifier, a
buffer. Rows, of which each is a median over the rounds:

    samples/s      answers per second, of the steps between the first and the first kill
    first update   seconds from the start of the program to the end of the first step
    RECOVERY       seconds from SIGKILL of a process of the role until all of the role answer again,
                   or, for trainers and the buffer, until the next step is done
    lines          code beside examples/rl: neither blank, comment nor docstring
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import io
import json
import os
import signal
import subprocess
import sys
import time
import tokenize
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.machine import describe

if TYPE_CHECKING:
    from examples.rl.plan import Plan

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks" / "results" / "rl_beside_ray.json"
WAYS = ("monarch", "ray")
KILLS = "generator", "verifier", "last trainer", "first trainer", "buffer"
# steps before the first kill; and between two, or until all trainers are there
FIRST, APART = 20, 7
STEPS = 90
LIMIT = 900.0  # seconds of one program


def plan() -> Plan:
    from examples.rl.plan import Plan

    return Plan(steps=STEPS, imitation=20)


class Turns:
    """Which role is killed after which step."""

    def __init__(self) -> None:
        self.left, self.due = list(KILLS), FIRST

    def next(self, step: int, whole: bool = True) -> str | None:
        if step < self.due or not whole or not self.left:
            return None
        self.due = step + APART
        return self.left.pop(0)


def say(what: str, **more: object) -> None:
    print(json.dumps({"what": what, "at": time.monotonic(), **more}), flush=True)


def run_monarch() -> None:
    from benchmarks.rl_monarch import Job

    wanted = plan()
    job = Job(wanted)

    def killed(role: str, service: Any, replicas: int) -> None:
        victim = service.pid.call_one().get()
        os.kill(victim, signal.SIGKILL)
        say("kill", role=role)
        pids = [victim]
        while len(pids) < replicas or victim in pids:
            time.sleep(0.02)
            with suppress(Exception):  # it is being replaced
                pids = [*service.pid.call().get().values()]
        say("back")

    turns = Turns()
    for each in job.trainers.run():
        say("step", step=each.step)
        role = turns.next(each.step, len(each.value) == wanted.trainers)
        if role == "generator":
            killed(role, job.generators, wanted.generators)
        elif role == "verifier":
            killed(role, job.verifiers, wanted.verifiers)
        elif role is not None:
            [store] = job.store.statistics().get().values()
            pids = {"last trainer": each.value[-1], "first trainer": each.value[0]}
            os.kill(pids.get(role, store.pid), signal.SIGKILL)
            say("kill", role=role)
    job.end()


def run_ray() -> None:
    from benchmarks.rl_ray import Job

    job, turns = Job(plan()), Turns()

    async def done(step: int) -> None:
        say("step", step=step)
        role = turns.next(step)
        actors = {
            "generator": job.generators[0],
            "verifier": job.verifiers[0],
            "last trainer": job.trainers[-1],
            "first trainer": job.trainers[0],
            "buffer": job.buffer,
        }
        if role is not None:
            victim = pid = await actors[role].pid.remote()
            os.kill(victim, signal.SIGKILL)
            say("kill", role=role)
            while pid == victim and role in ("generator", "verifier"):
                await asyncio.sleep(0.02)
                with suppress(Exception):  # it is being started again
                    pid = await actors[role].pid.remote()
            if pid != victim:
                say("back")

    asyncio.run(job.run(done))
    job.end()


def measured(way: str) -> dict[str, float]:
    """The rows of one run."""
    program = [sys.executable, "-m", "benchmarks.rl_beside_ray", "--one", way]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    began = time.monotonic()
    said = subprocess.run(
        program,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path, "RAY_DEDUP_LOGS": "0"},
        stdout=subprocess.PIPE,
        check=True,
        timeout=LIMIT,
    ).stdout
    events = [json.loads(line) for line in said.splitlines() if line.startswith(b'{"what"')]
    ends = {each["step"]: each["at"] for each in events if each["what"] == "step"}
    assert sorted(ends) == list(range(STEPS)), f"{way}: steps are missing"
    answers = plan().groups * plan().answers  # of a step
    rows = {
        "samples/s": (FIRST - 1) * answers / (ends[FIRST] - ends[1]),
        "first update": ends[0] - began,
    }
    for number, event in enumerate(events):
        if event["what"] == "kill":
            role = event["role"]
            ended = "back" if role in ("generator", "verifier") else "step"
            back = next(each for each in events[number:] if each["what"] == ended)
            rows[role] = back["at"] - event["at"]
    assert {*KILLS} <= {*rows}, f"{way}: {STEPS} steps were too few to kill all roles"
    return rows


def lines_of(source: str) -> int:
    """Lines of code: neither blank, comment nor docstring."""
    found = set[int]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in (
            tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
            tokenize.ENDMARKER,
        ):  # fmt: skip
            found.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                found -= set(range(first.lineno, (first.end_lineno or 0) + 1))
    return len(found)


def lines() -> dict[str, int]:
    folder = Path(__file__).parent
    return {way: lines_of((folder / f"rl_{way}.py").read_text()) for way in WAYS}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rl_beside_ray", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", choices=WAYS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one == "monarch":
        run_monarch()
    elif options.one == "ray":
        run_ray()
    else:
        compare(options.rounds)


def compare(count: int) -> None:
    machine = describe()
    rounds: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    for number in range(count):
        for way in WAYS if number % 2 == 0 else reversed(WAYS):
            rounds[way].append(measured(way))
            told = ", ".join(f"{name} {value:.2f}" for name, value in rounds[way][-1].items())
            print(f"round {number}, {way}: {told}", flush=True)
        # after each: what has been measured stays
        RESULT.write_text(
            json.dumps({"machine": machine, "rounds": rounds, "lines": lines()}) + "\n"
        )
    print(table(json.loads(RESULT.read_text())))


def table(result: dict[str, Any]) -> str:
    """The rows, as Markdown."""
    told = ["| | Monarch | Ray | ratio |", "| --- | --- | --- | --- |"]
    for name in [*result["rounds"]["ray"][0], "lines"]:
        ours, theirs = (
            result["lines"][way]
            if name == "lines"
            else median(each[name] for each in result["rounds"][way])
            for way in WAYS
        )
        ratio = ours / theirs if name == "samples/s" else theirs / ours
        told.append(f"| {name} | {ours:.4g} | {theirs:.4g} | {ratio:.2f} |")
    return "\n".join(told)


if __name__ == "__main__":
    main()
