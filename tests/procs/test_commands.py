"""Commands on hosts: `exec_command`, `BashActor`, `monarch exec`."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from monarch.actor import Channel, this_host
from monarch.job import exec_command
from monarch.job.commands import BashActor, RunningCommand, places_of, start

if TYPE_CHECKING:
    from conftest import Spawn
    from helpers.jobs import Home

pytestmark = pytest.mark.processes("programs on the ranks")

JOB = "from monarch.job import ProcessJob\njob = ProcessJob({'first': 2, 'second': 1})\n"


@pytest.fixture
def cluster(home: Home) -> Home:
    """A folder with a job of two meshes that is the current one."""
    (home.folder / "cluster.py").write_text(JOB)
    home.monarch("apply", "cluster.job")
    return home


@pytest.mark.usefixtures("_process_test")
def test_the_status_is_that_of_the_command(tmp_path: Path) -> None:
    assert exec_command(this_host(), ["true"]).get() == 0
    assert exec_command(this_host(), ["bash", "-c", "exit 7"]).get() == 7
    assert exec_command(this_host(), ["bash", "-c", "kill -9 $$"]).get() == 128 + 9
    (tmp_path / "leaves.py").write_text("import sys\nsys.exit(3)\n")
    assert exec_command(this_host(), ["leaves.py"], workdir=str(tmp_path)).get() == 3


def test_an_unstartable_command_has_a_shells_status_and_the_job_ends(
    cluster: Home,
) -> None:
    said = cluster.monarch("exec", "--kill", "no-such-command", exit_code=127)
    assert "No such file or directory: 'no-such-command'" in said and "Traceback" not in said
    cluster.wait_nothing_left()


@pytest.mark.usefixtures("_process_test")
def test_a_signal_that_comes_before_the_command_has_started_ends_it() -> None:
    running = start(this_host(), RunningCommand(("sleep", "600")), places_of({}))
    running.signal(signal.SIGINT)
    assert running.status.get() == 128 + signal.SIGINT


@pytest.mark.usefixtures("_process_test")
def test_output_goes_to_a_folder_for_each_rank(tmp_path: Path) -> None:
    script = "echo $MONARCH_RANK_gpus of $MONARCH_SIZE_gpus; echo $NAME >&2"
    command = ["bash", "-c", script]
    assert (
        exec_command(
            this_host(), command, {"NAME": "x"}, output_dir=str(tmp_path), per_host={"gpus": 2}
        ).get()
        == 0
    )
    assert [(tmp_path / f"gpus_{rank}" / "stdout.txt").read_text() for rank in range(2)] == [
        "0 of 2\n",
        "1 of 2\n",
    ]
    assert (tmp_path / "gpus_1" / "stderr.txt").read_text() == "x\n"


def test_what_makes_no_sense_is_refused_at_the_call() -> None:
    with pytest.raises(TypeError, match="cmd is a list"):
        exec_command(this_host(), "ls -l")
    with pytest.raises(ValueError, match="there is none"):
        exec_command(this_host(), [])
    with pytest.raises(ValueError, match="there is no host 1"):
        exec_command(this_host(), ["ls"], rank=1)
    with pytest.raises(ValueError, match="hosts have no dimension 'hosts'"):
        exec_command(this_host(), ["ls"], point={"hosts": 0})


def test_scripts_of_bash_run_on_the_ranks_that_are_meant(spawn: Spawn, tmp_path: Path) -> None:
    bash = spawn({"gpus": 2}).spawn("bash", BashActor)
    found = bash.run.call("echo out; echo err >&2; exit 3", [1], str(tmp_path)).get()
    assert found.item(gpus=0) == {"skipped": True}
    assert found.item(gpus=1) == {"returncode": 3, "stdout": "out\n", "stderr": "err\n"}
    assert (tmp_path / "stdout.txt").read_text() == "out\n"
    port, lines = Channel[str].open()
    bash.run_streaming.call("echo one; echo two >&2; exit 4", port, [0]).get()
    said = [lines.recv().get() for _ in range(4)]
    assert sorted(said) == ["0:err:two", "0:out:one", "0:rc:4", "skip:1"]


@pytest.mark.slow
def test_a_command_of_the_command_line_runs_where_it_is_told(cluster: Home) -> None:
    where = ["bash", "-c", "echo at $MONARCH_RANK_hosts of $MONARCH_SIZE_hosts $NAME in $PWD"]
    assert "at 0 of 2 x in " + str(cluster.folder) in cluster.monarch(
        "exec", "-e", "NAME=x", *where
    )
    assert "at 1 of 2" in cluster.monarch("exec", "--point", "hosts=1", *where)
    everywhere = cluster.monarch("exec", "--all", *where)
    assert everywhere.count("of 2") == 2 and everywhere.count("at 0 of 1") == 1
    assert all(f"[exec-first {rank}] at {rank} of 2" in everywhere for rank in (0, 1))
    assert "at 0 of 1" in cluster.monarch("exec", "--mesh", "second", *where)
    (cluster.folder / "script.sh").write_text("echo $1; exit 5\n")
    assert "given" in cluster.monarch("exec", "--script", "script.sh", "given", exit_code=5)
    assert "the job has no mesh 'third'" in cluster.monarch(
        "exec", "--mesh", "third", "ls", exit_code=1
    )
    assert "--point takes DIM=NUMBER, got 'x'" in cluster.monarch(
        "exec", "--point", "x", "ls", exit_code=2
    )
    cluster.monarch("exec", "--kill", "true")
    cluster.wait_nothing_left()


@pytest.mark.processes("a job that a program has started, and commands on its hosts")
def test_a_job_that_a_program_has_started_is_that_of_exec_and_shell(home: Home) -> None:
    home.run("from monarch.job import ProcessJob\nProcessJob({'first': 1}).state()")
    assert "hello" in home.monarch("exec", "echo", "hello")
    home.monarch("shell")  # its stdin is empty
    home.monarch("kill")
    home.wait_nothing_left()


def test_ctrl_c_reaches_the_command_and_lines_come_while_it_runs(cluster: Home) -> None:
    script = "trap 'echo interrupted; exit 9' INT; echo waiting; while true; do sleep 0.05; done"
    program = cluster.popen(
        ["-m", "monarch.tools", "exec", "--mesh", "first", "bash", "-c", script], {}
    )
    assert program.stdout is not None
    try:
        assert ["waiting" in program.stdout.readline() for _ in range(2)] == [True, True]
        program.send_signal(signal.SIGINT)
        assert cluster.finish(program, 9).count("interrupted") == 2
    finally:
        program.kill()
        program.wait()
    cluster.monarch("kill")
    cluster.wait_nothing_left()
