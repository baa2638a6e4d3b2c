"""What the workloads about numbers of processes share: spawn so many, call each once, look at their
memory, stop them.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

from benchmarks.workloads._harness import Measured, Options
from benchmarks.workloads._workers import TorchWorker, Worker
from benchmarks.workloads.private_memory import memory_of
from monarch.actor import this_host


def measure_spawn(options: Options, count: int, torch: bool = False) -> Measured:
    """Args:
    count: Processes of a full run.
    torch: The client has imported torch, and the actors use it.
    """
    if torch:
        # before anything is spawned: what a program that uses tensors does
        import torch as _  # noqa: F401
    count = options.count(count)
    start = time.perf_counter()
    procs = this_host().spawn_procs(per_host={"procs": count})
    workers: Any = procs.spawn("worker", TorchWorker if torch else Worker)
    pids: list[int] = list(workers.pid.call().get().values())
    called = time.perf_counter()
    if len(set(pids)) != count:
        raise AssertionError(f"wanted {count} processes, got {len(set(pids))}")
    usage = [memory_of(pid) for pid in pids]
    stopping = time.perf_counter()
    procs.stop().get()
    stopped = time.perf_counter() - stopping
    memory = {
        f"{kind}_mb": statistics.median(each[kind] for each in usage)
        for kind in ("private", "shared")
    }
    return Measured(called - start, "s", {"procs": count, "stop_s": stopped, **memory})
