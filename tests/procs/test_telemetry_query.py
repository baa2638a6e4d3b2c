"""SQL over a running program: from itself, from another terminal, and from the file that it has
left.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from helpers.actors import Echo
from helpers.processes import stopped
from helpers.terminals import RunningProgram, running
from helpers.waiting import PATIENCE, wait_until
from monarch.errors import QueryError
from monarch.telemetry import QueryEngineClient, QueryResult

if TYPE_CHECKING:
    from conftest import Spawn
    from helpers.faults import Faults

pytestmark = pytest.mark.processes("telemetry of several processes")

pytest.importorskip("duckdb")
pytest.importorskip("arro3.core")

PROGRAM = """
    import os, sys
    from monarch import configure
    from monarch.actor import Actor, endpoint, this_host

    configure(heartbeat_timeout="10min")  # one of its processes will be stopped

    class Trainer(Actor):
        @endpoint
        def pid(self):
            return os.getpid()

    if __name__ == "__main__":
        trainers = this_host().spawn_procs({"gpus": 3}, name="trainers").spawn("trainer", Trainer)
        print("go", *trainers.pid.call().get().values(), flush=True)
        sys.stdin.read()
    """

RANKS = "SELECT rank AS z, pid AS a FROM actors WHERE name = 'trainer' ORDER BY rank DESC"


def silent(answer: QueryResult) -> list[str]:
    """Processes of this host, by "mesh[rank] on machine"; other tests may have left hosts that are
    lost.
    """
    return [who for who in answer.silent if " on " in who]


def test_a_program_asks_itself(spawn: Spawn) -> None:
    echo = spawn({"gpus": 2}, name="workers").spawn("asked", Echo)
    pids = [*echo.pid.call().get().values()]
    answer = QueryEngineClient().query(
        "SELECT a.rank, p.pid FROM actors a JOIN procs p ON a.proc_id = p.id WHERE a.name = 'asked'"
        " AND p.mesh = 'workers' ORDER BY 1"
    )
    assert answer["rows"] == [{"rank": 0, "pid": pids[0]}, {"rank": 1, "pid": pids[1]}]
    assert silent(answer) == []


def test_a_process_that_does_not_answer_is_named(spawn: Spawn) -> None:
    procs = spawn({"gpus": 2}, name="sleepers")
    echo = procs.spawn("asked", Echo)
    pids = [*echo.pid.call().get().values()]
    with stopped(pids[1]):
        answer = QueryEngineClient().query(
            "SELECT rank FROM actors WHERE name = 'asked' AND status <> 'Stopped'", timeout=30
        )
    assert answer.rows == [{"rank": 0}]
    [who] = silent(answer)
    assert who.startswith("sleepers[1] on ") and f"{who} did not answer: " in repr(answer)


def test_a_process_that_is_killed_while_it_is_asked_ends_no_query(
    spawn: Spawn, faults: Faults
) -> None:
    procs = spawn({"gpus": 2}, name="victims")
    echo = procs.spawn("asked", Echo)
    pids = [*echo.pid.call().get().values()]
    os.kill(pids[1], signal.SIGSTOP)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(
            QueryEngineClient().query,
            "SELECT rank FROM actors WHERE name = 'asked' ORDER BY rank",
            30,
        )
        os.kill(pids[1], signal.SIGKILL)
        faults.wait_for(1)
        assert asked.result().rows[0] == {"rank": 0}
    ended = "SELECT rank, signal FROM procs WHERE mesh = 'victims' AND state = 'ended'"
    wait_until(
        lambda: QueryEngineClient().query(ended, 30).rows == [{"rank": 1, "signal": 9}],
        what="the end in a table",
    )


def test_a_query_takes_no_url() -> None:
    with pytest.raises(ValueError, match="queries take no URL here; job.state"):
        QueryEngineClient("http://localhost:8265")
    with pytest.raises(FileNotFoundError, match="no run is kept at"):
        QueryEngineClient("nowhere.duckdb")


def ask(program: RunningProgram, *args: str) -> str:
    done = program.monarch("query", *args)
    assert done.returncode == 0 and done.stderr == "", done
    return done.stdout


def fails(program: RunningProgram, *args: str) -> str:
    """The one line that says why."""
    done = program.monarch("query", *args)
    assert done.returncode == 1 and done.stdout == "", done
    [line] = done.stderr.splitlines()
    return line


@pytest.mark.timeout(120)
def test_another_terminal_asks_a_running_program_and_the_file_that_it_leaves(
    tmp_path: Path,
) -> None:
    with running(PROGRAM, tmp_path) as program:
        pids = [int(pid) for pid in program.wait_for("go").split()[1:]]
        rows = [{"z": rank, "a": pids[rank]} for rank in (2, 1, 0)]
        asked = ("-p", str(program.pid))
        as_json = ask(program, RANKS, "--json", *asked)
        assert json.loads(as_json) == {"rows": rows} and as_json.index('"z"') < as_json.index('"a"')
        assert fails(program, "SELECT nme FROM actors", *asked).startswith(
            "monarch query: Binder Error: Referenced column"
        )

        run = tmp_path / "run.duckdb"
        with stopped(pids[1]):
            done = program.monarch("snapshot", str(run), "--json", *asked)
        assert done.returncode == 0 and "trainers[1] on " in done.stderr
        told = json.loads(done.stdout)
        assert (told["path"], told["bytes"], len(told["silent"])) == (
            str(run),
            run.stat().st_size,
            1,
        )
        assert stat.S_IMODE(run.stat().st_mode) == 0o600 and [*tmp_path.glob(".run*")] == []
    answer = QueryEngineClient(run).query(RANKS)
    assert answer.rows == [rows[0], rows[2]] and [
        who.partition(" ")[0] for who in answer.silent
    ] == ["trainers[1]"]
    from_file = program.monarch(
        "query", "--run", str(run), "SELECT value FROM run WHERE name = 'program'"
    )
    assert str(program.pid) in from_file.stdout and "did not answer" in from_file.stderr


def test_a_file_that_is_none_of_a_run_is_refused_in_one_line(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    (tmp_path / "rubbish").write_text("rubbish " * 1000)
    duckdb.connect(str(tmp_path / "other")).close()
    for name, reason in (
        ("rubbish", "is no file of a run: "),
        ("other", "is a database, but not one of a run"),
    ):
        with pytest.raises(QueryError, match=reason) as refused:
            QueryEngineClient(tmp_path / name).query("SELECT 1")
        assert "\n" not in str(refused.value)


def scrape(port: int, path: str = "/metrics", **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


@pytest.mark.timeout(120)
def test_metrics_of_a_running_program_are_printed_and_served_with_a_token(tmp_path: Path) -> None:
    token = tmp_path / "here" / "token"
    with running(PROGRAM, tmp_path) as program:
        pids = program.wait_for("go").split()[1:]
        printed = program.monarch("metrics", "-p", str(program.pid)).stdout
        for rank, pid in enumerate(pids):
            assert (
                f'monarch_messages_handled_total{{mesh="trainers",rank="{rank}",pid="{pid}",machine='
                in printed
            )
        assert printed.count('actor="trainer",endpoint="pid"} 1') == 3
        samples = json.loads(program.monarch("metrics", "--json", "-p", str(program.pid)).stdout)
        labels = {"actor": "trainer", "endpoint": "pid", "mesh": "trainers"}
        handled = [each["value"] for each in samples if labels.items() <= each["labels"].items()]
        assert handled.count(1) == 3, samples
        asked = ("--serve", "0", "--token-file", str(token), "-p", str(program.pid))
        server = program.start_monarch("metrics", "--json", *asked)
        assert server.stdout is not None
        told = json.loads(next(server.stdout))
        assert told["token_file"] == str(token)
        port = int(told["url"].removeprefix("http://127.0.0.1:").removesuffix("/metrics"))
        assert stat.S_IMODE(token.stat().st_mode) == 0o600
        known = {"Authorization": f"Bearer {token.read_text()}"}
        assert scrape(port)[0] == 401 and scrape(port, Authorization="Bearer wrong")[0] == 401
        assert scrape(port, **known, Host="evil.example")[0] == 403
        assert scrape(port, "/other", **known)[0] == 404
        status, text = scrape(port, **known)
        assert status == 200 and "# TYPE monarch_messages_handled_total counter" in text
        again = program.monarch(
            "metrics", "--serve", str(port), "--token-file", str(token), "-p", str(program.pid)
        )
        assert (
            again.returncode == 1
            and f"port {port} can't be listened at: Address already in use" in again.stderr
        )
    assert server.wait(PATIENCE) == 0  # with the program
    server.stdout.close()
