"""`monarch run` of two ranks, from Enter to the first all-reduce; `torchrun` with the same script
stands beside it.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.workloads._harness import Measured, Options, main

SCRIPT = """
import os
import torch
import torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("gloo")
value = torch.ones(1)
dist.all_reduce(value)
if os.environ["RANK"] == "0":
    print("first step", flush=True)
dist.destroy_process_group()
"""


def measure(options: Options) -> Measured:
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "train.py")
        script.write_text(SCRIPT)
        ours: list[float] = []
        torchruns: list[float] = []
        for _ in range(options.count(3)):  # in turn: what else the machine does hits both
            ours.append(_time(["monarch.tools", "run"], script))
            torchruns.append(_time(["torch.distributed.run"], script))
    value, torchrun = statistics.median(ours), statistics.median(torchruns)
    return Measured(value, "s", {"torchrun_s": torchrun, "of_torchrun": value / torchrun})


def _time(launcher: list[str], script: Path) -> float:
    command = [sys.executable, "-m", *launcher, "--nproc-per-node", "2", str(script)]
    start = time.perf_counter()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=script.parent
    ) as run:
        assert run.stdout is not None
        for line in run.stdout:
            if b"first step" in line:
                return time.perf_counter() - start
    raise AssertionError(f"{launcher} ended with status {run.returncode}, without a step")


if __name__ == "__main__":
    main(measure)
