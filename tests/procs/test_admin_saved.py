"""`monarch dashboard RUN.duckdb`: the file of a run behind the admin interface."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.admin import Asker
from helpers.demo import demo
from helpers.terminals import killed_after

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("duckdb")  # here, as it starts threads
pytest.importorskip("arro3.core")

from monarch.admin.guard import SESSION
from monarch.admin.keys import ACT, VIEW
from monarch.admin.saved import SavedRun
from monarch.errors import QueryError

pytestmark = pytest.mark.timeout(300)  # programs, and databases of a whole run, on a busy machine

COMMAND = [sys.executable, "-m", "monarch.tools", "dashboard", "--no-browser", "--json"]


def enter(link: str) -> tuple[Asker, dict[str, str]]:
    """As a browser does: by the link, and with the session from then on."""
    url, _, code = link.partition("/login")
    asker = Asker(url)
    with asker.open("POST", f"/login{code}") as answer:
        assert answer.status == 200
        return asker, {SESSION: json.load(answer)["session"]}


@pytest.mark.slow
def test_a_run_that_was_kept_is_looked_at_as_a_program_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import duckdb

    monkeypatch.chdir(tmp_path)
    with demo(16, "dead-rank") as program:
        status, content = program.asker.raw("POST", "/v1/snapshot")
        assert status == 200
        counts = {
            mesh["name"]: mesh["size"] for mesh in program.asker.get("/v1/now")["meshes"].values()
        }
        (tmp_path / "kept.duckdb").write_bytes(content)
        (tmp_path / "text.duckdb").write_text("this is no database")
        (tmp_path / "gone.duckdb").write_bytes(content)
        # another program's, which its lock is for
        with duckdb.connect(str(tmp_path / "mine.duckdb")) as mine:
            mine.execute("CREATE TABLE run (kind VARCHAR, name VARCHAR, value VARCHAR)")
            listed = {
                Path(each["path"]).name: each for each in program.asker.get("/v1/runs")["runs"]
            }
        assert listed.keys() == {"kept.duckdb", "gone.duckdb"}
        (tmp_path / "gone.duckdb").unlink()
        assert program.asker.error("GET", f"/runs/{listed['gone.duckdb']['id']}/v1/now")[0] == 404
        run = listed["kept.duckdb"]
        assert (
            run["ranks"] == 19
            and run["status"] == "stuck"
            and "without trainers[" in run["sentence"]
            and run["begun"] < run["ended"]
        )
        then = program.asker.get(f"/runs/{run['id']}/v1/now")  # the same routes, over the file
        assert {mesh["name"]: mesh["size"] for mesh in then["meshes"].values()} == counts
        assert program.asker.get(f"/runs/{run['id']}/v1/time") == {
            "now": run["ended"],
            "runs": False,
        }
        for path in (
            "/v1/now?at=0",
            f"/v1/now?at={run['ended'] + 9e6}",
            f"/runs/{run['id']}/v1/now?at={run['ended'] + 1}",
        ):
            status, said = program.asker.raw("GET", path)
            assert status == 400 and b"at is a time after 1970 that is over" in said
        status, said = program.asker.raw("GET", f"/runs/{run['id'][::-1]}/v1/now")
        assert status == 404 and b"no run" in said
        assert Asker(program.url).error("GET", f"/runs/{run['id']}/v1/now")[0] == 401
    kept, stacks = SavedRun(str(tmp_path / "kept.duckdb")), "SELECT count(*) AS n FROM stacks"
    assert kept.query(stacks, ACT).rows[0]["n"] > 0
    with pytest.raises(QueryError, match="stacks"):
        kept.query(stacks, VIEW)
    process = subprocess.Popen(
        [*COMMAND, "kept.duckdb"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        with killed_after(90, process):
            link = json.loads(process.stdout.readline() or "{}")["link"]
        asker, session = enter(link)

        def get(path: str) -> object:
            status, body = asker.raw("GET", path, headers=session)
            assert status == 200, body
            return json.loads(body)

        now = get("/v1/now")
        assert isinstance(now, dict)
        assert {mesh["name"]: mesh["size"] for mesh in now["meshes"].values()} == counts
        assert now["verdict"]["status"] == "stuck" and re.search(
            r"without trainers\[\d+\]: ", now["verdict"]["sentence"]
        )
        about = {"command": "kept.duckdb"}
        assert get("/v1/access") == {"role": "act", "saved": True, "program": about}
        seconds = get("/v1/time")
        assert isinstance(seconds, dict) and seconds["runs"] is False
        then = get(f"/v1/now?at={seconds['now'] - 600}")
        assert (
            isinstance(then, dict)
            and then["failures"] == []
            and then["verdict"]["status"] == "unknown"
        )
        assert then["meshes"].keys() == now["meshes"].keys()
        assert "15 of 19 ranks handled a call" in then["verdict"]["sentence"]
        found = get("/v1/logs?mesh=trainers&rank=3&grep=step&limit=10000")
        assert (
            isinstance(found, dict)
            and found["lines"]
            and {line["rank"] for line in found["lines"]} == {3}
        )
        for path in ("/v1/waits", "/v1/meshes", "/v1/root", "/api/summary", "/api/dag"):
            assert get(path)
        sql = {"sql": "SELECT count(*) AS n FROM procs WHERE mesh = 'trainers'"}
        status, body = asker.raw("POST", "/v1/query", sql, session)
        assert status == 200 and json.loads(body)["rows"] == [{"n": 16}]
        later = tmp_path / "later"  # another run, which takes the place of that one
        later.write_bytes(content)
        with duckdb.connect(str(later)) as other:
            other.execute("UPDATE hosts SET timestamp_us = timestamp_us + 5000000")
            other.execute("DELETE FROM procs WHERE mesh = 'metrics'")
        later.replace(tmp_path / "kept.duckdb")
        assert get("/v1/time") == {"now": seconds["now"] + 5, "runs": False}
        now = get("/v1/now")
        assert isinstance(now, dict) and counts.pop("metrics")
        assert {mesh["name"]: mesh["size"] for mesh in now["meshes"].values()} == counts
        for method, path in (("GET", "/v1/stacks"), ("POST", "/v1/meshes/trainers/stop")):
            status, body = asker.raw(method, path, headers=session)
            assert (
                status == 409
                and "needs a program that runs" in json.loads(body)["error"]["message"]
            )
    finally:
        process.send_signal(signal.SIGINT)
        with killed_after(90, process):
            process.communicate()
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("name", "said"), [("gone.duckdb", "no run is kept at"), ("text.duckdb", "is no file of a run")]
)
def test_what_is_no_run_is_refused_at_once(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "text.duckdb").write_text("this is no database")
    ended = subprocess.run(
        [*COMMAND, name], cwd=tmp_path, capture_output=True, text=True, timeout=90
    )
    assert ended.returncode == 1 and said in ended.stderr and ended.stdout == ""
