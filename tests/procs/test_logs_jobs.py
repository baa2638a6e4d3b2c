"""`monarch logs` from another terminal: of a job that runs, of one that was killed, of hosts whose
files are not here.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from helpers.jobs import Home

TRAIN = """
    import logging, os, sys, time
    from monarch.actor import Actor, endpoint, this_host
    from monarch.job import ProcessJob

    class Trainer(Actor):
        @endpoint
        def step(self, number: int) -> None:
            print(f"step {number}")
            logging.getLogger("train").warning("loss is %s", number / 10)
            os.write(1, b"unbuffered\\n")

    if __name__ == "__main__":
        hosts = ProcessJob({"workers": 2}).state().workers if "job" in sys.argv else this_host()
        trainer = hosts.spawn_procs({"gpus": 2}, name="trainers").spawn("trainer", Trainer)
        trainer.step.call(1).get()
        while "wait" in sys.argv and not os.path.exists("go"):
            time.sleep(0.01)
        trainer.step.call(2).get()
"""

JOBS = """
from monarch.actor import attach_to_workers
from monarch.job import JobState, JobTrait

class Lab(JobTrait):
    def __init__(self, *addresses):
        self.addresses = addresses
    def _create(self, client_script):
        pass
    def _state(self):
        return JobState({"lab": attach_to_workers(workers=list(self.addresses))})
    def can_run(self, spec):
        return self.active
    def _kill(self):
        pass
"""

TALK = """
    import sys
    from jobs import Lab
    from monarch.actor import Actor, endpoint

    class Talker(Actor):
        @endpoint
        def talk(self, count: int) -> None:
            for number in range(count):
                print(f"from afar {number} {'x' * 20_000}")

    if __name__ == "__main__":
        procs = Lab(*sys.argv[1:]).state().lab.spawn_procs({"gpus": 2}, name="talkers")
        procs.spawn("talker", Talker).talk.call(150).get()
        procs.stop().get()
"""

SECRET = {"MONARCH_SECRET": "0123456789abcdef0123456789abcdef"}


def lines(said: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in said.splitlines() if line.startswith("{")]


def said_by(found: list[dict[str, Any]], rank: int) -> list[str]:
    return [line["text"].rpartition("] ")[2] for line in found if line["rank"] == rank]


STEPS = ["step 1", "loss is 0.1", "unbuffered", "step 2", "loss is 0.2", "unbuffered"]


def test_logs_of_all_ranks_are_read_from_another_terminal_and_later(
    home: Home,
) -> None:
    home.run(TRAIN, "job")
    running = home.monarch("logs", "--json")
    found = lines(running)
    for rank in range(4):
        assert sorted(said_by(found, rank)) == sorted(STEPS)
        assert [text for text in said_by(found, rank) if text.startswith("loss")] == [
            "loss is 0.1",
            "loss is 0.2",
        ]
    warnings = lines(
        home.monarch("logs", "--json", "--rank", "hosts=1,gpus=0", "--level", "warning")
    )
    assert said_by(warnings, 2) == ["loss is 0.1", "loss is 0.2"] and len(warnings) == 2
    assert warnings[0]["location"] == "program.py:10" and warnings[0]["endpoint"] == "step"
    plain = home.monarch("logs", "--grep", "^step 2", "--rank", "3")
    assert plain.endswith(" workers[1] [trainers 3] step 2\n") and plain.count("\n") == 1
    here = os.uname().nodename
    assert {line["host"] for line in found} == {f"workers[0] on {here}", f"workers[1] on {here}"}
    folders = Path(home.folder).glob(".monarch/logs/*/*/*.jsonl")
    assert {path.parent.name for path in folders} == {here}
    home.monarch("kill")
    assert lines(home.monarch("logs", "--json")) == found


def test_a_job_goes_by_the_name_that_status_tells_in_each_command(home: Home) -> None:
    program = home.start(TRAIN, "job", "wait")
    assert program.stdout is not None
    program.stdout.readline()
    told = home.monarch("status", "default")
    assert "ProcessJob({'workers': 2}) runs; context 'default', id " in told
    assert ["workers[1]", os.uname().nodename] in [line.split()[:2] for line in told.splitlines()]
    assert home.monarch("context", "ls") == "* default\n"
    assert "Fine: " in home.monarch("why", "default", "--seconds", "0.1")
    (home.folder / "go").touch()
    program.communicate(timeout=60)
    assert "workers[1] [trainers 3] step 2" in home.monarch("logs", "default")
    refused = home.monarch("why", "default", exit_code=1)
    assert "no program here is known to use ProcessJob({'workers': 2}) now" in refused
    assert "ended: ProcessJob({'workers': 2})" in home.monarch("kill", "default")
    assert "workers[1] [trainers 3] step 2" in home.monarch("logs", "default")


def test_a_job_whose_workers_were_killed_has_logs_to_the_last_line(home: Home) -> None:
    home.run(TRAIN, "job")
    for pid in home.processes():
        os.kill(pid, signal.SIGKILL)
    assert all(
        said_by(lines(home.monarch("logs", "--json")), rank)[0] in STEPS for rank in range(4)
    )
    assert "step 2" in home.monarch("logs", "--grep", "step")
    home.monarch("kill")


def test_following_shows_what_is_printed_meanwhile_and_ends_with_the_job(home: Home) -> None:
    program = home.start(TRAIN, "job", "wait")
    assert program.stdout is not None
    assert program.stdout.readline(), "the job runs"
    follow = home.monarch_started("logs", "-f", "--json", "--grep", "^step")
    assert follow.stdout is not None
    first = [json.loads(follow.stdout.readline()) for _ in range(4)]
    assert [line["text"] for line in first] == ["step 1"] * 4
    (home.folder / "go").touch()
    then = [json.loads(follow.stdout.readline()) for _ in range(4)]
    assert sorted((line["rank"], line["text"]) for line in then) == [
        (rank, "step 2") for rank in range(4)
    ]
    program.communicate(timeout=60)
    home.monarch("kill")
    out, err = follow.communicate(timeout=60)
    assert (out, follow.returncode) == ("", 0) and err.endswith(" does not run\n")


def test_a_reader_that_has_enough_ends_it_without_a_word(home: Home) -> None:
    home.run(TRAIN, "job")
    logs = home.monarch_started("logs", "-f")
    assert logs.stdout is not None and logs.stderr is not None
    assert logs.stdout.readline()
    logs.stdout.close()
    home.run(TRAIN, "job")  # something to write, which nobody reads
    assert (logs.stderr.read(), logs.wait(60)) == ("", 0)
    logs.stderr.close()
    home.monarch("kill")


def test_ctrl_c_ends_it_in_order(home: Home) -> None:
    home.run(TRAIN, "job")
    logs = home.monarch_started("logs", "-f")
    assert logs.stdout is not None
    assert logs.stdout.readline()
    logs.send_signal(signal.SIGINT)
    _, err = logs.communicate(timeout=60)
    assert (logs.returncode, err) == (0, "")
    home.monarch("kill")


def test_a_program_without_a_job_has_logs_if_it_asks_for_them(home: Home) -> None:
    home.run(TRAIN, env={"HYPERACTOR_MESH_ENABLE_FILE_CAPTURE": "1"})
    found = lines(home.monarch("logs", "--json"))
    assert sorted(said_by(found, 1)) == sorted(STEPS) and {line["rank"] for line in found} == {0, 1}


# hosts whose files are not here


SLOW = """
    import os, time
    from monarch._core.mesh.bootstrap import BootstrapCommand
    from monarch.config import configure
    from monarch.job import ProcessJob

    job = ProcessJob({"workers": 1})
    job.apply()  # with time enough
    configure(host_spawn_ready_timeout="900ms")
    hosts = job.state().workers
    hosts.initialized.get()
    print("attached", flush=True)
    while not os.path.exists("go"):
        time.sleep(0.01)
    never = BootstrapCommand("/bin/sleep", None, ("60",))
    print(hosts.spawn_procs(bootstrap_command=never).initialized.exception())
