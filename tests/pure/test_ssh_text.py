"""What `SSHJob` reads and writes as text."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from monarch.errors import JobError
from monarch.job.base.waiting import Waiting
from monarch.job.base.worker_spec import WorkerSpec
from monarch.job.ssh import connection as ssh_connection
from monarch.job.ssh.connection import SshCommand, hear
from monarch.job.ssh.text import (
    Start,
    check_hosts,
    ending,
    folder_of,
    in_sh,
    keeper,
    of_user,
    parse_hostfile,
    run_python,
    socket_in,
    why,
    worker,
)

CHANGED = """@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
Host key for a has changed and you have requested strict checking.
Host key verification failed.
"""


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            CHANGED,
            (
                "Host key verification failed. (its host key has changed. If you know why:"
                " `ssh-keygen -R a`)"
            ),
        ),
        (
            "Traceback ...\nModuleNotFoundError: No module named 'monarch'\n",
            "same release of pymonarch for py there",
        ),
        ("me@a: Permission denied (publickey).\n", "no key was accepted"),
        ("sh: 8: /bin/py: Permission denied\n", "is py its interpreter?"),
        (
            "ssh: connect to host a port 22: Connection refused\r\n",
            "Connection refused (is it up, and does `ssh a` work",
        ),
        ("Warning: Permanently added 'a'\nboom\nConnection closed by remote host\n", "boom"),
        ("", "status 7"),
    ],
)
def test_the_last_words_of_ssh_come_with_what_to_do(said: str, told: str) -> None:
    line = why(said, "a", "py", "status 7")
    assert told in line
    assert "\n" not in line and "\r" not in line


def test_where_ssh_says_nothing_the_login_shell_may_be_what_is_slow() -> None:
    assert "does `ssh a true` end soon" in why("", "a", "py")


def test_a_hostfile_has_a_host_on_each_line_and_words_without_effect() -> None:
    assert parse_hostfile("# ours\na slots=8 # fast\n\n  me@b\n") == (["a", "me@b"], ["slots=8"])


@pytest.mark.parametrize(
    ("hosts", "error"), [("node7", TypeError), ([1], TypeError), ([], ValueError)]
)
def test_hosts_are_a_list_of_names(hosts: list[str], error: type[Exception]) -> None:
    with pytest.raises(error, match="'m'"):
        check_hosts("m", hosts)


@pytest.mark.parametrize("host", ["-oProxyCommand=evil", "", "a b", "a\nb"])
def test_what_ssh_would_take_for_something_else_is_no_host(host: str) -> None:
    with pytest.raises(ValueError, match="is no host"):
        check_hosts("m", [host])


def test_code_reaches_the_interpreter_as_it_is_through_any_shell() -> None:
    code = """import sys; print('a "b" $HOME `c`' + "'", sys.argv[1:])"""
    command = in_sh(run_python("python3", ["-c", code, '{"x": "$y"}']))
    said = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True).stdout
    assert said == """a "b" $HOME `c`' ['{"x": "$y"}']\n"""


def test_a_worker_that_is_started_after_the_end_of_its_job_runs_nothing(tmp_path: Path) -> None:
    kept, workers, ran = tmp_path / "kept", str(tmp_path / "worker"), tmp_path / "ran"
    folder = folder_of(workers, 0)
    start = Start(
        "job7",
        str(kept),
        folder,
        "false",
        [f"tr '\\0' '\\n' </proc/$$/environ >{ran}"],
        0.0,
        False,
        False,
    )
    command = ["sh", "-c", worker(start, WorkerSpec("m", "0", f"ipc://{socket_in(folder)}"))]
    Path(of_user(str(kept), os.geteuid())).mkdir()
    subprocess.run(command, stdin=subprocess.DEVNULL, check=False)
    assert "MONARCH_JOB=job7" in ran.read_text().splitlines(), (
        "its sh is one of the processes of the job"
    )
    ran.unlink()
    assert Path(folder).is_dir(), "it has failed: another user could make its folder again"
    subprocess.run(["sh", "-c", ending("job7", str(kept), workers, 2.0, 10.0)], check=True)
    subprocess.run(command, stdin=subprocess.DEVNULL, check=False)
    assert not ran.exists() and not Path(folder).exists()


