"""The admin interface when something of it, or of the program, dies or stands still."""

from __future__ import annotations

import http.client
import json
import os
import select
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from helpers.admin import Asker, admin_of
from helpers.processes import stopped
from helpers.terminals import RunningProgram, running
from helpers.waiting import wait_until
from monarch.admin.child import PROGRAM_ENDED
from monarch.admin.door import Door

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

PROGRAM = """
    import os, sys
    from monarch import configure
    from monarch.actor import Actor, endpoint, this_host

    configure(heartbeat_timeout="10min")  # some of its processes will be stopped

    class Trainer(Actor):
        @endpoint
        def pid(self):
            return os.getpid()

    if __name__ == "__main__":
        trainers = this_host().spawn_procs({"gpus": 2}, name="trainers").spawn("trainer", Trainer)
        print("go", *trainers.pid.call().get().values(), flush=True)
        for line in sys.stdin:
            print("still", *trainers.pid.call().get().values(), flush=True)
    """


@contextmanager
def program_with_admin(
    folder: Path, **how: Any
) -> Iterator[tuple[RunningProgram, list[int], Door, Asker]]:
    with running(PROGRAM, folder) as program:
        pids = [int(word) for word in program.wait_for("go").split()[1:]]
        with admin_of(program.pid, **how) as (door, asker):
            yield program, pids, door, asker


def helper_of(door: Door) -> int:
    process = door._process
    assert process is not None
    return process.pid


def works(program: RunningProgram) -> None:
    assert program.process.stdin is not None
    program.process.stdin.write("\n")
    program.process.stdin.flush()
    program.wait_for("still")


def test_a_helper_that_is_killed_is_replaced_and_the_program_notices_nothing(
    tmp_path: Path,
) -> None:
    with program_with_admin(tmp_path) as (program, _, door, asker):
        before = asker.get("/v1/root")
        killed = helper_of(door)
        os.kill(killed, signal.SIGKILL)
        wait_until(
            lambda: door._process is None or door._process.pid != killed,
            what="the end of the helper is seen",
        )
        # the same URL, and the same token
        assert asker.get("/v1/root")["children"] == before["children"]
        assert helper_of(door) != killed
        works(program)
        assert program.end() == 0
        assert program.process.stderr is not None and program.process.stderr.read() == ""


@pytest.mark.parametrize("stands_still", [False, True])
def test_who_looks_on_sees_the_failure_that_ends_the_program(
    tmp_path: Path, stands_still: bool
) -> None:
    with program_with_admin(tmp_path) as (program, pids, door, asker):
        events = asker.events("/v1/now/events")
        assert next(events)[0] == "state"
        if stands_still:  # so that it hears of the failure and of the end at once
            os.kill(helper_of(door), signal.SIGSTOP)
        os.kill(pids[1], signal.SIGKILL)
        assert program.process.wait(30) == 1
        if stands_still:
            os.kill(helper_of(door), signal.SIGCONT)
        *_, (name, shown), (last, _) = events
    assert (name, last) == ("state", "end")
    assert shown["verdict"]["status"] == "stuck" and "SIGKILL" in shown["verdict"]["sentence"]
    (trainers,) = (mesh for mesh in shown["meshes"].values() if mesh["name"] == "trainers")
    assert [shown["states"][state] == "failed" for state in trainers["columns"]["state"]] == [
        False,
        True,
    ]
    assert [failure["root_cause"] for failure in shown["failures"]] == ["trainer[1]"]


def test_no_helper_runs_before_a_request_and_long_after_the_last(tmp_path: Path) -> None:
    with program_with_admin(tmp_path, idle=0.5) as (_, _, door, asker):
        assert door._process is None
        asker.get("/v1/root")
        wait_until(lambda: door._process is None, what="the helper has ended, as nobody asks")
        assert door.status == 0 and not door.ended.is_set()
        asker.get("/v1/root")


def test_nothing_is_imported_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("uvicorn", "monarch", "asyncio", "json"):
        (tmp_path / f"{name}.py").write_text(
            "import os, sys; sys.stderr.write('mine'); os._exit(9)"
        )
    more = tmp_path / "more"
    more.mkdir()
    (more / "sitecustomize.py").write_text(f"open({str(tmp_path / 'used')!r}, 'w').close()")
    monkeypatch.setenv("PYTHONPATH", str(more))
    with program_with_admin(tmp_path / "more") as (_, _, _, asker):
        (tmp_path / "used").unlink(missing_ok=True)
        monkeypatch.chdir(tmp_path)
        assert asker.get("/v1/root")["children"]
    assert (tmp_path / "used").exists()  # what PYTHONPATH names is there


