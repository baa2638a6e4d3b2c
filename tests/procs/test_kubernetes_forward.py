"""The way into a cluster, with a kubectl that says what the real one says, and forwards nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from helpers.waiting import wait_until
from monarch.errors import JobError
from monarch.job.kubernetes import forward as kubernetes_forward
from monarch.job.kubernetes.config import KubeConfig
from monarch.job.kubernetes.forward import Forward

KUBECTL = """#!/bin/sh
echo "Forwarding from 127.0.0.1:4000 -> 26600"
[ ! -e once ] || { rm once; exit 1; }
exec cat fifo
"""


class Config(KubeConfig):
    """Of a program alone, and fails where it is told to."""

    def __init__(self, *errors: Exception | None) -> None:
        super().__init__()
        self.errors = list(errors)

    def as_kubeconfig(self) -> dict[str, Any]:
        if self.errors and (error := self.errors.pop(0)) is not None:
            raise error
        return {}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with kubectl in it, and where folders with credentials are made."""
    (tmp_path / "kubectl").write_text(KUBECTL)
    (tmp_path / "kubectl").chmod(0o700)
    os.mkfifo(tmp_path / "fifo")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def credentials(folder: Path) -> list[Path]:
    return list(folder.glob("monarch_forward_*"))


def test_credentials_that_can_not_be_had_are_an_error_at_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubernetes_forward, "_LIMIT", 3600.0)
    with pytest.raises(JobError, match="pod 'p' can't be started: the token is gone"):
        Forward(Config(JobError("the token is gone")), "tests", "p", 26600)
    assert credentials(folder) == []


def test_a_forward_starts_again_once_there_are_credentials_again(folder: Path) -> None:
    (folder / "once").touch()
    config = Config(None, JobError("token not found"))
    forward = Forward(config, "tests", "p", 26600)
    assert forward.address == "tcp://127.0.0.1:4000"
    first = forward._shell
    wait_until(lambda: not config.errors and forward._shell is not first, what="another kubectl")
    forward.close()
    wait_until(lambda: credentials(folder) == [], what="the end of the folder with credentials")


def test_ctrl_c_leaves_no_credentials_behind(folder: Path) -> None:
    program = """
import sys
from test_kubernetes_forward import Config, Forward
Forward(Config(), "tests", "p", 26600)
print(flush=True)
sys.stdin.read()
"""
    paths = [
        str(Path(__file__).parent),
        str(Path(__file__).parents[1]),
        os.environ.get("PYTHONPATH", ""),
    ]
    client = subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": ":".join(paths)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert client.stdout is not None and client.stderr is not None
    assert client.stdout.readline() == b"\n", client.stderr.read()
    assert len(credentials(folder)) == 1
    os.killpg(client.pid, signal.SIGINT)  # as a terminal does
    client.communicate(timeout=60)
    wait_until(lambda: credentials(folder) == [], what="the end of the folder with credentials")
