"""The helper process of the dashboard, with ten thousand simulated ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.demo import Demo, demo
from helpers.leaks import descendants

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("duckdb")
pytest.importorskip("arro3.core")
pytestmark = pytest.mark.timeout(600)

QUESTIONS = (
    "SELECT mesh, rank, pid, state, rss_bytes FROM procs",
    "SELECT p.mesh, a.name, count(*) FROM actors a JOIN procs p ON p.id = a.proc_id GROUP BY ALL",
    "SELECT p.mesh, median(s.duration_us) FROM steps s JOIN procs p ON p.id = s.proc_id GROUP BY ALL",
)


def taken(program: Demo) -> int:
    """Bytes of memory of the helper, without the code of libraries, which the kernel can drop."""
    (helper,) = descendants(program.process.pid)
    lines = Path(f"/proc/{helper}/smaps_rollup").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("Anonymous:"))


def test_the_helper_of_ten_thousand_ranks_takes_less_than_120_megabytes() -> None:
    with demo(10_000, "missing-collective") as program:
        for _ in range(3):
            assert program.asker.get("/v1/now")["verdict"]["status"] == "stuck"
        found = {"now": taken(program)}
        assert program.asker.get("/v1/stacks")["classes"]
        found["stacks"] = taken(program)
        for sql in QUESTIONS:
            assert program.asker.post("/v1/query", {"sql": sql, "timeout": 30})["rows"]
            found[sql] = taken(program)
        print({what: f"{many / 1e6:.0f} MB" for what, many in found.items()})
        assert max(found.values()) < 120e6
