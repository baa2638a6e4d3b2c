"""`job.sync`, `monarch sync` and `monarch bounce`, as they are typed."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from helpers.wheels import make_wheel

if TYPE_CHECKING:
    from helpers.jobs import Home
    from helpers.slurm import Slurm
    from helpers.ssh import Ssh

pytestmark = pytest.mark.usefixtures("_process_test")

JOBS = {
    "process": "ProcessJob({'hosts': 2})",
    "slurm": "SlurmJob({'hosts': 2}, exclusive=False)",
    "ssh": (
        "SSHJob(ssh_args=['-F', os.environ['SSH_CONFIG']], hosts={'hosts': ['a', 'b']},"
        " detach=True)"
    ),
}

PROGRAM = """
    import sys
    from cluster import job
    from monarch.actor import Actor, endpoint
    from monarch.environments import in_environment

    class Runner(Actor):
        @endpoint
        def value(self, packages: list[str]) -> tuple[int, str, list[str]]:
            import importlib
            import edited
            return edited.VALUE, edited.__file__, [importlib.import_module(name).VALUE for name in packages]

    if __name__ == "__main__":
        hosts = job.state().hosts
        packages = [each for each in sys.argv if each.startswith("tiny")]
        if packages:
            hosts = in_environment(hosts, "requirements.txt", wheels="wheels", offline=True)
        if "sync" in sys.argv:
            print(job.sync())
        procs = hosts.spawn_procs()
        values = procs.spawn("runner", Runner).value.call(packages).get().values()
        print("VALUES", [value for value, *_ in values], all("/current/edited.py" in path for _, path, _ in values))
        print("PACKAGES", [found for *_, found in values])
        procs.stop().get()
"""


def describe(home: Home, kind: str) -> None:
    """Put a program, and the job that it uses, into the folder."""
    (home.folder / "cluster.py").write_text(
        f"import os\nfrom monarch.job import *\njob = {JOBS[kind]}\n"
    )
    (home.folder / "edited.py").write_text("VALUE = 1\n")
    home.program(PROGRAM)


@pytest.fixture
def own(home: Home, monkeypatch: pytest.MonkeyPatch) -> Home:
    """Keeps what is synced, and what is known of it, in a folder of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(home.folder / ".monarch" / "cache"))
    monkeypatch.setenv("MONARCH_SYNC_FOLDER", str(home.folder / ".monarch" / "store"))
    return home


@pytest.mark.slow
def test_new_workers_of_a_bounced_job_have_what_was_synced_before(own: Home) -> None:
    describe(own, "process")
    said = own.run(PROGRAM, "sync")
    assert "on 2 hosts" in said and "sent to" in said and ".monarch/ (always left out)" in said
    assert "VALUES [1, 1] True" in said
    (own.folder / "edited.py").write_text("VALUE = 22\n")
    told = json.loads(own.monarch("sync", "--json"))
    assert (told["sent_files"], told["sent"], told["hosts"], told["reloads"]) == (1, 11, 2, [])
    (own.folder / "edited.py").write_text("VALUE = 333\n")
    assert "2 workers" in own.monarch("bounce")
    assert "VALUES [333, 333] True" in own.run(PROGRAM)
    own.monarch("kill")
    assert "no job runs here" in own.monarch("sync", exit_code=1)


def _edit_and_run(home: Home, kind: str) -> None:
    describe(home, kind)
    assert "VALUES [1, 1] True" in home.run(PROGRAM, "sync")
    (home.folder / "edited.py").write_text("VALUE = 22\n")
    make_wheel(home.folder / "wheels", "tiny_one", "1.0")
    (home.folder / "requirements.txt").write_text("tiny_one\n")
    assert "3 files, " in home.monarch("sync")
    said = home.run(PROGRAM, "tiny_one")
    assert "VALUES [22, 22] True" in said and "PACKAGES [['1.0'], ['1.0']]" in said
    home.monarch("kill")


def test_a_file_that_is_edited_runs_on_nodes_of_slurm(own: Home, slurm: Slurm) -> None:
    _edit_and_run(own, "slurm")


def test_a_file_that_is_edited_runs_on_machines_that_ssh_reaches(own: Home, ssh: Ssh) -> None:
    _edit_and_run(own, "ssh")


def test_what_is_saved_while_sync_watches_runs_at_the_next_call(own: Home) -> None:
    describe(own, "process")
    own.monarch("apply", "cluster.job")
    program = own.popen([own.program(WATCHED)], {}, subprocess.PIPE)
    watch = own.monarch_started("sync", "--watch", "--reload")
    try:
        assert program.stdin is not None and program.stdout is not None and watch.stdout is not None
        assert "on 2 hosts" in watch.stdout.readline()
        program.stdin.write("\n")
        program.stdin.flush()
        assert program.stdout.readline() == "[1, 1]\n"
        (own.folder / "edited.py").write_text("VALUE = 55\n")
        lines = list(
            itertools.takewhile(
                lambda line: "hosts[1]" not in line and "hosts[0]" not in line, watch.stdout
            )
        )
        assert any("1 file, 11 bytes sent to 2 hosts" in line for line in lines), lines
        watch.send_signal(signal.SIGINT)
        assert watch.wait(60) == 0
        out, _ = program.communicate("\n", timeout=60)
        assert out == "[55, 55]\n"
    finally:
        for process in (watch, program):
            process.kill()
            process.communicate()
        own.monarch("kill")


WATCHED = """
    from cluster import job
    from monarch.actor import Actor, endpoint

    class Runner(Actor):
        @endpoint
        def value(self) -> int:
            import edited
            return edited.VALUE

    if __name__ == "__main__":
        hosts = job.state().hosts
        procs = None
        for _ in range(2):
            input()
            if procs is None:
                procs = hosts.spawn_procs(name="hosts")
                runner = procs.spawn("runner", Runner)
            print(runner.value.call().get().values(), flush=True)
        procs.stop().get()
"""
