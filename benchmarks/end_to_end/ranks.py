"""A function that runs on each rank of a group, under actors and under torchrun: what it returns."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.end_to_end.contenders import OURS, Contender
from monarch.actor import Actor, endpoint, this_host
from monarch.config import configure
from monarch.spmd import setup_torch_elastic_env

TOLD = "told "

Numbers = dict[str, float]


class Rank(Actor):
    @endpoint
    def call(self, module: str, function: str, arguments: tuple[Any, ...]) -> Numbers:
        found: Numbers = getattr(importlib.import_module(module), function)(*arguments)
        return found


def with_actors(ranks: int, function: Callable[..., Numbers], *arguments: Any) -> list[Numbers]:
    configure(preload=["torch", "torch._dynamo"])
    procs = this_host().spawn_procs({"gpus": ranks})
    setup_torch_elastic_env(procs)
    group = procs.spawn("ranks", Rank)
    answers = group.call.call(function.__module__, function.__name__, arguments).get()
    return list(answers.values())


def with_torchrun(ranks: int, function: Callable[..., Numbers], *arguments: Any) -> list[Numbers]:
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    what = [function.__module__, function.__name__, json.dumps(arguments)]
    program = ["-m", "benchmarks.end_to_end.programs.rank_torchrun", *what]
    command = [sys.executable, *torchrun, *program]
    said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    told = [line.removeprefix(TOLD) for line in said.splitlines() if line.startswith(TOLD)]
    if len(told) != ranks:
        raise RuntimeError(f"{len(told)} of {ranks} ranks have told what they found")
    return list(map(json.loads, told))


def contenders(measure: Callable[..., Numbers]) -> dict[str, Contender]:
    """Both launchers, each of them the first argument of `measure`."""
    ways = {OURS: with_actors, "torchrun": with_torchrun}
    return {name: Contender(partial(measure, launch), ("torch",)) for name, launch in ways.items()}


def slowest(found: list[Numbers]) -> Numbers:
    """The largest of each number, over all ranks."""
    return {name: max(each[name] for each in found) for name in found[0]}
