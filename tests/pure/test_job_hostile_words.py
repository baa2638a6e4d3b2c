"""Words of users in what schedulers and shells are given: each arrives as it was written.

The scripts are run, by stand-ins that note what they are called with. What no such place can take
is refused: see `test_job_refusals`. On a real sshd and a real Slurm: `tests/procs`.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from helpers.each import for_each
from monarch.job import SlurmJob
from monarch.job.base.worker_spec import WorkerSpec
from monarch.job.ray.hosts import RayHost
from monarch.job.skypilot import SkyPilotJob
from monarch.job.slurm import job as slurm
from monarch.job.ssh import text as ssh_text
from monarch.job.worker_main import filled

WORDS = (
    "$(touch owned)",
    "`touch owned`",
    "a; touch owned",
    "a & touch owned #",
    'it\'s "quoted"',
    "$HOME ${HOME} ~ * ?",
    "--multi-prog -x",
    "100%j %t %%",
)
NOTING = (
    f"#!{sys.executable}\n"
    """import json, os, sys
with open(os.environ["NOTES"], "a") as notes:
    notes.write(json.dumps([sys.argv[1:], dict(os.environ)]) + "\\n")
"""
)


class Stage:
    """A folder with a hostile name, and programs that note how they are called.

    Attributes:
        folder: In which all is run.
        path: The value of PATH there.
    """

    def __init__(self, folder: Path, word: str) -> None:
        above = Path(tempfile.mkdtemp(dir=folder))
        self.folder = above / word
        self.folder.mkdir()
        tools = above / "tools"
        tools.mkdir()
        self.path = f"{tools}:/usr/bin:/bin"
        self.python = self.program(self.folder / word)
        self.program(tools / "srun")

    def program(self, path: Path) -> str:
        path.write_text(NOTING)
        path.chmod(0o700)
        return str(path)

    def run(self, script: str, **env: str) -> list[tuple[list[str], dict[str, str]]]:
        """How programs were called by a script of bash. Nothing was made by its words."""
        notes = self.folder.parent / "notes"
        env = {"PATH": self.path, "NOTES": str(notes), "HOME": "/elsewhere", **env}
        subprocess.run(
            ["bash"], input=script, text=True, cwd=self.folder, env=env, stderr=subprocess.PIPE
        )
        assert not list(self.folder.parent.rglob("owned"))
        return [tuple(json.loads(line)) for line in notes.read_text().splitlines()]


def _submit(submitted: list[str]) -> Callable[[str], str]:
    def submit(text: str) -> str:
        submitted.append(text)
        return "7"

    return submit


def options_of(script: str) -> list[str]:
    """The options of sbatch in a script; it quotes them as shells do."""
    lines = [line for line in script.splitlines() if line.startswith("#SBATCH ")]
    return [word for line in lines for word in shlex.split(line[8:], comments=True)]


@for_each("word", WORDS)
def test_slurm_gets_each_word_as_it_is(
    word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path, word)
    monkeypatch.chdir(stage.folder)
    submitted: list[str] = []
    monkeypatch.setattr(slurm, "submit", _submit(submitted))
    mesh = f"m {word}"
    job = SlurmJob(
        {mesh: 1}, stage.python, [f"--comment={word}"], job_name=word, partition=word, account=word,
        qos=word, mem=word, time_limit=word, gpus_per_node=word, srun_args=[f"--export={word}"],
    )  # fmt: skip
    job._apply_id = "0123456789"
    job._create(None)
    job._outlive_program()
    [script] = submitted
    options = options_of(script)
    for name in (
        "job-name",
        "partition",
        "account",
        "qos",
        "mem",
        "time",
        "gpus-per-node",
        "comment",
    ):
        assert f"--{name}={word}" in options, name
    [output] = [option for option in options if option.startswith("--output=")]
    assert output.replace("%%", "%").startswith(f"--output={stage.folder}/.monarch/")
    [(arguments, env)] = stage.run(script)
    assert f"--export={word}" in arguments
    assert env["MONARCH_SECRET_FILE"].startswith(f"{stage.folder}/.monarch/slurm/")
    [output] = [argument for argument in arguments if argument.startswith("--output=")]
    assert output.endswith(f"/m {word.replace('%', '%%')}_%t.log")
    assert arguments[arguments.index("-c") - 1] == stage.python
    # and what a worker makes of it, on its node
    monkeypatch.setenv("HOME", "/elsewhere")
    monkeypatch.setenv("MONARCH_ATTEMPT", "3")
    monkeypatch.setenv("SLURM_PROCID", "0")
    spec = filled(json.loads(arguments[-1]))
    assert (spec.mesh, spec.rank) == (mesh, "0")
    assert spec.folder == f"{stage.folder}/.monarch/slurm/0123456789/workers.3"


@for_each("word", WORDS)
def test_a_machine_that_ssh_reaches_gets_each_word_as_it_is(word: str, tmp_path: Path) -> None:
    stage = Stage(tmp_path, word)
    kept = stage.folder.parent / "kept"
    Path(ssh_text.of_user(str(kept), os.geteuid())).mkdir()
    mesh, folder = f"m {word}", f"{kept.parent}/worker.0"
    start = ssh_text.Start("job7", str(kept), folder, stage.python, [], 0.0, True, False)
    listen = f"ipc://{ssh_text.socket_in(folder)}"
    [(arguments, env)] = stage.run(ssh_text.worker(start, WorkerSpec(mesh, "0", listen)))
    assert arguments[0] == "-c" and env["MONARCH_JOB"] == "job7"
    spec = filled(json.loads(arguments[-1]))
    assert (spec.mesh, spec.listen) == (mesh, listen)
    assert not Path(folder).exists()


@for_each("word", WORDS)
def test_a_node_of_skypilot_gets_each_word_as_it_is(word: str, tmp_path: Path) -> None:
    stage = Stage(tmp_path, word)
    job = SkyPilotJob({f"m {word}": 1}, python_exe=stage.python)
    address = "10.0.0.1\n10.0.0.2 $(touch owned)"
    [(arguments, env)] = stage.run(job._script(), SKYPILOT_NODE_IPS=address)
    assert arguments[0] == "-c" and env["MONARCH_FIRST_NODE"] == "10.0.0.1"
    assert json.loads(arguments[-1])["listen"] == "tcp://:22222"


def test_an_interpreter_of_a_node_of_skypilot_may_be_in_its_home(tmp_path: Path) -> None:
    stage = Stage(tmp_path, "my venv")
    job = SkyPilotJob({"m": 1}, python_exe="~/my venv")
    [(arguments, _)] = stage.run(job._script(), HOME=str(stage.folder))
    assert arguments[0] == "-c"


WORKER = """
import json, os, sys
spec = json.loads(sys.argv[-1])
os.write(spec["report"], json.dumps([spec["mesh"], os.environ["WORD"]]).encode())
"""


@pytest.mark.processes("what stands for a worker")
@for_each("word", (*WORDS, "two\nlines\r\x1b[2J"))
def test_a_node_of_ray_gets_each_word_as_it_is(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    util = SimpleNamespace(get_node_ip_address=lambda: "127.0.0.1")
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(util=util))
    monkeypatch.setattr(
        "monarch.job.base.launch.worker_command",
        lambda spec: [sys.executable, "-c", WORKER, json.dumps(spec._asdict())],
    )
    host: Any = RayHost((f"m {word}", 0), {"WORD": word})
    assert json.loads(host.report()) == [f"m {word}", word]
    assert host.wait() == 0
    host._lifeline.close()
