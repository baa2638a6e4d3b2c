"""Running programs as another terminal sees them: found, listed, connected to, let go."""

from __future__ import annotations

import json
import os
import signal
import textwrap
from pathlib import Path

import pytest

from helpers.processes import stopped
from helpers.terminals import RunningProgram, running
from helpers.waiting import wait_until
from helpers.workers import SECRET, children_of, workers
from monarch import programs
from monarch._core.net import unix
from monarch._core.plane import HostDescription

TRAINERS = """
    import sys
    from monarch.actor import this_host
    from helpers.actors import Echo

    if __name__ == "__main__":
        actors = this_host().spawn_procs({"gpus": 3}, name="trainers").spawn("actors", Echo)
        actors.say.call(1).get()
        print("up", flush=True)
        sys.stdin.read()
        actors.say.call(1).get()
    """

CONNECT = """
    import os
    from monarch import programs
    connection = programs.connect(int(sys.argv[1]))
    def described():
        return [connection.ask(agent, programs.DescribeHost()) for agent in connection.agents]
    """


def looked_at(program: RunningProgram, source: str, *args: str) -> str:
    result = program.other(
        textwrap.dedent(CONNECT) + textwrap.dedent(source), str(program.pid), *args
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def folder_of(pid: int) -> Path:
    host = next(each.host for each in programs.find() if each.pid == pid)
    return next(path for place in unix.PLACES if (path := Path(place, f"monarch-{host}")).exists())


def test_another_terminal_finds_a_program_and_what_runs_on_its_host(tmp_path: Path) -> None:
    with running(TRAINERS, tmp_path) as program:
        program.wait_for("up")
        found = next(each for each in programs.find() if each.pid == program.pid)
        assert found.command.endswith("train.py") and not found.is_worker
        before = sorted(os.listdir(folder_of(program.pid)))
        said = looked_at(
            program,
            """
    [there] = [answer.get() for answer in described()]
    assert connection.root.is_client and there.root == connection.root
    print(*[(proc.mesh, proc.rank, proc.size, proc.state) for proc in there.procs])
    connection.close()
    """,
        )
        assert said.strip() == " ".join(str(("trainers", rank, 3, "up")) for rank in range(3))
        assert sorted(os.listdir(folder_of(program.pid))) == before
        assert program.end() == 0


def test_who_is_connected_neither_keeps_a_program_alive_nor_sees_what_it_prints(
    tmp_path: Path,
) -> None:
    with running(TRAINERS, tmp_path) as program:
        program.wait_for("up")
        said = looked_at(
            program,
            """
    import signal, time
    from monarch.actor import SupervisionError
    os.kill(int(sys.argv[1]), signal.SIGKILL)
    end = time.monotonic() + 30
    while time.monotonic() < end:
        try:
            described()[0].get()
        except SupervisionError as error:
            print("told:", error)
            break
    """,
        )
        assert said.startswith("told:") and "up" not in said


def test_a_stopped_client_does_not_keep_others_from_looking_at_its_host(tmp_path: Path) -> None:
    with running(TRAINERS, tmp_path) as program:
        program.wait_for("up")
        with stopped(program.pid):
            said = looked_at(program, "print(len(described()[0].get().procs))")
        assert said.strip() == "3"
        assert program.end() == 0


def test_processes_on_attached_hosts_are_asked_through_the_program(tmp_path: Path) -> None:
    with workers(2) as attached:
        source = f"""
    import sys
    from monarch.actor import attach_to_workers
    from helpers.actors import Echo

    if __name__ == "__main__":
        hosts = attach_to_workers(workers={attached.addresses!r})
        hosts.spawn_procs({{"gpus": 2}}, name="far").spawn("actors", Echo).say.call(1).get()
        print("up", flush=True)
        sys.stdin.read()
    """
        with running(source, tmp_path, {"MONARCH_SECRET": SECRET}) as program:
            program.wait_for("up")
            said = looked_at(
                program,
                """
    hosts = [answer.get() for answer in described()]
    from monarch._core.hub.control_records import GetStatistics
    for process in (hosts[2].procs[1].address, connection.root):
        assert type(connection.ask(process, GetStatistics()).get()).__name__ == "ProcStatistics"
    print([[(proc.mesh, proc.rank) for proc in host.procs] for host in hosts])
    """,
            )
            assert said.strip() == "[[], [('far', 0), ('far', 1)], [('far', 2), ('far', 3)]]"
            workers_found = [
                each
                for each in programs.find()
                if each.is_worker and "run_worker_loop" in each.command
            ]
            assert len(workers_found) >= 2
            here = [
                each.pid
                for each in workers_found
                if each.pid in {process.pid for process in attached.processes}
            ]
            assert len(here) == 2
            result = program.other(
                CONNECT
                + """
    from monarch._core.hub.control_records import GetStatistics
    procs = described()[0].get().procs
    connection.ask(procs[0].root, GetStatistics()).get()
    print(len(procs))
    """,
                str(here[0]),
            )
            assert result.stdout.strip() == "2", result.stderr
            result = program.other(
                """
    import sys
    from monarch import programs
    for _ in range(3):
        for pid in sys.argv[1:]:
            with programs.connect(int(pid)) as connection:
                procs = programs.procs_of(connection.hub, connection.agents, print)
                print(pid, [(proc.mesh, proc.rank) for proc in procs])
    """,
                *map(str, [program.pid, *here]),
            )
            looks = result.stdout.splitlines()
            assert looks[:3] * 3 == looks, result
            assert f"{program.pid} {[('far', rank) for rank in range(4)]}" == looks[0]
            # beside workers, which are looked at first
            [row] = json.loads(program.monarch("list", "--json", str(program.pid)).stdout)
            assert (row["meshes"], row["error"], len(row["hosts"])) == ({"far": 4}, None, 3)
            rows = json.loads(program.monarch("list", "--json").stdout)
            assert row in [{**each, "since": row["since"]} for each in rows]


def test_monarch_list_shows_programs_as_a_table_or_as_json(tmp_path: Path) -> None:
    with running(TRAINERS, tmp_path) as program:
        program.wait_for("up")
        table = program.monarch("list")
        [row] = [
            line for line in table.stdout.splitlines() if line.split()[:1] == [str(program.pid)]
        ]
        assert "trainers (3)" in row and "train.py" in row and " program " in row, table
        [entry] = [
            each
            for each in json.loads(program.monarch("list", "--json").stdout)
            if each["pid"] == program.pid
        ]
        assert (
            entry["meshes"] == {"trainers": 3}
            and len(entry["hosts"]) == 1
            and entry["error"] is None
        )


def test_a_program_whose_agent_is_stopped_is_named_within_a_time_limit(tmp_path: Path) -> None:
    with running(TRAINERS, tmp_path) as program:
        program.wait_for("up")
        (agent,) = children_of(program.pid)
        with stopped(agent):
            result = program.other(
                """
    from monarch import programs
    programs.PATIENCE = 0.5
    programs.connect(int(sys.argv[1]))
    """,
                str(program.pid),
            )
        assert f"program {program.pid} " in result.stderr and "does not answer" in result.stderr


def test_none_or_several_programs_is_an_error_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unix, "PLACES", (str(tmp_path),))
    with pytest.raises(ConnectionError, match="no Monarch program of yours runs"):
        programs.connect()
    several = [programs.Program(pid, f"python {pid}.py", 0.0, False, "x") for pid in (11, 12)]
    monkeypatch.setattr(programs, "find", lambda: several)
    with pytest.raises(
        ValueError,
        match=r"2 programs run here, say which:\n  11 \(python 11.py\)\n  12 \(python 12.py\)",
    ):
        programs.connect()
    with pytest.raises(
        ValueError, match="13 is no Monarch program of yours on this machine; there are:\n  11"
    ):
        programs.connect(13)


