"""Tables that other planes fill, asked in SQL of a real program: lines of logs, stacks, failures,
py-spy.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from helpers.scripts import run_script
from monarch.stacks.dump import py_spy
from monarch.telemetry.gpus import NVIDIA

pytest.importorskip("duckdb")
pytest.importorskip("arro3.core")

PROGRAM = """
    import json, logging, os, sys, threading, time
    from monarch import configure
    from monarch.actor import Actor, endpoint, this_host
    from monarch.telemetry import QueryEngineClient

    configure(enable_file_capture=True)
    end = threading.Event()

    class Speaker(Actor):
        @endpoint
        def say(self, text):
            print(text, flush=True)
            logging.getLogger("a.library").error("logged %s", text)

        @endpoint
        def end(self):
            raise SystemExit(3)

    class Waiter(Actor):
        @endpoint
        def wait(self, path):
            self.wait_for_a_file(path)

        def wait_for_a_file(self, path):
            while not os.path.exists(path):
                time.sleep(0.01)

        @endpoint
        def __supervise__(self, failure):
            return True

    def ask(sql, until=lambda rows: True):
        limit = time.monotonic() + 30
        while True:
            answer = QueryEngineClient().query(sql, 30)
            if until(answer.rows) or time.monotonic() > limit:
                return answer
            time.sleep(0.05)

    def tell(name, answer):
        print("TOLD", json.dumps([name, answer.rows, answer.silent]))
    """

KEPT = (
    PROGRAM
    + """
    if __name__ == "__main__":
        procs = this_host().spawn_procs({"gpus": 2}, name="speakers")
        speakers = procs.spawn("speaker", Speaker)
        speakers.say.call("before").get()
        ask("SELECT text FROM logs WHERE text LIKE '%before'", lambda rows: len(rows) == 4)
        between = time.time_ns() // 1000
        speakers.slice(gpus=1).say.call_one("after").get()
        later = f"FROM logs WHERE timestamp_us > {between} AND mesh = 'speakers' ORDER BY stream"
        tell("logs", ask(later, lambda rows: len(rows) == 2))
        tell("events", ask(f"FROM events WHERE timestamp_us > {between} AND target = 'a.library'"))
        tell("all", ask("SELECT count(*) AS lines, count(DISTINCT rank) AS ranks FROM logs WHERE mesh = 'speakers'"))
        procs.stop().get()
        tell("ended", ask("SELECT count(*) AS lines FROM logs WHERE mesh = 'speakers'"))
    """
)

LOOKED_AT = (
    PROGRAM
    + """
    if __name__ == "__main__":
        procs = this_host().spawn_procs({"gpus": 2}, name="waiters")
        waiters = procs.spawn("waiter", Waiter)
        waiting = waiters.wait.call("end")
        ask("SELECT * FROM actors WHERE name = 'waiter' AND status = 'Processing'", lambda rows: len(rows) == 2)
        stacks = "SELECT mesh, rank, how, actor, endpoint, file FROM stacks WHERE function = 'wait_for_a_file' ORDER BY rank"
        tell("stacks", ask(stacks))
        tell("pyspy", ask('''
            SELECT d.pid, d.binary, d.capture_mode, t.thread_name, f.name, f.line > 0 AS has_line, f.frame_depth < 3 AS is_inner
            FROM pyspy_dumps d JOIN pyspy_stack_traces t USING (dump_id) JOIN pyspy_frames f USING (dump_id, thread_id)
            WHERE f.name LIKE '%wait_for_a_file' ORDER BY d.pid'''))
        tell("locals", ask("FROM pyspy_local_variables"))
        tell("pids", ask("SELECT pid FROM procs WHERE mesh = 'waiters' ORDER BY pid"))
        tell("orderings", ask("SELECT enabled FROM actor_inbound_orderings WHERE node_id LIKE 'waiter<%'"))
        open("end", "w").close()
        waiting.get()
        procs.stop().get()
    """
)

FAILED = (
    PROGRAM
    + """
    class Owner(Actor):
        def __init__(self):
            self.procs = this_host().spawn_procs({"gpus": 2}, name="mortals")
            self.mortals = self.procs.spawn("mortal", Mortal)

        @endpoint
        def lose(self):
            self.mortals.slice(gpus=0).die.broadcast()

        def __supervise__(self, failure):
            return True

    class Mortal(Actor):
        @endpoint
        def die(self):
            os._exit(7)

    if __name__ == "__main__":
        owners = this_host().spawn_procs({"gpus": 1}, name="owners").spawn("owner", Owner)
        owners.lose.call_one().get()
        failures = "SELECT * FROM actor_failures WHERE node_id LIKE 'mortal<%'"
        tell("failures", ask(failures, lambda rows: rows))
    """
)


def told(source: str, folder: Path) -> dict[str, tuple[list[dict[str, Any]], dict[str, str]]]:
    """Rows and silent ones, by name."""
    done = run_script(source, cwd=folder, timeout=90)
    assert done.exit_code == 0, done
    lines = [
        line.removeprefix("TOLD ") for line in done.stdout.splitlines() if line.startswith("TOLD ")
    ]
    return {name: (rows, silent) for name, rows, silent in map(json.loads, lines)}


def test_lines_and_records_of_logging_are_rows_since_the_time_asked_for(tmp_path: Path) -> None:
    answers = told(KEPT, tmp_path)
    (record, printed), silent = answers["logs"]
    assert silent == {}
    assert (printed["text"], printed["stream"], printed["level"], printed["logger"]) == (
        "after",
        "stdout",
        None,
        None,
    )
    assert {(line["rank"], line["actor"], line["endpoint"]) for line in (record, printed)} == {
        (1, "speaker", "say")
    }
    assert record["text"].endswith("logged after") and (record["level"], record["logger"]) == (
        "ERROR",
        "a.library",
    )
    [event], _ = answers["events"]
    fields = json.loads(event["fields_json"])
    assert (event["target"], event["level"], event["file"], fields["rank"]) == (
        "a.library",
        "ERROR",
        "script.py",
        1,
    )
    assert fields["message"].endswith("logged after") and event["line"] > 0
    assert answers["all"][0] == [{"lines": 6, "ranks": 2}]
    assert answers["ended"][0] == [{"lines": 6}]  # those of processes that have ended are there


def test_stacks_of_all_ranks_are_rows_by_monarch_and_by_py_spy(tmp_path: Path) -> None:
    answers = told(LOOKED_AT, tmp_path)
    rows, silent = answers["stacks"]
    assert silent == {} and [{**row, "file": Path(row["file"]).name} for row in rows] == [
        {
            "mesh": "waiters",
            "rank": rank,
            "how": "itself",
            "actor": "waiter",
            "endpoint": "wait",
            "file": "script.py",
        }
        for rank in (0, 1)
    ]
    [said] = answers["locals"][1].values()
    assert "values of variables are not recorded" in said
    assert answers["orderings"][0] == [{"enabled": False}] * 2
    rows, silent = answers["pyspy"]
    if py_spy() is None or silent:
        pytest.skip(f"py-spy can't look here: {silent}")
    pids = [row["pid"] for row in answers["pids"][0]]
    assert [row["pid"] for row in rows] == pids and all(
        row["has_line"] and row["is_inner"] for row in rows
    )
    assert {(row["binary"], row["capture_mode"]) for row in rows} == {("py-spy", "python_only")}


def test_failures_of_actors_are_rows_with_what_has_caused_them(tmp_path: Path) -> None:
    [failure], silent = told(FAILED, tmp_path)["failures"]
    assert silent == {}
    assert failure["failure_error_message"].endswith("the process exited with non-zero code 7")
    assert (
        "Mortal mortal" in failure["failure_root_cause_actor"]
        and failure["failure_root_cause_name"] == "mortal[0]"
    )
    assert failure["failure_is_propagated"] is False and failure["failure_occurred_at"] > 0


def test_a_host_without_gpus_has_no_rows_and_nothing_to_say(tmp_path: Path) -> None:
    if any(map(os.path.exists, NVIDIA)):
        pytest.skip("this machine has GPUs of NVIDIA")
    answers = told(
        PROGRAM
        + """
    if __name__ == "__main__":
        tell("gpus", ask("SELECT count(*) AS processes FROM gpu_processes JOIN gpus USING (uuid) WHERE gpus.vendor = 'NVIDIA'"))
    """,
        tmp_path,
    )
    assert answers["gpus"] == ([{"processes": 0}], {})


@pytest.mark.skipif(
    not any(map(os.path.exists, NVIDIA)), reason="this machine has no GPU of NVIDIA"
)
def test_the_process_that_uses_a_gpu_is_a_row(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("pynvml")
    if not torch.cuda.is_available():
        pytest.skip("torch can't use the GPU of this machine")
    program = """
    class User(Actor):
        @endpoint
        def take(self):
            import torch
            self.kept = torch.zeros(1 << 26, device="cuda")
            torch.cuda.synchronize()

    if __name__ == "__main__":
        users = this_host().spawn_procs({"gpus": 1}, name="users").spawn("user", User)
        users.take.call().get()
        tell("gpus", ask("SELECT p.mesh, g.memory_used_bytes > 1 << 28 AS much, u.memory_used_bytes > 1 << 28 AS own "
            "FROM gpu_processes u JOIN gpus g USING (uuid) JOIN procs p ON p.id = u.proc_id"))
    """
    assert told(PROGRAM + program, tmp_path)["gpus"] == (
        [{"mesh": "users", "much": True, "own": True}],
        {},
    )