def test_a_helper_that_stands_still_does_not_outlive_who_has_started_it(tmp_path: Path) -> None:
    script = """
        import sys, threading
        from monarch.admin.door import Door
        door = Door(int(sys.argv[1]))
        print("go", door.url, flush=True)
        sys.stdin.readline()
        print("helper", door._process.pid, flush=True)
        sys.stdin.read()
        """
    with running(PROGRAM, tmp_path) as program:
        program.wait_for("go")
        (tmp_path / "other").mkdir()
        with running(script.replace("sys.argv[1]", str(program.pid)), tmp_path / "other") as other:
            url = other.wait_for("go").split()[1]
            assert Asker(url).raw("GET", "/v1/root")[0] == 401
            assert other.process.stdin is not None
            other.process.stdin.write("\n")
            other.process.stdin.flush()
            helper = os.pidfd_open(int(other.wait_for("helper").split()[1]))
            try:
                # it can't see the end of its standard input
                signal.pidfd_send_signal(helper, signal.SIGSTOP)
                other.process.kill()
                assert select.select([helper], [], [], 60)[0]
            finally:
                os.close(helper)


def test_a_door_leaves_no_descriptor_open(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        door = Door(os.getpid())
        door.close()
        door.close()  # again
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_program_that_dies_during_a_request_ends_the_interface(
    tmp_path: Path,
) -> None:
    with program_with_admin(tmp_path) as (program, _, door, asker):
        asker.get("/v1/root")
        stream = asker.open("GET", "/v1/events")
        connection = http.client.HTTPConnection(urlsplit(asker.url).netloc, timeout=60)
        headers = {"Authorization": f"Bearer {door.access('act')['token']}"}
        # the second one over a connection that is accepted
        for path in ("/v1/admin", "/v1/why?seconds_apart=10"):
            connection.request("GET", path, headers=headers)
            if path == "/v1/admin":
                connection.getresponse().read()
        program.process.kill()
        answer = connection.getresponse()
        assert answer.status in (503, 504) and json.loads(answer.read())["error"]["message"]
        assert b"event: end" in stream.read()
        connection.close()
        assert door.ended.wait(60) and door.status == PROGRAM_ENDED
        with pytest.raises(OSError):
            asker.raw("GET", "/v1/root")


def test_a_process_that_stands_still_is_named_and_not_waited_for(tmp_path: Path) -> None:
    with program_with_admin(tmp_path) as (_, pids, _, asker):
        asker.get("/v1/root")
        with stopped(pids[1]):
            silent = asker.get("/v1/waits")["silent"]
            drawn = ""
            while "! trainers[1] on " not in drawn:  # who asks within a second is told as before
                drawn = asker.raw("GET", "/v1/tree")[1].decode()
            verdict = asker.get("/v1/why")
        assert any(who.startswith("trainers[1] on ") for who in silent)
        assert "── trainers[1]" in drawn
        assert "is stopped" in json.dumps(verdict)


def test_a_host_that_stands_still_is_named_and_not_waited_for(tmp_path: Path) -> None:
    with program_with_admin(tmp_path) as (program, _, _, asker):
        asker.get("/v1/root")
        agent = next(
            int(entry.name)
            for entry in Path("/proc").iterdir()
            if entry.name.isdigit() and is_agent_of(entry, program.pid)
        )
        with stopped(agent):
            silent = asker.get("/v1/waits")["silent"]
        assert (
            [why for why in silent.values() if why.startswith("did not answer within")]
            == list(silent.values())
            != []
        )
        assert asker.get("/v1/waits")["silent"] == {}


def is_agent_of(entry: Path, client: int) -> bool:
    try:
        status = dict(
            line.split(":\t", 1)
            for line in (entry / "status").read_text().splitlines()
            if ":\t" in line
        )
        command = (entry / "cmdline").read_bytes()
    except OSError:
        return False
    return int(status.get("PPid", "0")) == client and b"agent" in command


def test_the_interface_of_a_program_that_is_gone_ends(tmp_path: Path) -> None:
    with running(PROGRAM, tmp_path) as program:
        program.wait_for("go")
        pid = program.pid
        assert program.end() == 0
    with admin_of(pid) as (door, asker):
        with pytest.raises(OSError):
            asker.raw("GET", "/v1/root")
        assert door.ended.wait(60) and door.status == PROGRAM_ENDED
