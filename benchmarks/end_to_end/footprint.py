"""What a program costs before it does anything: lines to write, megabytes to install, megabytes of
memory while idle.

Lines are those of the programs of `first_step` and `rank_killed`, without blank ones, comments and
docstrings, and without the training step, which all share.
Installed is what metadata say of a distribution and all that it requires here, torch left out. Idle
memory is that of 8 procs that have been called once, and of all processes beside them; pages that
several share count once.
"""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import importlib.util
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks import processes
from benchmarks.end_to_end.contenders import DASK, OURS, Contender, Quantity, Row, main
from benchmarks.targets import Target
from monarch.actor import Actor, endpoint, this_host

PROGRAMS = Path(__file__).parent / "programs"
SETTLE_S = 2.0
FIRST, SURVIVE = "lines of a first step", "lines to survive a killed rank"
# The program of `first_step`, and what `rank_killed` has beside the step, by file: read there, as
# to import torch would count as memory of who is idle.
_CHECKPOINT = ("programs/rank_killed.py", "train_from_checkpoint")
PROGRAMS_OF: dict[str, tuple[str, tuple[tuple[str, ...], ...]]] = {
    OURS: ("first_step_pymonarch.py", (("rank_killed.py", "Trainer", "run_elastic"),)),
    "torchrun": (
        "first_step_torchrun.py",
        (_CHECKPOINT, ("programs/rank_killed_torchrun.py",)),
    ),
    "Ray": ("first_step_ray.py", (_CHECKPOINT, ("rank_killed.py", "RayTrainer", "run_ray"))),
}


def lines_of(source: str) -> int:
    """Lines with code on them: docstrings, comments and blank lines don't count."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(
            node, False
        ):
            node.body[0] = ast.Pass()
    told = [line for line in ast.unparse(tree).splitlines() if line.strip() not in ("", "pass")]
    return len(told)


def closure(name: str, without: tuple[str, ...] = ("torch",)) -> set[str]:
    """The distributions that one requires, itself among them, as far as they are installed; no
    extras.
    """
    found: set[str] = set()
    waiting = [name]
    while waiting:
        each = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if each in found or each in without:
            continue
        try:
            required = importlib.metadata.requires(each) or []
        except importlib.metadata.PackageNotFoundError:
            continue  # for another system or Python
        found.add(each)
        names = [re.match(r"[\w.-]+", line) for line in required if "extra ==" not in line]
        waiting += [match.group() for match in names if match]
    return found


def megabytes(name: str) -> float:
    """What the files of a distribution and of its requirements take on a disk."""
    total = 0
    for each in closure(name):
        files = [Path(str(file.locate())) for file in importlib.metadata.files(each) or []]
        if each == "pymonarch":  # may be a checkout, whose files no metadata name
            package = importlib.util.find_spec("monarch")
            assert package is not None
            assert package.origin is not None
            files = [*Path(package.origin).parent.rglob("*")]
        total += sum(
            file.stat().st_size for file in files if file.is_file() and file.suffix != ".pyc"
        )
    return total / 1e6


def idle_memory() -> float:
    """Megabytes of all processes that this contender has, each shared page once."""
    time.sleep(SETTLE_S)
    total = 0
    for pid in processes.marked(os.environ[processes.MARK]):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1])
    return total * 1024 / 1e6


class Idle(Actor):
    @endpoint
    def pid(self) -> int:
        return os.getpid()


def with_ours(procs: int) -> dict[str, float]:
    this_host().spawn_procs({"procs": procs}).spawn("idle", Idle).pid.call().get()
    return found(OURS, "pymonarch", idle_memory())


def with_ray(procs: int) -> dict[str, float]:
    ray: Any = importlib.import_module("ray")
    ray.init(num_cpus=procs, include_dashboard=False, logging_level="error", log_to_driver=False)
    idle = [ray.remote(num_cpus=1)(RayIdle).remote() for _ in range(procs)]
    ray.get([each.pid.remote() for each in idle])
    return found("Ray", "ray", idle_memory())


class RayIdle:
    def pid(self) -> int:
        return os.getpid()


def with_torchrun(procs: int) -> dict[str, float]:
    torchrun = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc-per-node={procs}",
    ]
    idle = "import time; print('idle', flush=True); time.sleep(600)"
    program = [*torchrun, "--no-python", sys.executable, "-c", idle]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        for _ in range(procs):
            run.stdout.readline()
        memory = idle_memory()
        run.terminate()
    return found("torchrun", None, memory)


def with_dask(procs: int) -> dict[str, float]:
    dask: Any = importlib.import_module("distributed")
    with (
        dask.LocalCluster(n_workers=procs, threads_per_worker=1, dashboard_address=None) as cluster,
        dask.Client(cluster) as client,
    ):
        client.run(os.getpid)
        return found(None, "distributed", idle_memory())


def found(name: str | None, distribution: str | None, memory: float) -> dict[str, float]:
    """The numbers of a contender, whose programs have `name`; without one there are no lines."""
    installed = 0.0 if distribution is None else megabytes(distribution)
    return {**(lines_to_write(name) if name else {}), "installed": installed, "idle": memory}


def lines_to_write(name: str) -> dict[str, float]:
    """The lines of a first program, and of what makes training outlive a rank that is killed."""
    program, survivors = PROGRAMS_OF[name]
    return {
        FIRST: float(lines_of((PROGRAMS / program).read_text())),
        SURVIVE: float(sum(lines_of(part(file, *names)) for file, *names in survivors)),
    }


def part(file: str, *names: str) -> str:
    """What has these names in a file beside this one; without any, all of it."""
    tree = ast.parse((Path(__file__).parent / file).read_text())
    tree.body = [each for each in tree.body if not names or getattr(each, "name", "") in names]
    return ast.unparse(tree)


ROW = Row(
    name="footprint",
    title="Lines to write, what is installed, memory of 8 idle procs",
    contenders={
        OURS: Contender(with_ours),
        # runs the script of torchrun as it is
        "pymonarch, monarch run": Contender(lambda procs: lines_to_write("torchrun")),
        "torchrun": Contender(with_torchrun, ("torch",)),
        "Ray": Contender(with_ray, ("ray",)),
        "Dask": Contender(with_dask, requirement=DASK),
    },
    quantities={
        FIRST: Quantity("lines", {"torchrun": Target(1), "Ray": Target(1)}),
        SURVIVE: Quantity("lines", {"torchrun": Target(1), "Ray": Target(1)}),
        "installed": Quantity("MB", {"Ray": Target(1), "Dask": Target(1)}),
        "idle": Quantity("MB", {name: Target(1) for name in ("torchrun", "Ray", "Dask")}),
    },
    settings={"procs": 8},
)


if __name__ == "__main__":
    main(ROW)
