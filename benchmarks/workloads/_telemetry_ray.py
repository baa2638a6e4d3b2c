"""What `_telemetry_monarch` does, with Ray and its state API. Off is without the events of tasks,
which Ray has switched on.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from typing import Any

if sys.argv[2:3] == ["off"]:
    os.environ["RAY_task_events_report_interval_ms"] = "0"  # noqa: SIM112  # Ray's own spelling
os.environ["RAY_raylet_start_wait_time_s"] = "120"  # noqa: SIM112  # a machine may be busy

import ray
from ray.util.state import list_actors, summarize_tasks


class Answers:
    """Does little."""

    async def answer(self) -> int:
        return 1


def main(procs: int, telemetry: bool, calls: int, rounds: int) -> dict[str, float]:
    """Returns the medians of a call in microseconds, and of questions in milliseconds."""
    ray.init(num_cpus=2, include_dashboard=True, logging_level="ERROR")
    remote: Any = ray.remote(num_cpus=0)(Answers)
    actors = [remote.remote() for _ in range(procs)]
    ray.get([actor.answer.remote() for actor in actors])
    took = [_seconds(lambda: ray.get(actors[0].answer.remote())) for _ in range(calls + 200)][200:]
    found = {"call_us": statistics.median(took) * 1e6}
    if telemetry:
        for name, ask in (
            ("actors_ms", lambda: list_actors(limit=10_000)),
            ("calls_ms", summarize_tasks),
        ):
            ask()
            found[name] = statistics.median(_seconds(ask) for _ in range(rounds)) * 1e3
    ray.shutdown()
    return found


def _seconds(operation: Any) -> float:
    begun = time.perf_counter()
    operation()
    return time.perf_counter() - begun


if __name__ == "__main__":
    print(
        "FOUND",
        json.dumps(main(int(sys.argv[1]), sys.argv[2] == "on", int(sys.argv[3]), int(sys.argv[4]))),
    )
