"""The text sent to Slurm, and the parsing of its answers. Pure: nothing is run here.

Answers are read from the text of ``scontrol -o show job``, which has not changed in years, and
needs no accounting. The JSON of Slurm's commands differs from release to release.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ..base.contract import IDLE_LIMIT, SECRET_FILE, WARNS, worker_command
from ..base.worker_spec import KILLED, WorkerSpec

PENDING = (
    "PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD",
    "SPECIAL_EXIT",
)  # fmt: skip
LIVE = (*PENDING, "RUNNING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING", "STAGE_OUT")
COMPLETING = "COMPLETING"
WARNED = "warned"
"""File in the folder of a job: Slurm has sent SIGTERM to the batch script, or to workers.

Its suffix is the attempt.
"""

ATTEMPT = "MONARCH_ATTEMPT"
"""Environment variable of workers: how often Slurm has requeued their job."""

_FIELD = re.compile(r"(?<!\S)(JobState|Reason|StartTime|NodeList|NumNodes|Restarts|StdErr)=(\S*)")


class Resources(NamedTuple):
    """The resources of each node of a mesh. None, or empty, stands for Slurm's default.

    Attributes:
        partition: Where to queue.
        gpus_per_node: GPUs of a node.
        cpus_per_task: CPUs of a task.
        ntasks_per_node: Tasks for which a node has CPUs; a worker can use all of them.
        mem: Memory of a node, such as ``"64G"``.
        exclusive: Whether no other job may use the nodes.
        slurm_args: Further options of sbatch.
    """

    partition: str | None = None
    gpus_per_node: int | str | None = None
    cpus_per_task: int | None = None
    ntasks_per_node: int = 1
    mem: str | None = None
    exclusive: bool = True
    slurm_args: tuple[str, ...] = ()

    def options(self, nodes: int) -> list[str]:
        """As options of sbatch; those of the user come last, as the last one counts."""
        values: list[tuple[str, object]] = [
            ("nodes", nodes),
            ("ntasks-per-node", self.ntasks_per_node),
            ("gpus-per-node", self.gpus_per_node),
            ("cpus-per-task", self.cpus_per_task),
            ("mem", self.mem),
            ("partition", self.partition),
        ]
        given = [f"--{name}={value}" for name, value in values if value is not None]
        return [*given, *(["--exclusive"] if self.exclusive else []), *_joined(self.slurm_args)]


class SlurmDescription(NamedTuple):
    """The user's description, beside the meshes.

    Jobs with equal descriptions can take each other's place.
    """

    python_exe: str
    srun_args: tuple[str, ...]
    monarch_port: int
    job_name: str
    time_limit: str | None
    log_dir: str | None
    account: str | None
    qos: str | None
    out_of_cluster: bool
    attach_to: str | None
    bind_to: str | None
    setup: tuple[str, ...]
    idle_limit: float
    allocation: str | None


class NodeGroup(NamedTuple):
    """Meshes on nodes that are alike: all of a job, or one component of a heterogeneous job."""

    meshes: Mapping[str, int]
    resources: Resources


class Script(NamedTuple):
    """The batch script of a job.

    Attributes:
        groups: The meshes. More than one make a heterogeneous job.
        options: Further options of sbatch, for all groups.
        first_options: Those that only the first group may have.
        folder: The folder of the job.
        logs: Prefix of the paths of the output files.
        setup: Lines of bash that are run first, on the first node.
        python: The interpreter of workers.
        port: Where they listen, 0 for any free port.
        bind: As in `WorkerSpec`.
        srun_args: Further options of srun.
        idle_limit: In seconds, see `worker_idle_limit`; 0 is none.
        allocation: The running job that provides the nodes; empty to submit one.
        step_name: What Slurm calls the workers.
        client: Command that runs as part of the job, which ends with it; empty for none.
        batch: Environment variables for that.
    """

    groups: Sequence[NodeGroup]
    options: Sequence[str]
    first_options: Sequence[str]
    folder: str
    logs: str
    setup: Sequence[str]
    python: str
    port: int
    bind: str
    srun_args: Sequence[str]
    idle_limit: float
    allocation: str
    step_name: str
    client: str
    batch: Mapping[str, str]

    def render(self) -> str:
        """Return the script.

        Without a client it ends with the last worker, and with it the allocation.
        """
        quote, folder = shlex.quote, shlex.quote(self.folder)
        lines = ["#!/bin/bash"]
        for index, group in enumerate(self.groups):
            lines += (
                ["#SBATCH hetjob"]
                if index
                else [f"#SBATCH {option}" for option in map(quoted, self.first_options)]
            )
            nodes = sum(group.meshes.values())
            lines += [
                f"#SBATCH {quoted(option)}"
                for option in (*self.options, *group.resources.options(nodes))
            ]
        lines += [
            *self.setup,
            f"[ -d {folder} ] || exit 1  # the job was ended meanwhile",
            f"export {SECRET_FILE}={folder}/secret",
            f"export {IDLE_LIMIT}={self.idle_limit:f}s",
            f"export {ATTEMPT}=${{SLURM_RESTART_COUNT:-0}}",
            f"export {WARNS}=1",
            "unset MONARCH_SECRET  # it would win",
            "workers=()",
        ]
        for index, group in enumerate(self.groups):
            first = 0
            for mesh, size in group.meshes.items():
                where = f"--het-group={index}" if len(self.groups) > 1 else f"--relative={first}"
                lines += [f"{self._srun(mesh, size, where)} &", "workers+=($!)"]
                first += size
        # a job that is being ended by its program passes on no warning; network file systems read
        # folders anew
        lines += [
            # a new file in a folder of this user's; another user may have put links there
            f"mark() {{ [ -O {folder} ] && [ ! -L {folder} ] && (set -C; echo $2 > {folder}/$1); }}",
            f"warned() {{ ls {folder} | grep -qx {KILLED} || mark {WARNED}.${ATTEMPT}; }}",
            "trap warned TERM",
        ]
        if self.client:
            lines += [
                (
                    "export"
                    f" {' '.join(f'{name}={quote(value)}' for name, value in self.batch.items())}"
                ),
                f"unset {WARNS}",
                f"{self.client} &",
                "client=$!",
                f"(until [ -e {folder}/{WARNED}.${ATTEMPT} ]; do sleep 1; done; kill -TERM $client) &",
                "warner=$!",
                *_wait("$client"),
                "kill $warner 2>/dev/null",
                'kill "${workers[@]}"',
                'wait "${workers[@]}"',
            ]
        else:
            lines += ['for worker in "${workers[@]}"; do', *_wait("$worker"), "done"]
        lines += [f"mark ended.${ATTEMPT} $status", "exit $status"]
        return "\n".join(lines) + "\n"

    def _srun(self, mesh: str, size: int, where: str) -> str:
        spec = WorkerSpec(
            mesh, "$SLURM_PROCID", f"tcp://:{self.port}", "$SLURM_LAUNCH_NODE_IPADDR", self.bind,
            f"{self.folder}/workers.${ATTEMPT}", machine="$SLURMD_NODENAME",
            warning=f"{self.folder}/{WARNED}.${ATTEMPT}",
        )  # fmt: skip
        options = [
            *([f"--jobid={self.allocation}"] if self.allocation else []),
            f"--job-name={self.step_name}",
            where,
            f"--nodes={size}",
            f"--ntasks={size}",
            "--ntasks-per-node=1",
            "--overlap",  # other steps, as srun of the user, are not kept waiting
            "--cpu-bind=none",  # all CPUs of the node, not those of one task
            "--no-kill",  # when a node is lost, the others go on; and when a worker ends:
            "--wait=0",
            "--kill-on-bad-exit=0",
            "--input=none",
            f"--output={pattern(self.logs, mesh)}_%t.log",
            *_joined(self.srun_args),
        ]
        return shlex.join(["srun", *options, *worker_command(spec, [self.python])])


class Status(NamedTuple):
    """Slurm's status of a job.

    Attributes:
        state: As Slurm calls it; of a heterogeneous job, that of the component that is the furthest
            from running.
        reason: Why it does not run.
        start: When it will, as far as Slurm knows; empty if it does not.
        nodes: Of all components.
        restarts: How often it was requeued.
    """

    state: str
    reason: str
    start: str
    nodes: int
    restarts: int

    @property
    def lives(self) -> bool:
        """Check whether it runs, or will."""
        return self.state in LIVE

    def describe(self) -> str:
        """Explain why nothing runs yet, and when it will."""
        why = f" ({self.reason})" if self.reason and self.reason != "None" else ""
        start = f", estimated start {self.start}" if self.start and self.state in PENDING else ""
        return f"{self.state}{why}{start}"


def parse_status(text: str) -> Status:
    """The answer of ``scontrol -o show job``: a line for each component of a job.

    Raises:
        ValueError: It is no such answer.
    """
    jobs = [dict(_FIELD.findall(line)) for line in text.splitlines() if "JobState=" in line]
    if not jobs:
        raise ValueError(f"Slurm tells nothing of the job: {text.strip()!r}")
    worst = max(jobs, key=lambda job: (job["JobState"] not in LIVE, job["JobState"] in PENDING))
    start = worst.get("StartTime", "")
    return Status(
        worst["JobState"],
        worst.get("Reason", ""),
        start.replace("T", " ") if start[:1].isdigit() else "",
        sum(int(job.get("NumNodes", "0").partition("-")[0]) for job in jobs),
        int(jobs[0].get("Restarts", 0)),
    )


def pattern(prefix: str, name: str) -> str:
    """A path as Slurm takes it for output.

    Args:
        prefix: How the path begins; after the last slash it is a pattern already, as ``slurm_%j_``.
        name: Of a user, for a file.

    Raises:
        ValueError: Slurm would leave a backslash out.
    """
    if "\\" in prefix + name:
        raise ValueError(f"Slurm writes to no path with a backslash, got {prefix + name!r}")
    folder, slash, begin = prefix.rpartition("/")
    literal = name.replace("/", "_").replace("%", "%%")
    return f"{folder.replace('%', '%%')}{slash}{begin}{literal}"


def quoted(option: str) -> str:
    """Quote a line of a script as sbatch reads it.

    Unless quoted, a space ends a word, ``#`` the line, and quotes are lost.

    Raises:
        ValueError: It has several lines, of which bash would run the second.
    """
    parts = re.fullmatch(r"(-\w+ )?(.*)", option)  # a flag of one letter, and its value
    if parts is None:
        raise ValueError(f"an option of sbatch is one line, got {option!r}")
    return (parts[1] or "") + '"' + re.sub(r'["\\]', r"\\\g<0>", parts[2]) + '"'


def first_error(text: str) -> str:
    """Return the first line with an error of a Slurm command, without the command's name."""
    lines = [
        re.sub(r"^(sbatch|srun|scontrol|scancel|squeue): ", "", line)
        for line in text.splitlines()
        if line.strip()
    ]
    errors = [line for line in lines if "error" in line or "failure" in line or "fatal" in line]
    return re.sub(r"^(error|fatal): ", "", (errors or lines or ["it said nothing"])[0]).strip()


def _wait(process: str) -> list[str]:
    """Wait for the end of a process.

    A signal that is trapped ends bash's own wait earlier; the last one tells the status.
    """
    return [
        f"while kill -0 {process} 2>/dev/null; do wait {process}; done",
        f"wait {process}; status=$?",
    ]


def _joined(arguments: Iterable[str]) -> list[str]:
    """Options with their values: ``["--mail-type", "END"]`` is one option."""
    joined: list[str] = []
    for argument in arguments:
        if argument.startswith("-") or not joined:
            joined.append(argument)
        else:
            joined[-1] += f" {argument}" if not joined[-1].startswith("--") else f"={argument}"
    return joined