@pytest.mark.parametrize("detached", [False, True])
def test_a_worker_that_ends_takes_nothing_of_one_that_starts(
    tmp_path: Path, detached: bool
) -> None:
    kept, workers, python, pause = (
        tmp_path / name for name in ("kept", "worker", "python", "pause")
    )
    Path(of_user(str(kept), os.geteuid())).mkdir()
    os.mkfifo(pause)
    folders = [folder_of(str(workers), number) for number in range(2)]
    python.write_text(f"#!/bin/sh\n: >{socket_in(folders[1])}\n")
    python.chmod(0o700)
    ends = Start("job7", str(kept), folders[0], "true", (), 0.0, detached, False)
    starts = ends._replace(folder=folders[1], python=str(python), setup=[f"cat {pause}"])
    old, new = (
        ["sh", "-c", worker(start, WorkerSpec("m", "0", f"ipc://{socket_in(start.folder)}"))]
        for start in (ends, starts)
    )
    with subprocess.Popen(new, stdin=subprocess.DEVNULL) as started:
        with pause.open("w"):  # once it is in the middle of its setup
            subprocess.run(old, stdin=subprocess.DEVNULL, check=True)
    assert started.returncode == 0, "it could make its socket"
    assert not any(Path(folder).exists() for folder in folders)


def test_no_other_user_can_make_the_folder_of_a_worker_that_failed(tmp_path: Path) -> None:
    kept, workers = tmp_path / "kept", str(tmp_path / "worker")
    folder = Path(folder_of(workers, 0))
    socket = socket_in(str(folder))
    # its setup leaves something where the socket would be
    start = Start("job7", str(kept), str(folder), "false", [f": >{socket}"], 0.0, False, False)
    command = ["sh", "-c", worker(start, WorkerSpec("m", "0", f"ipc://{socket}"))]
    keep = ["sh", "-c", keeper(str(kept), workers)]
    with subprocess.Popen(keep, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as connection:
        assert connection.stdout is not None and connection.stdout.readline() == b"\n"
        assert subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode == 1
        assert list(folder.iterdir()) == [], "empty, and there as long as we are connected"
    assert connection.returncode == 0
    assert not folder.exists(), "it goes with the connection"


def test_a_worker_that_fails_after_its_connection_leaves_nothing(tmp_path: Path) -> None:
    kept, folder = tmp_path / "kept", tmp_path / "worker.0"
    own = Path(of_user(str(kept), os.geteuid()))
    own.mkdir()
    start = Start("job7", str(kept), str(folder), "false", [f"rmdir {own}"], 0.0, False, False)
    command = worker(start, WorkerSpec("m", "0", f"ipc://{socket_in(str(folder))}"))
    subprocess.run(["sh", "-c", command], stdin=subprocess.DEVNULL, check=False)
    assert not folder.exists()


def test_what_is_waited_for_is_not_written_anew_for_each_that_speaks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh_connection, "_LOOK", 3600.0)
    shown: list[str] = []
    waiting = Waiting("hosts")
    monkeypatch.setattr(waiting, "show", lambda state, rows: shown.append(state))
    sessions = [
        SshCommand(str(number), ["cat"], tmp_path / "log", os.environ) for number in range(10)
    ]
    sessions[0].write(b"0\n")

    def speak(line: str) -> str:
        if int(line) + 1 < len(sessions):  # the next one, so that each wakes `hear`
            sessions[int(line) + 1].write(f"{int(line) + 1}\n".encode())
        return line

    try:
        assert hear(sessions, speak, "python", time.monotonic() + 60, waiting, "speak") == [
            *map(str, range(10))
        ]
    finally:
        for session in sessions:
            session.wait(60)
    assert len(shown) == 1 and shown[0].startswith("0 of 10 speak; waiting for '0', '1', ")


def test_the_interpreter_may_be_in_the_home_directory() -> None:
    assert run_python("~/my venv/bin/python", ["-V"]) == "~/'my venv/bin/python' -V"


def test_a_configuration_of_ssh_that_does_not_end_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ssh").write_text("#!/bin/sh\nexec sleep 1000\n")
    (tmp_path / "ssh").chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(ssh_connection, "_CONFIGURED", 0.1)
    with pytest.raises(JobError, match="host 'a': `ssh -G a`, .* has not ended within 0.1 s"):
        ssh_connection.hostname_of("a", [])
