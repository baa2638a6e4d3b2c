"""What the workloads with distributed tensors share.

CPU procs; tensors of 4×4 where what counts is the way to them.
"""

from __future__ import annotations

import importlib
import os
import statistics
import time
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported, here and in procs

import torch  # see above
import torch.distributed as dist

from benchmarks.workloads._harness import Measured, Options, latency, rate, time_each
from monarch import fetch_shard, reduce_, remote
from monarch.actor import this_host

_RECORDED = 50  # operations
_ROUNDS = 5
_SIZES = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
_BUSY = 0.8  # of the time


def measure_operations(options: Options, ranks: int) -> Measured:
    """Additions per second, each on the result of the one before, counted until the value of the
    last has come back.
    """
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


def measure_recorded(options: Options, ranks: int) -> Measured:
    """As `measure_operations`, in recordings of 50 that are replayed."""
    # as it is called in 0.7.0
    record = importlib.import_module("monarch.common._coalescing").compile
    procs = this_host().spawn_procs(per_host={"gpus": ranks})
    calls = options.count(200, least=10)
    seconds = []
    with procs.activate():
        one, x = torch.ones(4, 4), torch.zeros(4, 4)

        def add(x: torch.Tensor) -> torch.Tensor:
            for _ in range(_RECORDED):
                x = x + one
            return x

        additions = record(add)
        for _ in range(5):
            x = additions(x)
        fetch_shard(x).get()
        for _ in range(5):
            start = time.perf_counter()
            for _ in range(calls):
                x = additions(x)
            fetch_shard(x).get()
            seconds.append(time.perf_counter() - start)
    procs.stop().get()
    return rate(calls * _RECORDED, seconds)


def measure_fetch(options: Options, ranks: int) -> Measured:
    """One fetch at a time."""
    procs = this_host().spawn_procs(per_host={"gpus": ranks})
    with procs.activate():
        x = torch.ones(4, 4)
        time_each(lambda: fetch_shard(x).get(), 20)
        seconds = time_each(lambda: fetch_shard(x).get(), options.count(300, least=10))
    procs.stop().get()
    return latency(seconds)


def measure_reduce(options: Options, mib: int, ranks: int) -> Measured:
    """All-reduces in place; beside it those of bare torch.distributed by the same ranks.

    The rounds of the two alternate.
    """
    procs = this_host().spawn_procs(per_host={"gpus": ranks})
    count = options.count(max(4, 200 // mib), least=2)
    ours, bare = [], []
    with procs.activate() as mesh:
        group: Any = mesh.process_group("gpus")
        x = torch.zeros(mib * 2**18)
        for _ in range(1 + _ROUNDS):
            reduce_(x, "gpus")
            fetch_shard(None).get()
            start = time.perf_counter()
            for _ in range(count):
                reduce_(x, "gpus")
            fetch_shard(None).get()
            ours.append((time.perf_counter() - start) / count)
            bare.append(max(remote(_reduce_bare).call(x, group, count).get().values()))
    procs.stop().get()
    beside = {"torch": statistics.median(bare[1:]) * 1e3}
    return Measured(
        statistics.median(ours[1:]) * 1e3, "ms", {**beside, "operations": count, "batches": _ROUNDS}
    )


def _reduce_bare(x: torch.Tensor, group: Any, count: int) -> float:
    """On each rank: seconds per reduction."""
    dist.all_reduce(x, group=group)
    start = time.perf_counter()
    for _ in range(count):
        dist.all_reduce(x, group=group)
    return (time.perf_counter() - start) / count


def measure_issue(options: Options) -> Measured:
    """What an addition costs the program: issued to one proc, which it does not wait for; beside
    it, done here.
    """
    count = options.count(2000, least=50)
    eager = _seconds_each(torch.ones(4, 4), torch.zeros(4, 4), count)
    procs = this_host().spawn_procs(per_host={"gpus": 1})
    with procs.activate():
        issued = _seconds_each(torch.ones(4, 4), torch.zeros(4, 4), count)
    procs.stop().get()
    return Measured(
        issued * 1e6, "µs", {"eager": eager * 1e6, "operations": count, "batches": _ROUNDS}
    )


def _seconds_each(one: torch.Tensor, x: torch.Tensor, count: int) -> float:
    seconds = []
    for _ in range(1 + _ROUNDS):
        start = time.perf_counter()
        for _ in range(count):
            x = x + one
        seconds.append((time.perf_counter() - start) / count)
        if hasattr(x, "mesh"):
            fetch_shard(x).get()  # no batch begins with the work of the one before
    return statistics.median(seconds[1:])


def measure_busy(options: Options, ranks: int) -> Measured:
    """From which size on the ranks compute nearly all the time, rather than wait for the next
    operation.
    """
    procs = this_host().spawn_procs(per_host={"gpus": ranks})
    count = options.count(400, least=50)
    shares = {}
    with procs.activate():
        for size in _SIZES:
            x, w = torch.ones(size, size), torch.eye(size)
            fetch_shard(x @ w).get()
            start = time.perf_counter()
            for _ in range(count):
                x = x @ w
            fetch_shard(x[0, 0]).get()
            whole = time.perf_counter() - start
            alone = remote(_multiply).call(x, w, count).get()
            shares[size] = statistics.median(alone.values()) / whole
            if shares[size] >= _BUSY:
                break
    procs.stop().get()
    return Measured(size, "rows", {f"share_{size}": share for size, share in shares.items()})


def _multiply(x: torch.Tensor, w: torch.Tensor, count: int) -> float:
    """On each rank: seconds for a chain of products."""
    start = time.perf_counter()
    for _ in range(count):
        x = x @ w
    return time.perf_counter() - start
