"""What this package promises against torchmonarch 0.7.0, in one table, and whether a measured row
keeps it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from benchmarks.catalog import Better

REFERENCE = "torchmonarch"
_NEAR_A_COPY = 1 / 0.7
"""Floors: at least 0.7 of the speed of a plain copy."""

Verdict = Literal["met", "must met", "not met", "failed", "-"]


@dataclass(frozen=True)
class Target:
    """`must` and `should` are ratios to the reference: how many times better.

    `should_floors` and `should_below` are further conditions for `should`: at most so many floors,
    below that value.
    """

    must: float
    should: float | None = None
    should_floors: float | None = None
    should_below: float | None = None


TARGETS = {
    "call_one_sync": Target(must=5, should=10, should_floors=2),
    "call_one_async_endpoint": Target(must=5, should=10, should_floors=2),
    "actor_to_actor": Target(must=4, should=8),
    "in_flight": Target(must=5, should=10),
    "one_way": Target(must=4, should=10),
    "call_8": Target(must=5, should=10),
    # processes that start and import take 0.045 s, whoever wrote them
    "first_call": Target(must=2, should=3),
    "spawn_64": Target(must=10, should_below=1.0),
    "private_memory": Target(must=5, should_below=8.0),
    "echo_128mb": Target(must=10, should_floors=2),
    "cast_16mb_8": Target(must=10, should_floors=2),
    "rdma_read_4kb": Target(must=5),
    "rdma_read_1mb": Target(must=5, should_floors=_NEAR_A_COPY),
    "rdma_read_64mb": Target(must=10, should_floors=_NEAR_A_COPY),
    "rdma_read_512mb": Target(must=10, should_floors=_NEAR_A_COPY),
    "rdma_write_1mb": Target(must=5, should_floors=_NEAR_A_COPY),
    "rdma_write_64mb": Target(must=10, should_floors=_NEAR_A_COPY),
    "rdma_write_512mb": Target(must=10, should_floors=_NEAR_A_COPY),
    "rdma_read_1000": Target(must=20),
    "tensor_ops_1": Target(must=5, should=15),
    "tensor_ops_2": Target(must=5, should=15),
    "tensor_ops_4": Target(must=5, should=15),
    "tensor_recorded_1": Target(must=1),
    "tensor_recorded_4": Target(must=1),
    "tensor_fetch_1": Target(must=4),
    "tensor_fetch_4": Target(must=4),
}


def ratio(better: Better, this: float | None, other: float | None) -> float | None:
    """How many times better `this` is than `other`; below 1 it is worse.

    None where a side has no value.
    """
    if not this or not other:
        return None
    return other / this if better == "lower" else this / other


def verdict(
    target: Target | None, this: float, times: float | None, floor: float | None
) -> Verdict:
    """Judge one measured row.

    "met": must and should. "must met": must only. "not met": not even must. "-": nothing to judge
    by.
    """
    if target is None or times is None:
        return "-"
    if times < target.must:
        return "not met"
    reached = [
        target.should is None or times >= target.should,
        target.should_floors is None or floor is None or this <= target.should_floors * floor,
        target.should_below is None or this < target.should_below,
    ]
    return "met" if all(reached) else "must met"


def describe_should(target: Target, unit: str) -> str:
    """The `should` side in words, e.g. "10x, 2 floors"."""
    parts = []
    if target.should is not None:
        parts.append(f"{target.should:g}x")
    if target.should_floors is not None:
        parts.append(f"{target.should_floors:.3g} floors")
    if target.should_below is not None:
        parts.append(f"< {target.should_below:g} {unit}")
    return ", ".join(parts)
