"""The command `monarch`, as it is typed: what it prints, how it exits, what it says to a
mistake.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from helpers.commands import Type, prompt
from helpers.processes import parent_of
from monarch.job import (
    DEFAULT_JOB_PATH,
    LocalJob,
    ProcessJob,
    job_load,
    load_current_job,
    set_current_job,
)
from monarch.tools.cli import _GROUPS

if TYPE_CHECKING:
    from helpers.jobs import Home

JOBS = (
    "from monarch.job import ProcessJob\njob = ProcessJob({'workers': 1})\nother ="
    " ProcessJob({'others': 1})\nno = None\nx = 1\n"
)
USE = (
    "from monarch.job import ProcessJob\njob = ProcessJob({'workers':"
    " 1})\njob.state()\nprint(job.apply_id)\n"
)

ATTACH = """
    import sys
    from monarch.actor import Actor, attach_to_workers, endpoint

    class Worker(Actor):
        @endpoint
        def greet(self) -> str:
            return "hello"

    hosts = attach_to_workers(workers=[sys.argv[1]])
    print(hosts.spawn_procs().spawn("worker", Worker).greet.call().get().values())
    hosts.shutdown().get()
"""


@pytest.fixture
def monarch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Type:
    """`monarch("kill")`: the command in this very process, for what needs no other; in an empty
    folder with `jobs.py`.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "jobs", raising=False)
    (tmp_path / "jobs.py").write_text(JOBS)

    return prompt(monkeypatch, capsys)


def test_without_a_command_it_shows_what_there_is(monarch: Type) -> None:
    shown = monarch()
    assert shown.exit_code == 2
    for command in ("worker", "secret", "apply", "kill", "context"):
        assert command in shown.out


@pytest.mark.parametrize(
    "command",
    [
        "worker",
        "secret",
        "apply",
        "kill",
        "serve",
        "logs",
        "rdma",
        "list",
        "stacks",
        "context ls",
        "context create",
        "context use",
        "context rm",
    ],
)
def test_the_help_of_each_command_has_an_example(monarch: Type, command: str) -> None:
    shown = monarch(*command.split(), "--help")
    assert shown.exit_code == 0
    assert f"Example: monarch {command}" in shown.out


