"""Calls of actors with and without telemetry, and questions about them: run by
`benchmarks.telemetry_others`, under this package and under torchmonarch 0.7.0, as both have these
names.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from typing import Any

from monarch.actor import Actor, endpoint
from monarch.job import ProcessJob

ACTORS = "SELECT * FROM actors"
CALLS = "SELECT endpoint, count(*) AS n FROM messages GROUP BY endpoint"


class Answers(Actor):
    """Does little."""

    @endpoint
    async def answer(self) -> int:
        return 1


def main(procs: int, telemetry: bool, calls: int, rounds: int) -> dict[str, float]:
    """Returns the medians of a call in microseconds, and of questions in milliseconds."""
    job: Any = ProcessJob({"hosts": 1})
    if telemetry:
        job.enable_telemetry()
    state = job.state(cached_path=None)
    actors = state.hosts.spawn_procs({"gpus": procs}).spawn("answers", Answers)
    actors.answer.call().get()
    one = actors.slice(gpus=0)
    took = [_seconds(lambda: one.answer.call_one().get()) for _ in range(calls + 200)][200:]
    found = {"call_us": statistics.median(took) * 1e6}
    if telemetry:
        client = state.query_engine_client
        for name, sql in (("actors_ms", ACTORS), ("calls_ms", CALLS)):
            client.query(sql, timeout=60)  # the first one imports
            asked = [_seconds(lambda sql=sql: client.query(sql, timeout=60)) for _ in range(rounds)]
            found[name] = statistics.median(asked) * 1e3
    job.kill()
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