def test_of_several_programs_the_one_of_this_folder_is_meant(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    several = [
        programs.Program(pid, f"python {pid}.py", 0.0, False, "x", folder)
        for pid, folder in ((11, "/"), (12, os.getcwd()))
    ]
    monkeypatch.setattr(programs, "find", lambda: several)
    asked: list[programs.Program] = []

    def refuse(program: programs.Program, host: str) -> HostDescription:
        asked.append(program)
        raise ConnectionError("not asked further")

    monkeypatch.setattr(programs, "_join", refuse)
    with pytest.raises(ConnectionError, match="not asked further"):
        programs.connect()
    assert [program.pid for program in asked] == [12]


def test_a_program_that_uses_monarch_cannot_connect_to_another(tmp_path: Path) -> None:
    with running(TRAINERS, tmp_path) as program:
        program.wait_for("up")
        result = program.other(
            """
    from monarch import programs
    from monarch.actor import context
    context()
    programs.connect(int(sys.argv[1]))
    """,
            str(program.pid),
        )
        assert "RuntimeError: this process uses Monarch already" in result.stderr


def test_ctrl_c_ends_the_wait_for_a_program_whichever_thread_takes_it(tmp_path: Path) -> None:
    with running(TRAINERS, tmp_path) as program:
        program.wait_for("up")
        waits = """
            import signal, threading
            def take():
                signal.pthread_kill(threading.get_ident(), signal.SIGINT)
            threading.Timer(0.2, take).start()
            try:
                connection.wait()
            except KeyboardInterrupt:
                print("heard")
            """
        assert looked_at(program, waits) == "heard\n"
        assert program.end() == 0


def test_a_guest_that_is_killed_leaves_a_program_that_goes_on(tmp_path: Path) -> None:
    with running(TRAINERS, tmp_path) as program:
        program.wait_for("up")
        result = program.other(
            CONNECT + "import signal; os.kill(os.getpid(), signal.SIGKILL)", str(program.pid)
        )
        assert result.returncode == -signal.SIGKILL
        wait_until(
            lambda: looked_at(program, "print(connection.program.pid)"), what="others to be let in"
        )
        folder = folder_of(program.pid)
        assert program.end() == 0
        assert not folder.exists()
