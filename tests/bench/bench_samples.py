"""Reports made of nothing but numbers, for the tests here."""

from __future__ import annotations

from pathlib import Path

from benchmarks.catalog import WORKLOADS, Workload
from benchmarks.environments import Environment
from benchmarks.results import Report, Row, Side

BY_NAME = {workload.name: workload for workload in WORKLOADS}
THIS = Environment("pymonarch 0.1.0, Python 3.12.1", Path("python"), "pymonarch")
REFERENCE = Environment("torchmonarch 0.7.0, Python 3.12.1", Path("python"), "torchmonarch")
BASELINE = Environment("pymonarch baseline, Python 3.12.1", Path("python"), "pymonarch")


def side(*samples: float, error: str | None = None) -> Side:
    return Side(samples, {"p99": 2.0}, error)


def row(
    name: str, this: Side, other: Side | None, floor: float | None = None, judged: bool = True
) -> Row:
    workload: Workload = BY_NAME[name]
    return Row(name, workload.title, workload.unit, workload.better, floor, this, other, judged)


def report(*rows: Row, scale: float = 1.0) -> Report:
    return Report(
        machine={
            "cpu": "Some CPU",
            "cores": 2,
            "memory_gib": 8.0,
            "kernel": "Linux 6.1",
            "python": "3.12.1",
        },
        date="2026-01-02T03:04:05+00:00",
        rounds=3,
        scale=scale,
        payload="numpy",
        this=THIS.label,
        other=REFERENCE.label,
        floor=side(20.0),
        rows=rows,
    )


def mixed_report() -> Report:
    """A row that meets its targets, one that misses, and one that failed."""
    return report(
        row("call_one_sync", side(40.0, 35.0, 39.0), side(500.0, 490.0, 480.0), floor=20.0),
        row("one_way", side(20_000.0), side(25_000.0)),
        row("spawn_64", side(error="round 1: no end within 300 s"), side(12.0)),
    )