"""

LOOK = """
    from monarch.job.find_logs import find_logs

    (hosts,) = find_logs()._replace(all_here=False).other_hosts()
    hosts.initialized.get()
"""


def test_hosts_keep_the_settings_of_their_program_when_logs_are_read_there(home: Home) -> None:
    (home.folder / "look.py").write_text(textwrap.dedent(LOOK))
    program = home.start(SLOW)
    assert program.stdout is not None
    assert program.stdout.readline() == "attached\n"
    subprocess.run(
        [sys.executable, "look.py"],
        cwd=home.folder,
        env=home.environment({}),
        check=True,
        timeout=60,
    )
    (home.folder / "go").touch()
    out, _ = program.communicate(timeout=60)
    assert "after 0.9s (host_spawn_ready_timeout)" in out
    home.monarch("kill")


@contextmanager
def machine(home: Home, name: str) -> Iterator[str]:
    """A worker on a machine of its own, as far as its name and the folder of logs go; its
    address.
    """
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    (home.folder / ".monarch" / "logs").mkdir(parents=True, mode=0o700, exist_ok=True)
    (home.folder / ".monarch").chmod(0o700)
    inside = 'hostname "$0" && mount -t tmpfs -o mode=700 none .monarch/logs && exec "$@"'
    worker = [sys.executable, "-m", "monarch.tools", "worker", "--listen", address]
    process = subprocess.Popen(
        ["unshare", "--uts", "--mount", "sh", "-c", inside, name, *worker], cwd=home.folder, env=home.environment(SECRET),
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        said = process.stderr.readline()
        assert said == f"listening: {address}\n", said + process.stderr.read()
        yield address
    finally:
        process.terminate()
        process.communicate(timeout=60)


def _why_no_machines() -> str:
    if os.geteuid() or not shutil.which("unshare"):
        return "a machine of its own needs root, and `unshare`"
    tried = subprocess.run(
        ["unshare", "--uts", "--mount", "true"], capture_output=True, text=True, check=False
    )
    return tried.stderr


@pytest.mark.skipif(bool(_why_no_machines()), reason=_why_no_machines() or "there are machines")
def test_files_of_other_machines_are_read_there_while_the_job_runs(home: Home) -> None:
    (home.folder / "jobs.py").write_text(JOBS)
    with machine(home, "near") as near:
        with machine(home, "far") as far:
            home.run(TALK, near, far, env=SECRET)
            assert list(Path(home.folder).glob(".monarch/logs/*/*/*.jsonl")) == [], (
                "nothing is kept here"
            )
            found = lines(home.monarch("logs", "--json", "--since", "1h", env=SECRET))
            for rank in range(4):
                texts = [line["text"].split()[2] for line in found if line["rank"] == rank]
                assert texts == [str(number) for number in range(150)]
            assert {(line["host"], line["rank"]) for line in found} == {
                ("near", 0),
                ("near", 1),
                ("far", 2),
                ("far", 3),
            }
            some = lines(
                home.monarch("logs", "--json", "--rank", "3", "--grep", "afar 99 ", env=SECRET)
            )
            assert [(line["host"], line["text"].split()[2]) for line in some] == [("far", "99")]
        said = home.monarch("logs", "--json", "--rank", "gpus=0", env=SECRET)
        assert {line["host"] for line in lines(said)} == {
            "near"
        } and f"not reachable: {far}: " in said
