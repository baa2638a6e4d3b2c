"""Names that ssh, a scheduler or a shell would take for something else are refused at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helpers.each import for_each
from monarch.job import ProcessJob, SlurmJob, SSHJob
from monarch.job.ray.job import RayJob
from monarch.job.skypilot import SkyPilotJob

JOBS: dict[str, Callable[..., Any]] = {
    "ssh": lambda mesh="m", **how: SSHJob(hosts={mesh: ["node7"]}, **how),
    "slurm": lambda mesh="m", **how: SlurmJob({mesh: 1}, **how),
    "skypilot": lambda mesh="m", **how: SkyPilotJob({mesh: 1}, **how),
    "process": lambda mesh="m", **how: ProcessJob({mesh: 1}, **how),
}
HAVE_AN_INTERPRETER = sorted(JOBS.keys() - {"process"})
NO_HOSTS = (
    "node7;touch${IFS}owned",
    "node7|sh",
    "node7&sh",
    "$(sh)",
    "`sh`",
    "me@$HOME",
    "a'b",
    'a"b',
    "a<b",
    "a>b",
    "(a)",
    "{a}",
    "a\x00b",
    "a\x1bb",
    "me@-oProxyCommand=sh",
    "ssh://-oProxyCommand=sh",
    "ssh://me@-oProxyCommand=sh",
)
HOSTS = (
    "node7",
    "me@node-7",
    "DOMAIN\\me@node7",
    "ssh://me@node7:22",
    "ssh://[::1]:22",
    "fe80::1%eth0",
)
NO_MESHES = ("-x", "--mesh", "a\nb", "a\x1b[2J", "a\u202eb", "_a", "a/b", "")
NO_INTERPRETERS = ("python\ntouch owned", "python\r", "--multi-prog", "-c", "a\x00b")


@for_each("host", NO_HOSTS)
def test_what_a_shell_on_the_way_would_run_is_no_host(host: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is no host: wanted what ssh takes"):
        SSHJob(hosts={"m": [host]})
    listed = tmp_path / "hosts"
    listed.write_text(f"{host}\n")
    with pytest.raises(ValueError, match="is no host"):
        SSHJob(hostfile=listed)


def test_hosts_may_be_all_that_ssh_takes() -> None:
    assert "ssh://me@node7:22" in repr(SSHJob(hosts={"m": HOSTS}))


@for_each("mesh", NO_MESHES)
@for_each("job", JOBS)
def test_a_mesh_has_no_name_of_an_option_or_of_several_lines(job: str, mesh: str) -> None:
    with pytest.raises(ValueError, match="can't be called"):
        JOBS[job](mesh)


@for_each("python", NO_INTERPRETERS)
@for_each("job", HAVE_AN_INTERPRETER)
def test_an_interpreter_is_one_line_and_no_option(job: str, python: str) -> None:
    with pytest.raises(ValueError, match="python_exe is the path of an interpreter"):
        JOBS[job](python_exe=python)


@for_each("env", ({"": "x"}, {"A=B": "x"}, {"A\0": "x"}, {"A": "x\0y"}))
@for_each("job", (RayJob, ProcessJob))
def test_a_variable_that_no_process_can_have_is_refused(
    job: Callable[..., Any], env: dict[str, str]
) -> None:
    with pytest.raises(ValueError, match="env: no variable can be"):
        job({"m": 1}, env=env)


@for_each("allocation", ("-x", "--help", "7;sh", "7 8", "", "$(sh)", "7\n8"))
def test_an_allocation_is_the_id_of_a_job(allocation: str) -> None:
    with pytest.raises(ValueError, match="allocation is the id of a Slurm job, or 'current'; got"):
        SlurmJob({"m": 1}, allocation=allocation)


@for_each("how", ({"job_name": "a\\b"}, {"log_dir": "a\\b"}))
def test_what_slurm_would_write_elsewhere_is_refused(how: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="Slurm writes to no path with a backslash"):
        SlurmJob({"m": 1}, **how)


@for_each("job", HAVE_AN_INTERPRETER)
def test_an_interpreter_may_be_below_the_home_directory_and_have_spaces(job: str) -> None:
    assert JOBS[job](python_exe="~/my venv/bin/python")._described.python_exe[0] == "~"
