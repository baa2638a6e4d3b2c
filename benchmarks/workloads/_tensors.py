"""What the workloads with distributed tensors share. CPU procs; tensors of 4×4, so that what counts is the way to them."""

from __future__ import annotations

import os
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported, here and in procs

import torch  # see above

from benchmarks.workloads._harness import Measured, Options, latency, rate, time_each
from monarch import fetch_shard
from monarch.actor import this_host


def measure_operations(options: Options, ranks: int) -> Measured:
    """Additions per second, each on the result of the one before, counted until the value of the last has come back."""
    procs = this_host().spawn_procs(per_host={"gpus": ranks})
    count = options.count(2000, least=50)
    seconds = []
    with procs.activate():
        one, x = torch.ones(4, 4), torch.zeros(4, 4)
        for _ in range(min(count, 200)):
            x = x + one
        fetch_shard(x).get()
        for _ in range(5):
            start = time.perf_counter()
            for _ in range(count):
                x = x + one
            fetch_shard(x).get()
            seconds.append(time.perf_counter() - start)
    procs.stop().get()
    return rate(count, seconds)


def measure_fetch(options: Options, ranks: int) -> Measured:
    """One fetch at a time."""
    procs = this_host().spawn_procs(per_host={"gpus": ranks})
    with procs.activate():
        x = torch.ones(4, 4)
        time_each(lambda: fetch_shard(x).get(), 20)
        seconds = time_each(lambda: fetch_shard(x).get(), options.count(300, least=10))
    procs.stop().get()
    return latency(seconds)