def test_each_command_has_one_line_in_a_narrow_terminal(
    monarch: Type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = monarch("--help").out.partition("─ Look ")[2]
    lines = [line for line in shown.splitlines() if line.startswith("│")]
    assert len(lines) > 25
    assert [line for line in lines if line.startswith("│  ")] == []


def test_the_paths_of_transfers_are_shown(monarch: Type) -> None:
    lines = monarch("rdma").out.splitlines()
    for path in ("copy", "vm", "cuda", "nixl", "messages"):
        assert any(path in line.split()[:2] for line in lines), path
    assert sum(line.startswith("->") for line in lines) == 2  # on one host, and between hosts


def test_a_secret_is_printed_new_each_time(monarch: Type) -> None:
    first, second = monarch("secret").out, monarch("secret").out
    assert first != second
    assert len(first.strip()) >= 32
    assert first.count("\n") == 1


def test_a_secret_file_is_for_its_owner_alone_and_never_overwritten(monarch: Type) -> None:
    path = Path("new", "secret")
    said = monarch("secret", str(path))
    text = path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert text.strip() not in said.out + said.err
    again = monarch("secret", str(path))
    assert again.exit_code == 1
    assert "exists" in again.err
    assert path.read_text() == text


def test_a_worker_without_a_secret_is_refused_with_what_to_do(
    monarch: Type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("MONARCH_SECRET", raising=False)
    monkeypatch.delenv("MONARCH_SECRET_FILE", raising=False)
    said = monarch("worker", "--listen", "tcp://0.0.0.0:0")
    assert said.exit_code == 1
    assert "monarch secret" in said.err and "tcp://0.0.0.0:0 is open to other users" in said.err


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
        ("serve",),
        ("serve", "--job", "jobs.x", "torchrun", "train.py"),
        ("serve", "--job", "jobs.job", "torchrun", "nowhere.py"),
        ("context", "rm", "nowhere"),
        ("context", "use", "../up"),
    ],
    ids=" ".join,
)
def test_a_mistake_is_an_error_that_says_what_is_wrong(
    monarch: Type, args: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MONARCH_SECRET_FILE", "")
    said = monarch(*args)
    assert said.exit_code == 1
    assert said.out == ""
    assert said.err.startswith("error: ")
    assert "Traceback" not in said.err


GONE = "999999999"  # no process has this id
FAILS = {
    "why": GONE, "stacks": GONE, "list": GONE, "dashboard": GONE, "query": f"{GONE} SHOW", "snapshot": f"-p {GONE}",
    "metrics": f"-p {GONE}",
    "profile": GONE, "debug": GONE, "admin": GONE, "logs": "nowhere", "status": "", "kill": "", "apply": "", "serve": "",
    "exec": "true", "shell": "", "scale": "trainers=2", "bounce": "", "sync": "", "port-forward": "trainers:80", "context": "use ../up",
    "worker": "--listen nonsense", "secret": "jobs.py", "run": "nowhere.py",
}  # fmt: skip
"""What each command says status 1 to, where nothing runs."""

NEVER_FAILS = {"doctor", "rdma", "demo", "tui", "report"}
"""Those that need no program, or a terminal."""

MISUSED = {
    "why": f"{GONE} -p {GONE}", "stacks": "run.duckdb", "list": "run.duckdb", "profile": f"{GONE} --seconds soon",
    "snapshot": "--timeout soon",
    "query": "SQL --file x", "debug": "--json", "exec": "--point x true", "port-forward": "trainers", "scale": "trainers",
    "run": "--nproc-per-node x a.py",
    "doctor": "--device cpu", "logs": "--level loud", "secret": "a b", "context": "use"
}  # fmt: skip
"""What makes no sense, whatever runs."""


def test_each_command_has_the_same_exit_statuses(monarch: Type) -> None:
    listed = {word for of in _GROUPS.values() for words in of.values() for word in words}
    assert listed == FAILS.keys() | NEVER_FAILS
    unknown = {each: monarch(each, "--no-such-option").exit_code for each in sorted(listed)}
    assert unknown == dict.fromkeys(listed, 2)
    failed = {each: monarch(each, *args.split()) for each, args in FAILS.items()}
    assert {each: said.exit_code for each, said in failed.items()} == dict.fromkeys(FAILS, 1)
    quiet = [each for each, said in failed.items() if not (said.err or each == "status")]
    assert quiet == []
    misused = {each: monarch(each, *args.split()) for each, args in MISUSED.items()}
    assert {each: said.exit_code for each, said in misused.items()} == dict.fromkeys(MISUSED, 2)


def test_certificates_and_a_secret_exclude_each_other(monarch: Type) -> None:
    said = monarch("worker", "--listen", "tcp://127.0.0.1:0", "--ca", "a", "--secret-file", "b")
    assert said.exit_code == 2


def test_a_mistake_does_not_forget_the_job_that_was_set(monarch: Type) -> None:
    set_current_job("jobs.job")
    assert monarch("apply", "jobs.nowhere").exit_code == 1
    assert repr(load_current_job()) == "ProcessJob({'workers': 1})"


def test_a_worker_serves_until_a_client_shuts_it_down(home: Home) -> None:
    secret = {"MONARCH_SECRET": "not so long but long enough"}
    with home.worker(env=secret) as address:
        assert home.run(ATTACH, address, env=secret) == "['hello']\n"


def test_a_worker_says_on_which_port_it_listens_and_when_whom_it_has_refused(home: Home) -> None:
    worker = home.popen(
        ["-m", "monarch.tools", "worker", "--listen", "tcp://127.0.0.1:0", "--json"],
        {"MONARCH_SECRET": "long enough for a secret"},
    )
    assert worker.stderr is not None and worker.stdout is not None
    address = worker.stderr.readline().removeprefix("listening: tcp://").strip()
    told = json.loads(worker.stdout.readline())
    assert (told["address"], told["pid"]) == (f"tcp://{address}", worker.pid)
    host, _, port = address.partition(":")
    with socket.create_connection((host, int(port))) as stranger:
        stranger.sendall(b"GET / HTTP/1.0\r\n\r\n")
        when, said = worker.stderr.readline().split(" refused a connection from ")
    datetime.strptime(when, "%Y-%m-%d %H:%M:%S,%f")
    assert "does not speak TLS" in said
    worker.send_signal(signal.SIGINT)
    worker.communicate(timeout=60)


def test_a_job_is_applied_used_and_ended(home: Home) -> None:
    (home.folder / "jobs.py").write_text(JOBS)
    assert "workers" in home.monarch("apply", "jobs.job")
    first = home.run(USE)
    home.monarch("apply")
    assert home.run(USE) == first
    assert "workers" in home.monarch("kill")
    assert home.left() == []


def test_other_programs_are_told_in_json_what_was_applied_and_ended(home: Home) -> None:
    (home.folder / "jobs.py").write_text(JOBS)
    applied = json.loads(home.monarch("apply", "jobs.job", "--json").splitlines()[0])
    assert applied == {"job": "ProcessJob({'workers': 1})", "id": home.run(USE).strip()}
    assert json.loads(home.monarch("kill", "--json").splitlines()[0]) == applied
    home.wait_nothing_left()


def test_what_is_made_is_told_in_json(monarch: Type) -> None:
    assert len(json.loads(monarch("secret", "--json").out)["secret"]) >= 32
    assert json.loads(monarch("secret", "mine", "--json").out) == {"path": "mine"}
    made = json.loads(monarch("report", "--json", "--output", "r.tar.gz").out)
    assert (made["path"], made["bytes"]) == ("r.tar.gz", Path("r.tar.gz").stat().st_size)
    assert "versions.txt" in [file["name"] for file in made["files"]]
    for what in ("create", "use", "rm"):
        assert json.loads(monarch("context", what, "small", "--json").out) == {"context": "small"}


def test_contexts_keep_jobs_apart(monarch: Type) -> None:
    assert monarch("context", "ls").out == "No contexts.\n"
    Path(".monarch").mkdir(0o700)
    LocalJob().dump(".monarch/job_state.pkl")  # from before there was any context
    assert monarch("context", "ls").out == "* default\n"
    monarch("context", "use", "second")
    set_current_job("jobs.other")
    assert monarch("context", "ls").out == "  default\n* second\n"
    assert isinstance(job_load(".monarch/default/state.pkl"), LocalJob)
    ProcessJob({"others": 1}).dump(DEFAULT_JOB_PATH)
    assert isinstance(job_load(".monarch/second/state.pkl"), ProcessJob)
    monarch("context", "create", "third")
    monarch("context", "use", "default")
    assert isinstance(job_load(), LocalJob)
    assert monarch("context", "rm", "second").exit_code == 0
    assert monarch("context", "ls").out == "* default\n  third\n"
    monarch("context", "use", "third")
    monarch("context", "rm", "third")
    assert monarch("context", "ls").out == "* default\n"


@pytest.mark.parametrize("name", ["logs", "engine", "failures"])
def test_a_context_cannot_take_the_name_of_a_folder_beside_it(monarch: Type, name: str) -> None:
    said = monarch("context", "create", name)
    assert (said.exit_code, said.err) == (1, f"error: a context can't be called '{name}'\n")


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


def test_the_end_of_a_worker_on_ctrl_c_leaves_nothing(home: Home) -> None:
    worker = home.popen(
        ["-m", "monarch.tools", "worker", "--listen", f"ipc://{home.temporary}/w"], {}
    )
    assert worker.stderr is not None
    assert worker.stderr.readline().startswith("listening: ")
    worker.send_signal(signal.SIGINT)
    _, said = worker.communicate(timeout=60)
    assert worker.returncode == 130
    assert "Traceback" not in said


def test_a_worker_whose_agent_was_killed_says_so(home: Home) -> None:
    worker = home.popen(
        ["-m", "monarch.tools", "worker", "--listen", f"ipc://{home.temporary}/w"], {}
    )
    assert worker.stderr is not None
    assert worker.stderr.readline().startswith("listening: ")
    (agent,) = [
        pid for pid in home.processes() if pid != worker.pid and parent_of(pid) == worker.pid
    ]
    os.kill(agent, signal.SIGKILL)
    _, said = worker.communicate(timeout=60)
    assert worker.returncode == 1
    assert "error: " in said
    assert "signal 9" in said
    Path(home.temporary, "w").unlink(missing_ok=True)
