"""`monarch status`, `monarch doctor`, completion and `--json`: what a person, or a program, is told
of a job.
"""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from helpers.leaks import describe
from helpers.waiting import wait_until
from monarch.job import ProcessJob, job_load
from monarch.job.checkup import Finding, look, problems
from monarch.tools.completion import mesh_names

if TYPE_CHECKING:
    from helpers.jobs import Home

JOB = "from monarch.job import ProcessJob\njob = ProcessJob({'first': 1, 'second': 1})\n"


def test_status_shows_the_hosts_of_a_job_and_doctor_what_they_have(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home.folder / "cluster.py").write_text(JOB)
    home.monarch("apply", "cluster.job")
    saved = job_load(home.folder / ".monarch" / "job_state.pkl")
    assert isinstance(saved, ProcessJob)

    def told(*args: str, exit_code: int = 0) -> Any:
        said = home.monarch(*args, "--json", exit_code=exit_code)
        return json.loads(said[said.index("{") : said.rindex("}") + 1])

    found = told("status")
    assert found["runs"] and found["id"] == saved.apply_id and found["error"] == ""
    addresses = [worker.address for worker in saved._all_workers()]
    rows = [(row["mesh"], row["host"], row["address"], row["error"]) for row in found["hosts"]]
    assert rows == [("first", 0, addresses[0], ""), ("second", 0, addresses[1], "")]
    checked = told("doctor")
    assert [each["name"] for each in checked["hosts"]] == ["here", "first[0]", "second[0]"]
    assert checked["problems"] == [] and all(abs(each["skew"]) < 60 for each in checked["hosts"])
    monkeypatch.chdir(home.folder)
    assert mesh_names("f") == ["first"]  # what a shell completes
    assert "above 0, got -1" in home.monarch("status", "--timeout", "-1", exit_code=1)
    os.kill(saved._all_workers()[0].pid, signal.SIGKILL)
    broken = told("status", exit_code=1)
    assert broken["runs"] and "1 of 2 workers of this job have ended" in broken["error"]
    home.monarch("kill")
    home.wait_nothing_left()


SILENT = """
import os, threading
from monarch.job import ProcessJob

class Silent(ProcessJob):
    def _is_running(self):
        if "SILENT" in os.environ:  # as where a scheduler does not answer
            threading.Event().wait()
        return super()._is_running()

job = Silent({"first": 1})
"""


def test_status_has_a_limit_for_a_job_that_does_not_even_say_whether_it_runs(home: Home) -> None:
    (home.folder / "cluster.py").write_text(SILENT)
    home.monarch("apply", "cluster.job")
    said = home.monarch("status", "--timeout", "0.5", env={"SILENT": "1"}, exit_code=1)
    assert "do not answer, within 0.5 s" in said
    home.monarch("kill")


def complete(home: Home, typed: str, word: int) -> str:
    variables = {"_MONARCH_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(word)}
    return home.monarch(env=variables)


def test_doctor_names_a_worker_that_is_not_there_and_looks_at_the_others(home: Home) -> None:
    secret = home.folder / "secret"
    home.monarch("secret", str(secret))
    variables = {"MONARCH_SECRET_FILE": str(secret), "HYPERACTOR_MESH_ATTACH_CONFIG_TIMEOUT": "2s"}
    with home.worker(env=variables) as address:
        nobody = "tcp://127.0.0.1:9"
        said = home.monarch("doctor", "--json", address, nobody, env=variables, exit_code=1)
        found = json.loads(said[said.index("{") :])
        assert [each["name"] for each in found["hosts"]] == ["here", f"{address}[0]"]
        (problem,) = found["problems"]
        assert problem.startswith(nobody) and "nothing listens there" in problem


def test_what_would_make_a_program_fail_is_named() -> None:
    here = look()._replace(monarch="0.2.0", python="3.12.4", files=65536, gpus=8)
    other = here._replace(
        machine="node2",
        monarch="0.1.0",
        python="3.11.7",
        files=256,
        gpus=7,
        next_host="tcp://x:1: refused",
    )
    hosts = [Finding("a[0]", here, 0.0), Finding("a[1]", here, 0.01), Finding("b[0]", other, -3.0)]
    found = problems(here, hosts)
    wanted = [
        "pymonarch 0.1.0",
        "Python 3.11.7",
        "-3.0 s off",
        "256 files",
        "tcp://x:1: refused",
        "7 as to GPUs",
    ]
    assert len(found) == len(wanted)
    for text, line in zip(wanted, found, strict=True):
        assert text in line and line.count("b[0]") == 1
    assert problems(here, hosts[:2]) == []


def test_contexts_are_listed_for_programs_too(home: Home) -> None:
    home.monarch("context", "use", "small")
    assert "no job runs in context 'small'" in home.monarch("status", exit_code=1)
    assert json.loads(home.monarch("context", "ls", "--json")) == {
        "active": "small",
        "contexts": ["small"],
    }
    assert complete(home, "monarch context use s", 3).split() == ["small"]


@pytest.mark.slow
def test_a_job_that_is_bounced_has_new_workers_at_the_same_addresses_and_scales(home: Home) -> None:
    (home.folder / "cluster.py").write_text(JOB)
    home.monarch("apply", "cluster.job")

    def agents() -> set[str]:
        return {words for pid in home.processes() if "monarch agent" in (words := describe(pid))}

    # they take their names a moment after the worker serves
    wait_until(lambda: len(agents()) == 2, what="two agents")
    before = agents()
    assert "2 workers of ProcessJob" in home.monarch("bounce")
    wait_until(lambda: len(agents() - before) == 2, what="two others")
    assert not before & agents()
    assert (
        json.loads(home.monarch("scale", "first=2", "--json").splitlines()[0])["job"]
        == "ProcessJob({'first': 2, 'second': 1})"
    )
    assert '"workers": 3' in home.monarch("bounce", "--json")
    assert "no mesh 'replace_lost'" in home.monarch("scale", "replace_lost=2", exit_code=1)
    home.monarch("kill")
    assert "no job runs here" in home.monarch("bounce", exit_code=1)
    home.wait_nothing_left()
