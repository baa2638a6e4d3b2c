"""What questions in SQL take: `python -m benchmarks.queries`, from the repository's root.

A mesh of 200 procs with an actor each is asked by its client, in turn: a call of all ranks, what
`monarch.telemetry.read` collects, and whole queries. The first row is there twice, as a control:
two rows of the same must not differ. Needs the extra `telemetry`. Before that `monarch.why` looks
at them: for the first time, when each process imports what answers; again; and with 10 of them
stopped. Bytecode is compiled first, as it is where the package is installed.
"""

from __future__ import annotations

import argparse
import compileall
import os
import signal
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import monarch
from monarch.actor import Actor, endpoint, this_host
from monarch.telemetry import QueryEngineClient, read
from monarch.why import why

QUESTIONS = {
    "query: longest queues": (
        "SELECT name, rank, queue_depth FROM actors ORDER BY queue_depth DESC LIMIT 10"
    ),
    "query: memory by mesh": "SELECT mesh, max(rss_bytes) FROM procs GROUP BY mesh",
    "query: three tables": (
        "SELECT a.name, sum(h.count) FROM actors a JOIN handled h ON h.actor_id = a.id "
        "JOIN procs p ON p.id = a.proc_id GROUP BY a.name"
    ),
    "query: no table": "SELECT 1",
}


class Answers(Actor):
    """Does little."""

    @endpoint
    def answer(self) -> int:
        return os.getpid()


def _why(name: str, stopped: Sequence[int]) -> tuple[str, float]:
    """What a look takes, in milliseconds; of that a second passes between the two that it has."""
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    begun = time.perf_counter()
    try:
        why()
        return name, (time.perf_counter() - begun) * 1e3
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--procs", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    compileall.compile_dir(Path(monarch.__file__).parent, quiet=2)
    procs = this_host().spawn_procs({"gpus": options.procs}, name="ranks")
    actors = procs.spawn("answers", Answers)
    pids = actors.answer.call().get().values()
    looks = [_why("why: first", []), *(_why("why", []) for _ in range(3))]
    looks += [_why("why: 10 do not answer", pids[:10]) for _ in range(3)]
    client = QueryEngineClient()
    rows: dict[str, Callable[[], object]] = {
        "call of all ranks": lambda: actors.answer.call().get(),
        "call of all ranks, control": lambda: actors.answer.call().get(),
        "read('actors')": lambda: read("actors").get(),
    }
    for name, sql in QUESTIONS.items():
        # a default that binds
        rows[name] = lambda sql=sql: client.query(sql, timeout=60)  # type: ignore[misc]
    taken: dict[str, list[float]] = {name: [] for name in rows}
    for run in range(options.rounds + 1):
        for name, ask in rows.items():
            begun = time.perf_counter()
            ask()
            if run:  # the first one imports
                taken[name].append((time.perf_counter() - begun) * 1e3)
    for name, took in looks:
        taken.setdefault(name, []).append(took)
    print(f"{options.procs} procs, {options.rounds} rounds, ms\n\n{'':28}  median     min")
    for name, times in taken.items():
        print(f"{name:28}  {statistics.median(times):6.1f}  {min(times):6.1f}")
    procs.stop().get(timeout=60)


if __name__ == "__main__":
    main()
