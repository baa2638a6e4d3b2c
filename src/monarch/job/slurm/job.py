"""`SlurmJob`: workers on the nodes of a Slurm allocation.

One batch script starts a step of workers for each mesh (see `script`). Each worker takes a
free port and leaves its address in the folder of the job, below the working directory, which the
nodes must share with the client. The secret is in that folder, too, for its user alone.

What ends the workers: `kill`; the end of the allocation; `idle_limit` seconds without a client,
also if that was killed. What ends the wait for them: all have reported; the job has ended, or its
script; `job_start_timeout`; ten minutes in which Slurm does not answer.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ... import _ours, actor
from ...errors import JobError
from ...trust import read_secret_file
from ..base import contract, processes
from ..base.cache import CacheFile
from ..base.trait import BATCH, BATCH_FILE, JobTrait, in_batch
from ..base.worker_spec import WorkerReport
from ..local import BatchJob
from . import script as slurm_script
from .allocation import check_allocation, find_allocation, run_here
from .commands import NOT_FOUND, WatchedJob, ask, cancel, run, steps_of, submit
from .parts import SlurmPart, attempt_here, holders, reported
from .wait import wait_for_workers
from .watch import WarningWatch

logger = logging.getLogger("monarch.job")

_SCRIPT = "job.sh"  # for people: Slurm gets the text


class SlurmJob(contract.WorkersJob):
    """Hosts that are nodes of a Slurm allocation, with one worker each.

    `state` submits the job, waits for its nodes, and shows why it does while they are pending. The
    job outlives the program, and the next run of it finds the same workers. With
    ``cached_path=None`` it ends with the program.

    Args:
        meshes: Name to number of nodes. `add_mesh` adds others, with resources of their own.
        python_exe: The interpreter of workers; by default that of this program, which nodes must
            find at the same path. ``~/`` is this user's home directory.
        slurm_args: Further options of sbatch, such as ``["--constraint=h100"]``; the last one of a
            kind counts.
        monarch_port: TCP port of workers; 0 is any free one.
        job_name: Name of the job.
        ntasks_per_node: Tasks for which each node has CPUs. There is one worker on each.
        time_limit: Limit of the job, as ``"2:00:00"``.
        partition: Where to queue.
        log_dir: Folder for the output of Slurm and of workers; by default that of the job, below
            ``.monarch/logs``.
        exclusive: Whether no other job may use the nodes.
        gpus_per_node: GPUs of each node.
        cpus_per_task: CPUs of each task.
        mem: Memory of each node, such as ``"64G"``.
        job_start_timeout: Seconds within which all workers must run, else the job is cancelled;
            None waits for ever.
        account: To charge.
        qos: Quality of service.
        out_of_cluster: Whether this machine reaches only the first node, through which all traffic
            passes then.
        attach_to: Address at which this machine reaches the first worker, if not the worker's own;
            needs `monarch_port`.
        bind_to: IP address on which workers listen, if not the one by which nodes know each other.
        srun_args: Further options of the steps of workers:
            ``["--container-image=nvcr.io#nvidia/pytorch:24.10-py3"]``.
        setup: Lines of bash to run before the workers start: ``["module load cuda"]``.
        idle_limit: Seconds without a client after which workers end, and with them the job; 0 is no
            limit.
        allocation: A running job that provides the nodes: its id, or ``"current"`` for the one in
            which this program runs; by default a new job is submitted.

    Raises:
        TypeError: A number of nodes or a list of options has the wrong type.
        ValueError: A number is below 1, a name or an address is not usable, or an option of sbatch
            has several lines.
    """

    _LIVE = (*contract.WorkersJob._LIVE, "_on_warning", "_watch")
    _on_warning: Callable[[], object] | None = None
    _watch: WarningWatch | None = None

    def __init__(
        self,
        meshes: Mapping[str, int],
        python_exe: str | None = None,
        slurm_args: Sequence[str] = (),
        monarch_port: int = 0,
        job_name: str = "monarch_job",
        ntasks_per_node: int = 1,
        time_limit: str | None = None,
        partition: str | None = None,
        log_dir: str | None = None,
        exclusive: bool = True,
        gpus_per_node: int | str | None = None,
        cpus_per_task: int | None = None,
        mem: str | None = None,
        job_start_timeout: float | None = None,
        account: str | None = None,
        qos: str | None = None,
        out_of_cluster: bool = False,
        attach_to: str | None = None,
        bind_to: str | None = None,
        *,
        srun_args: Sequence[str] = (),
        setup: Sequence[str] = (),
        idle_limit: float = 3600.0,
        allocation: str | int | None = None,
    ) -> None:
        if meshes:
            super().__init__(meshes)
        else:
            self._meshes = {}
        if bind_to is not None:
            ipaddress.ip_address(bind_to)  # a ValueError that names it
        if attach_to is not None and not monarch_port:
            raise ValueError(
                f"attach_to={attach_to!r} needs a monarch_port: with any free port it could not be"
                " known"
            )
        self._described = slurm_script.SlurmDescription(
            contract.check_python(python_exe or sys.executable), contract.check_strings("srun_args", srun_args),
            monarch_port, job_name, time_limit, log_dir, account, qos,
            out_of_cluster or attach_to is not None, attach_to, bind_to,
            contract.check_strings("setup", setup), contract.check_idle_limit(idle_limit),
            check_allocation(allocation),
        )  # fmt: skip
        self._resources = slurm_script.Resources(
            partition, gpus_per_node, cpus_per_task, ntasks_per_node, mem, exclusive,
            contract.check_strings("slurm_args", slurm_args),
        )  # fmt: skip
        for option in (job_name, time_limit, log_dir, account, qos, *self._resources.options(1)):
            slurm_script.quoted(option or "")
        slurm_script.pattern(log_dir or "", job_name)
        self._partition = partition  # which programs for 0.7 read
        self._own_resources: dict[str, slurm_script.Resources] = {}
        self._job_start_timeout = job_start_timeout
        self._job_id: str | None = None
        self._more: tuple[SlurmPart, ...] = ()  # what `scale` has added
        self._folder: Path | None = None
        self._logs = ""
        self._is_batch = False

    def add_mesh(self, name: str, num_nodes: int, **resources: Any) -> None:
        """Add a mesh.

        Args:
            name: Its name.
            num_nodes: Number of its nodes.
            resources: What its nodes need, where that is something else than for those of the job:
                `partition`, `gpus_per_node`, `cpus_per_task`, `ntasks_per_node`, `mem`,
                `exclusive`, `slurm_args`. The job is a heterogeneous one then.

        Raises:
            TypeError: There is no such resource, or the number is none.
            ValueError: The name is taken or not usable, the number is below 1, a resource has
                several lines, or the job runs.
        """
        self._check_new(name)
        contract.check_size(name, num_nodes)
        if unknown := set(resources) - set(slurm_script.Resources._fields):
            raise TypeError(
                f"mesh {name!r}: {sorted(unknown)} are no resources of a mesh:"
                f" {list(slurm_script.Resources._fields)}"
            )
        if resources:
            if "slurm_args" in resources:
                resources["slurm_args"] = contract.check_strings(
                    "slurm_args", resources["slurm_args"]
                )
            own = self._resources._replace(**resources)
            for option in own.options(num_nodes):
                slurm_script.quoted(option)
            self._own_resources[name] = own
        self._meshes[name] = num_nodes

    def on_warning(self, function: Callable[[], object]) -> None:
        """Call a function when Slurm warns that it will end the job, for example to save state.

        Call it before `state`.

        Slurm warns before it ends a job by itself: for a preemption, the time limit or a requeue.
        The hosts go on then, for the ``GraceTime`` of the partition or the ``KillWait`` of the
        cluster, 30 s by default; earlier if it is asked to, such as by
        ``slurm_args=["--signal=B:TERM@300"]``. Within a script of `apply`, SIGTERM is the warning
        instead.

        Args:
            function: Called once, on a thread of its own; it may use the meshes.
        """
        self._on_warning = function

    # the life of the job

    def _create(self, client_script: str | None) -> None:
        if not self._meshes:
            raise ValueError("a job needs at least one mesh of hosts, got none")
        assert self._apply_id is not None
        self._folder = self._home / "slurm" / self._apply_id
        self._secret_file = contract.make_secret_file(self._folder)
        self._is_batch = client_script is not None
        self._logs = self._make_logs()
        wanted = self._described.allocation
        allocation = find_allocation(wanted, self._meshes, bool(self._own_resources))
        if self._is_batch:
            CacheFile(self._folder / "job.pkl").write(BatchJob(self)._pickled())
        text = self._script(
            self._meshes, self._folder, self._logs, allocation, client_script or ""
        ).render()
        with _ours.opened(self._folder) as opened:
            opened.replace(_SCRIPT, text.encode())
        if allocation:
            run_here(text, self._folder, self._apply_id)
            self._job_id = allocation
        else:
            self._job_id = submit(text)
            logger.info("submitted as Slurm job %s; its output is in %s*", self._job_id, self._logs)
        if not self._is_batch:
            self._end_with_program()

    def _make_logs(self) -> str:
        given = self._described.log_dir
        if given is None:
            folder = self._folder_of_logs() / "workers"
            _ours.make(folder)
            return f"{folder}/"
        Path(given).mkdir(parents=True, exist_ok=True)
        return f"{Path(given).absolute()}/slurm_%j_"

    def _script(
        self,
        meshes: Mapping[str, int],
        folder: Path,
        prefix: str,
        allocation: str = "",
        client: str = "",
    ) -> slurm_script.Script:
        described = self._described
        alike = {mesh: size for mesh, size in meshes.items() if mesh not in self._own_resources}
        groups = [slurm_script.NodeGroup(alike, self._resources)]
        if len(alike) < len(meshes):  # each mesh is a component of its own, in their order
            groups = [
                slurm_script.NodeGroup({mesh: size}, self._own_resources.get(mesh, self._resources))
                for mesh, size in meshes.items()
            ]
        for_all = {"time": described.time_limit, "account": described.account, "qos": described.qos}
        output = slurm_script.pattern(prefix, described.job_name)
        own = {"job-name": described.job_name, "output": f"{output}.out", "error": f"{output}.err"}
        return slurm_script.Script(
            groups=groups,
            options=[f"--{name}={value}" for name, value in for_all.items() if value is not None],
            first_options=[
                *(f"--{name}={value}" for name, value in own.items()),
                "--no-kill",
                "--export=ALL",
            ],
            folder=str(folder),
            logs=prefix,
            setup=described.setup,
            python=os.path.expanduser(described.python_exe),
            port=described.monarch_port,
            bind=described.bind_to or "",
            srun_args=described.srun_args,
            # a program may prepare for hours before it uses hosts
            idle_limit=0.0 if client else described.idle_limit,
            allocation=allocation,
            step_name=self._step_name,
            client=client,
            batch={BATCH: "1", BATCH_FILE: f"{self._folder}/job.pkl"},
        )

    @property
    def _step_name(self) -> str:
        return f"monarch-{self._apply_id}"

    def _addresses(self) -> Mapping[str, Sequence[str]]:
        reports = self._wait_for_workers()
        if self._watch is None and not in_batch():
            assert self._folder is not None
            self._watch = WarningWatch(self._id, self._folder, self._on_warning)
        return self._by_mesh({host: report.address for host, report in reports.items()})

    def _wait_for_workers(self) -> dict[contract.HostId, WorkerReport]:
        held = holders(self._parts(), contract.hosts_of(self._meshes))
        return wait_for_workers(self._id, held, self._job_start_timeout, self._logs, self._give_up)

    def _give_up(self, late: Sequence[SlurmPart]) -> None:
        """Workers have not come in time: end the job; or if they are additions to it, those."""
        if any(part.job == self._id for part in late):
            self.kill()
        else:
            for part in late:
                part.expect_end()
                cancel(part.job)

    def _parts(self) -> list[SlurmPart]:
        assert self._folder is not None
        first = contract.hosts_of(self._described_meshes or self._meshes)
        # there, steps are started once
        attempt = None if self._described.allocation is None else attempt_here()
        return [SlurmPart(self._id, self._folder, tuple(first), attempt), *self._more]

    def _reports(self) -> dict[contract.HostId, WorkerReport]:
        held = holders(self._parts(), contract.hosts_of(self._meshes))
        return reported(held, {part: WatchedJob(part.job) for part in held.values()})

    def _reported(self) -> Mapping[contract.HostId, str]:
        return {host: report.address for host, report in self._reports().items()}

    def _lost_hosts(self, reported: Mapping[contract.HostId, str]) -> list[contract.HostId]:
        held = holders(self._parts(), contract.hosts_of(self._meshes))
        silent = [
            host
            for host in held
            if host not in reported and held[host].why_none_come(ask(held[host].job))
        ]
        return sorted([*super()._lost_hosts(reported), *silent])

    def _add_hosts(self, hosts: Sequence[contract.HostId]) -> None:
        """Submit one more job."""
        if self._described.allocation is not None:
            raise JobError(f"{self!r} has the nodes of an allocation, which get no more")
        assert self._folder is not None and self._secret_file is not None
        number = len(self._more) + 1
        folder = self._folder / f"more.{number}"
        ordered = sorted(hosts)
        sizes = {mesh: sum(other == mesh for other, _ in ordered) for mesh, _ in ordered}
        text = self._script(sizes, folder, f"{self._logs}more.{number}_").render()
        with _ours.opened(self._folder) as opened:
            secret = opened.read(self._secret_file.name)
        with _ours.opened(folder, make=True) as opened:
            opened.replace(self._secret_file.name, secret)
            opened.replace(_SCRIPT, text.encode())
        job = submit(text)
        self._more += (SlurmPart(job, folder, tuple(ordered)),)
        logger.info(
            "submitted as Slurm job %s: %d more hosts of job %s", job, len(ordered), self._id
        )

    def _remove_hosts(self, hosts: Sequence[contract.HostId]) -> None:
        """Cancel jobs of which no host is left; let others go on with fewer nodes."""
        if self._described.allocation is not None:
            return
        kept, parts = holders(self._parts(), contract.hosts_of(self._meshes)), self._parts()
        reports = self._reports()
        for part in set(holders(parts, hosts).values()):
            left = [host for host in kept if kept[host] == part]
            if not left and part.job != self._id:
                part.expect_end()
                cancel(part.job)
            elif not left or self._own_resources or not all(host in reports for host in left):
                logger.warning(
                    "the nodes of %s stay with Slurm job %s until its end", hosts, part.job
                )
            else:
                nodes = ",".join(sorted({reports[host].machine for host in left}))
                run("scontrol", "update", f"jobid={part.job}", f"nodelist={nodes}", cwd=part.folder)

    @property
    def _id(self) -> str:
        if self._job_id is None:  # in the batch script, which was saved before Slurm gave it an id
            self._job_id = os.environ["SLURM_JOB_ID"]
        return self._job_id

    def can_run(self, spec: JobTrait) -> bool:
        """Check whether `spec` describes the same job, and its workers can be reached.

        A job that still waits for its nodes counts.
        """
        status = self._status_of_first() if self._same_spec(spec) else None
        if status is None:
            return False
        pending = status.state in slurm_script.PENDING
        return (
            pending
            or self._described.out_of_cluster
            or not contract.unreachable(self._reported().values())
        )

    def _description(self) -> object:
        return self._described, self._resources, self._own_resources, self._is_batch

    def _is_running(self) -> bool:
        return self._status_of_first() is not None

    def _status_of_first(self) -> slurm_script.Status | None:
        """Return what Slurm says of the first of its jobs; None once that has ended."""
        if self._job_id is None or self._folder is None:
            return None
        try:
            status = ask(self._id)
        except JobError as error:
            if NOT_FOUND in str(error):
                return None
            raise
        return status if status.lives and not self._parts()[0].has_ended(status) else None

    def _progress(self) -> tuple[bool, str]:
        first = self._status_of_first()
        if first is None:
            return False, ""
        asked = [(self._id, first), *((part.job, ask(part.job)) for part in self._more)]
        late = (
            f"Slurm job {job}: {it.describe()}"
            for job, it in asked
            if it.state in slurm_script.PENDING
        )
        return True, "; ".join(late)

    def _why_ended(self) -> str:
        asked = [(part.job, ask(part.job)) for part in self._parts()]
        return "; ".join(
            f"Slurm {'requeued' if it.state in slurm_script.PENDING else 'ended'} job {job}: {it.describe()}"
            for job, it in asked
            if it.state != "RUNNING"
        )

    def _rebind_connection_inputs(self, spec: JobTrait) -> None:
        self._on_warning = getattr(spec, "_on_warning", None)

    def _prepare_client_gateway(self) -> None:
        if not self._described.out_of_cluster or in_batch():
            return
        assert self._secret_file is not None
        first = self._wait_for_workers()[next(iter(self._meshes)), 0].address
        actor.attach(self._described.attach_to or first, secret=read_secret_file(self._secret_file))

    def _kill(self) -> None:
        self._outlive_program()
        if self._watch is not None:
            self._watch.stop()
            self._watch = None
        if self._job_id is not None:
            for part in self._parts():
                part.expect_end()
            if self._described.allocation is not None:
                assert self._apply_id is not None
                # first the script here, which may start further steps
                processes.end(self._apply_id)
                jobs = steps_of(self._job_id, self._step_name)
            else:
                jobs = [self._job_id, *(part.job for part in self._more)]
            for job in jobs:
                cancel(job)
        if self._folder is not None:
            _ours.remove_tree(self._folder)
        self._job_id, self._folder, self._secret_file, self._more = None, None, None, ()

    def _cleanup_log_context(self) -> str:
        return f"(Slurm job {self._job_id}: scancel {self._job_id})"

    def __repr__(self) -> str:
        job = f", Slurm job {self._job_id}" if self._job_id else ""
        return f"SlurmJob({self._meshes!r}{job})"
