"""What Slurm is told, and how its answers are read."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path

import pytest

from monarch.config._units import read_duration
from monarch.job import SlurmJob
from monarch.job.base.contract import IDLE_LIMIT
from monarch.job.slurm.script import NodeGroup, Resources, Script, Status, first_error, parse_status


def script(*groups: NodeGroup, client: str = "", **changed: object) -> Script:
    plain = Script(
        groups=groups,
        options=["--time=1:00:00"],
        first_options=["--job-name=two words"],
        folder="/home/me/my project/.monarch/slurm/1",
        logs="/home/me/logs/",
        setup=["module load cuda"],
        python="python",
        port=0,
        bind="",
        srun_args=["--container-image", "pytorch:24.10"],
        idle_limit=60.0,
        allocation="",
        step_name="monarch-1",
        client=client,
        batch={"MONARCH_BATCH_JOB": "1"},
    )
    return plain._replace(**changed)  # type: ignore[arg-type]


ALIKE = NodeGroup(
    {"a": 2, "b": 1},
    Resources(gpus_per_node=8, slurm_args=("--constraint=h100", "--mail-type", "END")),
)


def directives(text: str) -> list[str]:
    """The options, as sbatch reads them: it quotes as a shell does."""
    lines = [
        line.removeprefix("#SBATCH ") for line in text.splitlines() if line.startswith("#SBATCH")
    ]
    return [" ".join(shlex.split(line, comments=True)) for line in lines]


def steps(text: str) -> list[list[str]]:
    return [shlex.split(line)[:-1] for line in text.splitlines() if line.startswith("srun ")]


def test_the_options_of_a_user_come_last_and_whole() -> None:
    assert directives(script(ALIKE).render()) == [
        "--job-name=two words",
        "--time=1:00:00",
        "--nodes=3",
        "--ntasks-per-node=1",
        "--gpus-per-node=8",
        "--exclusive",
        "--constraint=h100",
        "--mail-type=END",
    ]


@pytest.mark.parametrize(
    "option",
    ["--comment=nvcr.io#nvidia/x", '--comment=say "hi" \\ it\'s', "--comment=#", "-J my#job"],
)
def test_no_character_of_an_option_is_lost(option: str) -> None:
    assert option in directives(
        script(NodeGroup({"a": 1}, Resources(slurm_args=(option,)))).render()
    )


@pytest.mark.parametrize("seconds", [0.0, 0.25, 60.0, 1234567.0, 14 * 24 * 3600.0])
def test_workers_understand_any_idle_limit(seconds: float) -> None:
    (line,) = [
        line
        for line in script(ALIKE, idle_limit=seconds).render().splitlines()
        if IDLE_LIMIT in line
    ]
    assert read_duration(line.partition("=")[2]) == round(seconds * 1e9)


def test_each_mesh_is_a_step_of_its_own_with_one_worker_on_each_node() -> None:
    first, second = steps(script(ALIKE).render())
    assert "--relative=0" in first and "--nodes=2" in first and "--ntasks-per-node=1" in first
    assert "--relative=2" in second and "--nodes=1" in second
    assert "--container-image=pytorch:24.10" in first
    told = json.loads(first[-1])
    assert (told["mesh"], told["rank"], told["listen"]) == ("a", "$SLURM_PROCID", "tcp://:0")
    assert told["folder"] == "/home/me/my project/.monarch/slurm/1/workers.$MONARCH_ATTEMPT"


def test_meshes_with_other_resources_make_a_heterogeneous_job() -> None:
    text = script(
        NodeGroup({"a": 1}, Resources()), NodeGroup({"b": 2}, Resources("cpu", exclusive=False))
    ).render()
    assert "hetjob" in directives(text)
    assert directives(text)[-3:] == ["--nodes=2", "--ntasks-per-node=1", "--partition=cpu"]
    assert ["--het-group=0" in steps(text)[0], "--het-group=1" in steps(text)[1]] == [True, True]


def test_a_job_that_was_ended_during_its_setup_starts_no_workers(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    text = script(
        ALIKE,
        folder=str(folder),
        setup=[f"rmdir {folder}", f"srun() {{ touch {tmp_path}/started; }}"],
    ).render()
    folder.mkdir()
    done = subprocess.run(["bash"], input=text, text=True, check=False)
    assert done.returncode == 1
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("client", ["", "python train.py --name 'a b'"])
def test_bash_understands_the_script(client: str) -> None:
    subprocess.run(
        ["bash", "-n"], input=script(ALIKE, client=client).render(), text=True, check=True
    )


ANSWER = (
    "JobId=7 JobName=x UserId=me(1) JobState={} Reason={} Restarts={} StartTime={} NodeList=n0"
    " NumNodes={}"
)
PENDING = ANSWER.format("PENDING", "Priority", 0, "2026-03-01T10:00:00", "2-2")
RUNNING = ANSWER.format("RUNNING", "None", 2, "2026-03-01T09:00:00", 1)


def test_a_job_waits_as_long_as_one_of_its_components_does() -> None:
    status = parse_status(f"{RUNNING}\n{PENDING}\n")
    assert status == Status("PENDING", "Priority", "2026-03-01 10:00:00", 3, 2)
    assert status.describe() == "PENDING (Priority), estimated start 2026-03-01 10:00:00"


@pytest.mark.parametrize(
    ("state", "lives"),
    [
        ("RUNNING", True),
        ("CONFIGURING", True),
        ("NODE_FAIL", False),
        ("CANCELLED", False),
        ("COMPLETED", False),
        ("PREEMPTED", False),
    ],
)
def test_a_job_lives_until_slurm_says_that_it_has_ended(state: str, lives: bool) -> None:
    assert parse_status(f"{RUNNING}\n{RUNNING}".replace("RUNNING", state, 1)).lives == lives


def test_an_answer_without_a_job_is_not_taken_for_one() -> None:
    with pytest.raises(ValueError, match="nothing"):
        parse_status("\n")


def test_of_what_a_command_says_the_error_is_shown() -> None:
    said = (
        "sbatch: warning: can't run 1 processes\nsbatch: error: Batch job submission failed:"
        " Invalid qos\nsbatch: more\n"
    )
    assert first_error(said) == "Batch job submission failed: Invalid qos"
    assert first_error("") == "it said nothing"


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"slurm_args": "--time=1"}, TypeError, "slurm_args is a list"),
        ({"bind_to": "node7"}, ValueError, "node7"),
        ({"attach_to": "tcp://login:1"}, ValueError, "monarch_port"),
        ({"idle_limit": -1.0}, ValueError, "idle_limit"),
        ({"idle_limit": float("nan")}, ValueError, "idle_limit"),
        ({"job_name": "a\nrm -rf b"}, ValueError, "one line"),
        ({"slurm_args": ["--comment=a\nrm -rf b"]}, ValueError, "one line"),
    ],
)
def test_a_job_that_makes_no_sense_is_refused(
    arguments: dict[str, object], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        SlurmJob({"a": 1}, **arguments)  # type: ignore[arg-type]


def test_a_mesh_that_makes_no_sense_is_refused() -> None:
    job = SlurmJob({})
    job.add_mesh("a", 1)
    with pytest.raises(ValueError, match="there is one"):
        job.add_mesh("a", 1)
    with pytest.raises(TypeError, match="gpus"):
        job.add_mesh("b", 1, gpus=8)
    with pytest.raises(ValueError, match="at least 1"):
        job.add_mesh("c", 0)
    with pytest.raises(ValueError, match="one line"):
        job.add_mesh("d", 1, slurm_args=["--comment=a\n"])
