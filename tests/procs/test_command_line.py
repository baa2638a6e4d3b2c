"""The command `monarch`, as it is typed: what it prints, how it exits, what it says to a mistake."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from helpers.jobs import Home

JOBS = "from monarch.job import ProcessJob\njob = ProcessJob({'workers': 1})\nother = ProcessJob({'others': 1})\nno = None\nx = 1\n"
USE = "from monarch.job import ProcessJob\njob = ProcessJob({'workers': 1})\njob.state()\nprint(job.apply_id)\n"

ATTACH = """
    import sys
    from monarch.actor import Actor, attach_to_workers, endpoint

    class Worker(Actor):
        @endpoint
        def greet(self) -> str:
            return "hello"

    hosts = attach_to_workers(workers=[sys.argv[1]])
    print(hosts.spawn_procs().spawn("worker", Worker).greet.call().get(timeout=30).values())
    hosts.shutdown().get(timeout=30)
"""


def test_without_a_command_it_shows_what_there_is(home: Home) -> None:
    shown = home.monarch(exit_code=2)
    for command in ("worker", "secret", "apply", "kill", "context"):
        assert command in shown


def test_the_paths_of_transfers_are_shown(home: Home) -> None:
    lines = home.monarch("rdma").splitlines()
    assert [line.split()[0] for line in lines[:-1]] == ["copy", "vm", "cuda", "nixl", "messages"]
    assert any(line.split()[1] == "yes" for line in lines[:-1])
    assert lines[-1].startswith("between hosts: ")


def test_a_secret_is_printed_new_each_time(home: Home) -> None:
    first, second = home.monarch("secret"), home.monarch("secret")
    assert first != second
    assert len(first.strip()) >= 32
    assert first.count("\n") == 1


def test_a_secret_file_is_for_its_owner_alone_and_never_overwritten(home: Home) -> None:
    path = home.folder / "new" / "secret"
    said = home.monarch("secret", "new/secret")
    text = path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert text.strip() not in said
    assert "exists" in home.monarch("secret", "new/secret", exit_code=1)
    assert path.read_text() == text


def test_a_worker_serves_until_a_client_shuts_it_down(home: Home) -> None:
    secret = {"MONARCH_SECRET": "not so long but long enough"}
    with home.worker(env=secret) as address:
        assert home.run(ATTACH, address, env=secret) == "['hello']\n"


def test_a_worker_without_a_secret_is_refused_with_what_to_do(home: Home) -> None:
    nobody = {"HOME": str(home.folder), "MONARCH_SECRET": "", "MONARCH_SECRET_FILE": ""}
    said = home.monarch("worker", "--listen", "tcp://0.0.0.0:0", env=nobody, exit_code=1)
    assert "monarch secret" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    "args",
    [
        ("worker", "--listen", "nonsense"),
        ("worker", "--listen", "tcp://127.0.0.1:0", "--secret-file", "nowhere"),
        ("worker", "--listen", "tcp://127.0.0.1:0", "--ca", "nowhere", "--private-key", "nowhere"),
        ("kill",),
        ("kill", "nowhere"),
        ("apply",),
        ("apply", "nodot"),
        ("apply", "no_such_module.job"),
        ("apply", "jobs.nowhere"),
        ("apply", "jobs.no"),
        ("apply", "jobs.x"),
        ("context", "rm", "nowhere"),
        ("context", "use", "../up"),
    ],
    ids=" ".join,
)
def test_a_mistake_is_one_line_and_no_traceback(home: Home, args: tuple[str, ...]) -> None:
    (home.folder / "jobs.py").write_text(JOBS)
    said = home.monarch(*args, exit_code=1)
    assert said.startswith("error: ")
    assert "Traceback" not in said


def test_certificates_and_a_secret_exclude_each_other(home: Home) -> None:
    home.monarch("worker", "--listen", "tcp://127.0.0.1:0", "--ca", "a", "--secret-file", "b", exit_code=2)


def test_a_job_is_applied_used_and_ended(home: Home) -> None:
    (home.folder / "jobs.py").write_text(JOBS)
    assert "workers" in home.monarch("apply", "jobs.job")
    first = home.run(USE)
    home.monarch("apply")
    assert home.run(USE) == first
    assert "workers" in home.monarch("kill")
    assert home.left() == []
    home.monarch("kill", exit_code=1)
    home.monarch("apply")
    assert home.run(USE) != first
    home.monarch("kill")


def test_a_mistake_does_not_forget_the_job_that_was_set(home: Home) -> None:
    (home.folder / "jobs.py").write_text(JOBS)
    home.monarch("apply", "jobs.job")
    home.monarch("apply", "jobs.nowhere", exit_code=1)
    home.monarch("kill")
    assert "workers" in home.monarch("apply")
    home.monarch("kill")


def test_contexts_keep_jobs_apart(home: Home) -> None:
    (home.folder / "jobs.py").write_text(JOBS)
    assert home.monarch("context", "ls") == "No contexts.\n"
    home.run(USE)  # before there was any context
    home.monarch("context", "use", "second")
    assert home.monarch("context", "ls") == "  default\n* second\n"
    home.monarch("apply", "jobs.other")
    assert "workers" in home.monarch("kill", "default")
    assert home.monarch("context", "ls") == "  default\n* second\n"
    home.monarch("context", "use", "default")
    home.monarch("context", "rm", "second")
    assert home.monarch("context", "ls") == "* default\n"
    assert home.left() == []


def test_without_its_libraries_the_command_says_what_to_install(home: Home) -> None:
    said = home.run(
        """
        import importlib.util, sys
        find = importlib.util.find_spec
        importlib.util.find_spec = lambda name: None if name == "typer" else find(name)
        from monarch.tools.__main__ import main
        main()
        """,
        exit_code=1,
    )
    assert "pip install 'pymonarch[cli]'" in said
