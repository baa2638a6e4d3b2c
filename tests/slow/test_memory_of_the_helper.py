"""The helper process of the dashboard, with ten thousand simulated ranks."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from helpers.demo import demo
from helpers.waiting import wait_until

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("duckdb")
pytest.importorskip("arro3.core")
pytestmark = pytest.mark.timeout(600)

QUESTIONS = (
    "SELECT mesh, rank, pid, state, rss_bytes FROM procs",
    "SELECT p.mesh, a.name, count(*) FROM actors a JOIN procs p ON p.id = a.proc_id GROUP BY ALL",
    "SELECT p.mesh, median(s.duration_us) FROM steps s JOIN procs p ON p.id = s.proc_id GROUP BY ALL",
    "FROM steps",  # an answer of 60 MB
)
MOST = 150e6


def resident(pid: int) -> int:
    """Bytes of memory of a process, with the code of libraries."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def most_of(pid: int) -> Iterator[list[int]]:
    """The most memory that a process takes during the block."""
    most, ended = [resident(pid)], threading.Event()

    def look() -> None:
        while not ended.wait(0.01):
            most.append(max(most.pop(), resident(pid)))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield most
    finally:
        ended.set()
        thread.join()


def test_the_helper_of_ten_thousand_ranks_takes_less_than_150_megabytes() -> None:
    with demo(10_000, "missing-collective") as program:
        found = {}

        def look(method: str, path: str, body: Any = None) -> int:
            with most_of(program.helper) as most:
                status, _ = program.asker.raw(method, path, body)
            found[body["sql"] if body else path] = most[0]
            return status

        assert look("GET", "/v1/now") == look("GET", "/v1/stacks") == 200
        for sql in QUESTIONS:
            assert look("POST", "/v1/query", {"sql": sql, "timeout": 30}) == 200
        assert program.computing  # that is where the rows have been
        wait_until(lambda: not program.computing, what="the end of the child", timeout=60)
        found["then"] = resident(program.helper)
        for method, path in (("POST", "/v1/snapshot"), ("GET", "/api/actors"), ("GET", "/api/dag")):
            assert look(method, path) in (200, 504)  # a busy machine takes too long for these
        print({what: f"{many / 1e6:.0f} MB" for what, many in found.items()})
        assert max(found.values()) < MOST
