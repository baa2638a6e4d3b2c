"""Telemetry of jobs: who asks, in which program, and the file that a run leaves."""

from __future__ import annotations

import re
import signal
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from helpers.terminals import killed_after
from monarch.job import JobError, ProcessJob, job_loads
from monarch.telemetry import QueryEngineClient

if TYPE_CHECKING:
    from helpers.jobs import Home

pytest.importorskip("duckdb")
pytest.importorskip("arro3.core")

DESCRIBED = """
    import os, signal, sys
    from monarch.actor import Actor, endpoint
    from monarch.job import ProcessJob, job_load

    class Trainer(Actor):
        @endpoint
        def step(self):
            return os.getpid()

        @endpoint
        def die(self):
            os.kill(os.getpid(), signal.SIGKILL)

    def described(**how):
        return ProcessJob({"trainers": 1}).enable_telemetry(**how)

    def spawned(state):
        trainers = state.trainers.spawn_procs({"gpus": 2}, name="ranks").spawn("trainer", Trainer)
        trainers.step.call().get()
        return trainers
    """

RANKS = "SELECT rank FROM actors WHERE name = 'trainer' ORDER BY rank"

ASKS = (
    DESCRIBED
    + f"""
    if __name__ == "__main__":
        job = described(keep_run=True)
        state = job.state()
        spawned(state)
        for client in (state.query_engine_client, job.telemetry_query_client()):
            print(client.query({RANKS!r})["rows"])
        print(client.query("SELECT count(*) AS handled FROM messages WHERE endpoint = 'step'").rows)
        other = "from monarch.job import job_load; client = job_load().telemetry_query_client(); print(client.query(sys.argv[1]).rows)"
        import subprocess
        done = subprocess.run([sys.executable, "-c", "import sys; " + other, {RANKS!r}], capture_output=True, text=True)
        print(done.stdout, done.stderr)
        print("id", job.apply_id)
        job.kill()
    """
)


@pytest.mark.timeout(120)
def test_a_job_answers_two_programs_and_leaves_its_run_if_asked(
    home: Home,
) -> None:
    printed = home.run(ASKS)
    assert printed.count("[{'rank': 0}, {'rank': 1}]") == 3, printed
    assert "[{'handled': 2}]" in printed
    [apply_id] = [line.split()[1] for line in printed.splitlines() if line.startswith("id ")]
    kept = home.folder / ".monarch" / "logs" / apply_id / "run.duckdb"
    assert f"is kept in {kept}" in printed
    client = QueryEngineClient(kept)
    assert client.query(RANKS).rows == [{"rank": 0}, {"rank": 1}]
    assert client.query("SELECT value FROM run WHERE name = 'reason'").rows == [
        {"value": "the end of the job"}
    ]


FAILS = (
    DESCRIBED
    + """
    if __name__ == "__main__":
        job = described()
        trainers = spawned(job.state(None))
        trainers.slice(gpus=1).die.broadcast()
        import time
        time.sleep(60)
    """
)


@pytest.mark.timeout(120)
def test_an_unhandled_failure_leaves_the_run_in_a_file(home: Home) -> None:
    printed = home.run(FAILS, exit_code=1)
    [kept] = (home.folder / ".monarch" / "logs").glob("*/run.duckdb")
    assert "Unhandled monarch error" in printed and f"is kept in {kept}" in printed
    client = QueryEngineClient(kept)
    ended = "SELECT rank, signal FROM procs WHERE mesh = 'ranks' AND signal IS NOT NULL"
    assert client.query(ended).rows == [{"rank": 1, "signal": 9}]
    assert client.query(RANKS).rows == [{"rank": 0}, {"rank": 1}]
    handled = """SELECT a.status, a.endpoint, m.endpoint AS message, m.duration_us, a.since_us = m.timestamp_us AS same
                 FROM actors a JOIN messages m ON m.to_actor_id = a.id WHERE a.name = 'trainer' AND a.rank = 1 AND m.duration_us IS NULL"""
    assert client.query(handled).rows == [
        {"status": "Failed", "endpoint": "die", "message": "die", "duration_us": None, "same": True}
    ]
    life = (
        "SELECT new_status FROM actor_status_events e JOIN actors a ON a.id = e.actor_id WHERE"
        " a.rank = 1 ORDER BY e.timestamp_us"
    )
    assert "Initializing" in [row["new_status"] for row in client.query(life).rows]


def test_who_looks_at_a_job_is_no_run_of_it_and_a_program_that_ends_leaves_no_note(
    home: Home,
) -> None:
    (home.folder / "cluster.py").write_text(
        textwrap.dedent(DESCRIBED + "\n    job = described(keep_run=True)\n")
    )
    home.monarch("apply", "cluster.job")
    home.run("from monarch.job import job_load; job_load().state()")
    [kept] = (home.folder / ".monarch" / "logs").glob("*/run.duckdb")
    before = kept.stat().st_mtime_ns
    home.monarch("status")
    home.monarch("exec", "true")
    assert kept.stat().st_mtime_ns == before and [*(kept.parent / "clients").iterdir()] == []
    home.monarch("kill")


def test_the_dashboard_of_a_job_is_that_of_its_program_and_afterwards_of_its_run(
    home: Home,
) -> None:
    pytest.importorskip("starlette")
    pytest.importorskip("uvicorn")
    (home.folder / "cluster.py").write_text(
        textwrap.dedent(DESCRIBED + "\n    job = described(keep_run=True)\n")
    )
    home.monarch("apply", "cluster.job")
    uses = home.start("""
        import os, time
        from monarch.job import job_load
        job_load().state()
        print("up", flush=True)
        while not os.path.exists("enough"):
            time.sleep(0.05)
        """)
    assert uses.stdout is not None
    command = ["dashboard", "cluster.job", "--no-browser", "--json"]
    (home.folder / "cluster.job").mkdir()  # it is no run, whatever its name
    assert uses.stdout.readline() == "up\n"
    [at] = re.findall('"link": "(http://[^/]*)/', home.monarch(*command))
    assert f'"url": "{at}"' in home.monarch("admin", str(uses.pid), "--json")
    (home.folder / "enough").touch()
    uses.communicate(timeout=60)
    process = home.monarch_started(*command)
    assert process.stdout is not None and process.stderr is not None
    with process, killed_after(90, process):
        assert process.stdout.readline().startswith('{"link": "http')
        assert re.search("serving /.*/run.duckdb at http", process.stderr.readline())
        process.send_signal(signal.SIGINT)
    assert process.returncode == 0
    said = home.monarch("dashboard", "cluster.other", exit_code=1)
    assert (
        "there is no job 'cluster.other' here, only default: `monarch context ls` lists them"
        in said
    )
    home.monarch("kill")


@pytest.mark.usefixtures("_process_test")
def test_a_job_that_can_not_be_asked_says_why(tmp_path: Path) -> None:
    job = ProcessJob({"trainers": 1})
    with pytest.raises(JobError, match="does not run"):
        job.enable_telemetry().telemetry_query_client()
    plain = ProcessJob({"trainers": 1})
    assert plain.state(tmp_path / "job.pkl").query_engine_client is None
    try:
        with pytest.raises(JobError, match="has no telemetry: call enable_telemetry"):
            plain.telemetry_query_client()
        found = job_loads(plain.dumps()).enable_telemetry()
        with pytest.raises(
            JobError, match="no program on this machine uses .* now, so there is nothing to ask"
        ):
            found.telemetry_query_client()
    finally:
        plain.kill()
