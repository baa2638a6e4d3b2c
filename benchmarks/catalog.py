"""The workloads: what each measures, in which unit, which way is better, and what its floor is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Better = Literal["lower", "higher"]


@dataclass(frozen=True)
class Workload:
    """One program under `workloads/`, by the name of its file.

    `floor` says what the floor column shows: the ping-pong ("ping"), the time to copy `floor_mib`
    MiB of memory into fresh pages ("copy"), the `copy` that the workload itself measures beside its
    value ("beside"), or nothing, because no honest floor exists.
    """

    name: str
    title: str
    unit: str
    better: Better = "lower"
    group: Literal["core", "payload", "processes", "traffic", "rdma", "tensors", "jobs"] = "core"
    floor: Literal["ping", "copy", "beside"] | None = None
    floor_mib: int = 0
    timeout_s: float = 120.0


FLOOR_WORKLOAD = Workload("floor", "pickled ping-pong over a socket pair, p50", "µs", floor="ping")

WORKLOADS = (
    Workload(
        "call_one_sync", "call_one().get(), sync endpoint, other proc, p50", "µs", floor="ping"
    ),
    Workload(
        "call_one_async_endpoint",
        "call_one().get(), async endpoint, other proc, p50",
        "µs",
        floor="ping",
    ),
    Workload("actor_to_actor", "await call_one() between two actors, p50", "µs", floor="ping"),
    Workload("in_flight", "4,000 calls in flight to one actor", "/s", better="higher"),
    Workload("one_way", "one-way broadcasts to one actor", "/s", better="higher"),
    Workload("call_8", "call() over 8 procs, p50", "µs", floor="ping"),
    Workload("first_call", "first call after import, 1 proc", "s"),
    Workload("spawn_64", "64 procs spawned and called once", "s", timeout_s=300.0),
    Workload("private_memory", "private memory per idle proc", "MB"),
    Workload(
        "echo_1mb", "1 MiB there and back, p50", "ms", group="payload", floor="copy", floor_mib=2
    ),
    Workload(
        "echo_16mb", "16 MiB there and back, p50", "ms", group="payload", floor="copy", floor_mib=32
    ),
    Workload(
        "echo_128mb",
        "128 MiB there and back, p50",
        "ms",
        group="payload",
        floor="copy",
        floor_mib=256,
    ),
    Workload(
        "echo_many_100kb",
        "100 x 100 KiB there and back, p50",
        "ms",
        group="payload",
        floor="copy",
        floor_mib=20,
    ),
    Workload(
        "cast_1mb_8", "1 MiB cast to 8 procs, p50", "ms", group="payload", floor="copy", floor_mib=1
    ),
    Workload(
        "cast_16mb_8",
        "16 MiB cast to 8 procs, p50",
        "ms",
        group="payload",
        floor="copy",
        floor_mib=16,
    ),
    Workload(
        "cast_128mb_8",
        "128 MiB cast to 8 procs, p50",
        "ms",
        group="payload",
        floor="copy",
        floor_mib=128,
    ),
    Workload("spawn_1", "1 proc spawned and called once", "s", group="processes"),
    Workload("spawn_8", "8 procs spawned and called once", "s", group="processes"),
    Workload(
        "spawn_200", "200 procs spawned and called once", "s", group="processes", timeout_s=600.0
    ),
    Workload(
        "spawn_8_torch",
        "8 procs that use torch, called once",
        "s",
        group="processes",
        timeout_s=300.0,
    ),
    Workload(
        "spawn_64_torch",
        "64 procs that use torch, called once",
        "s",
        group="processes",
        timeout_s=900.0,
    ),
    Workload(
        "many_to_one",
        "one-way messages of 8 procs to one actor",
        "/s",
        better="higher",
        group="traffic",
    ),
    Workload(
        "one_to_many",
        "one-way broadcasts to 8 procs, messages",
        "/s",
        better="higher",
        group="traffic",
    ),
    Workload("rdma_read_4kb", "4 KiB read from another proc's memory, p50", "µs", group="rdma"),
    Workload(
        "rdma_read_1mb",
        "1 MiB read from another proc's memory, p50",
        "ms",
        group="rdma",
        floor="beside",
    ),
    Workload(
        "rdma_read_64mb",
        "64 MiB read from another proc's memory, p50",
        "ms",
        group="rdma",
        floor="beside",
    ),
    Workload(
        "rdma_read_512mb",
        "512 MiB read from another proc's memory, p50",
        "ms",
        group="rdma",
        floor="beside",
    ),
    Workload(
        "rdma_write_1mb",
        "1 MiB written to another proc's memory, p50",
        "ms",
        group="rdma",
        floor="beside",
    ),
    Workload(
        "rdma_write_64mb",
        "64 MiB written to another proc's memory, p50",
        "ms",
        group="rdma",
        floor="beside",
    ),
    Workload(
        "rdma_write_512mb",
        "512 MiB written to another proc's memory, p50",
        "ms",
        group="rdma",
        floor="beside",
    ),
    Workload(
        "rdma_read_1000", "1,000 buffers of 4 KiB read in one action, p50", "ms", group="rdma"
    ),
    Workload(
        "tensor_ops_1", "small tensor operations, 1 proc", "/s", better="higher", group="tensors"
    ),
    Workload(
        "tensor_ops_2", "small tensor operations, 2 procs", "/s", better="higher", group="tensors"
    ),
    Workload(
        "tensor_ops_4", "small tensor operations, 4 procs", "/s", better="higher", group="tensors"
    ),
    Workload(
        "tensor_recorded_1",
        "the same, recorded and replayed, 1 proc",
        "/s",
        better="higher",
        group="tensors",
    ),
    Workload(
        "tensor_recorded_4",
        "the same, recorded and replayed, 4 procs",
        "/s",
        better="higher",
        group="tensors",
    ),
    Workload(
        "tensor_fetch_1",
        "fetch_shard().get() of a small tensor, 1 proc, p50",
        "µs",
        group="tensors",
    ),
    Workload(
        "tensor_fetch_4",
        "fetch_shard().get() of a small tensor, 4 procs, p50",
        "µs",
        group="tensors",
    ),
    Workload("tensor_reduce_1mb", "all-reduce of 1 MiB in place, 2 procs", "ms", group="tensors"),
    Workload("tensor_reduce_64mb", "all-reduce of 64 MiB in place, 2 procs", "ms", group="tensors"),
    Workload(
        "tensor_issue", "one small tensor operation, on the controller", "µs", group="tensors"
    ),
    Workload(
        "tensor_busy_4",
        "rows of the square matrix whose product keeps 4 procs busy",
        "rows",
        group="tensors",
    ),
    Workload(
        "job_reuse", "client start to first answer on a running ProcessJob, p50", "s", group="jobs"
    ),
    Workload(
        "job_reuse_slurm",
        "client start to first answer on a running SlurmJob of 3 nodes, p50",
        "s",
        group="jobs",
    ),
    Workload(
        "job_reuse_ssh",
        "client start to first answer on a running SSHJob of 2 hosts, p50",
        "s",
        group="jobs",
    ),
    Workload(
        "job_exec", "exec_command() of `true` on a running ProcessJob, p50", "ms", group="jobs"
    ),
    Workload(
        "run_first_step",
        "`monarch run` of 2 ranks, from Enter to the first step",
        "s",
        group="jobs",
    ),
)

GROUPS = ("core", "payload", "processes", "traffic", "rdma", "tensors", "jobs", "all")


def select(names: Iterable[str]) -> tuple[Workload, ...]:
    """The workloads that names and groups stand for, in the order of the catalogue, each once.

    The floor isn't among them: every run measures it.

    Raises:
        ValueError: a name is neither a workload nor a group.
    """
    wanted = set(names)
    unknown = wanted - {workload.name for workload in WORKLOADS} - set(GROUPS)
    if unknown:
        known = ", ".join([*(workload.name for workload in WORKLOADS), *GROUPS])
        raise ValueError(
            f"no workload or group is called {', '.join(sorted(unknown))}; there are {known}"
        )
    return tuple(w for w in WORKLOADS if wanted & {w.name, w.group, "all"})
