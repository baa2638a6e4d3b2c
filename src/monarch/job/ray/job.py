"""`RayJob`: workers on the nodes of a running Ray cluster.

`hosts` is what runs there, `control` asks for it.

What ends the workers: `kill`; the end of the node, of the head node or of the cluster; `idle_limit`
seconds without a client, also if that was killed. What ends the wait for them: all have reported;
one has failed; `job_start_timeout`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from ... import _ours
from ...errors import JobError
from ...trust import read_secret_file
from ..base import contract
from ..base.trait import JobTrait
from ..base.waiting import Waiting
from ..base.worker_spec import WorkerReport
from .control import Control

_ASK = 0.2  # seconds between two questions to Ray

logger = logging.getLogger("monarch.job")


class _Described(NamedTuple):
    """The user's description, beside the meshes.

    Jobs with equal descriptions can take each other's place.
    """

    address: str
    bundle: dict[str, float]
    runtime_env: dict[str, Any] | None
    env: dict[str, str]
    idle_limit: float


class RayJob(contract.WorkersJob):
    """Hosts that are nodes of a running Ray cluster, with one worker each.

    The nodes need pymonarch, of the release of this program, beside Ray: installed, or by
    `runtime_env`. The job outlives the program, and the next run of it finds the same workers. With
    ``cached_path=None`` it ends with the program.

    Args:
        meshes: Name to number of hosts. All hosts of a job are different nodes.
        address: Of the cluster, as `ray.init` takes it. ``"auto"``: ``RAY_ADDRESS``, or the cluster
            that runs here.
        cpus_per_host: CPUs to reserve on each node.
        gpus_per_host: GPUs to reserve there; the procs see these.
        resources: Further resources of Ray, by name.
        runtime_env: Ray's runtime environment of the workers, such as ``{"pip": ["pymonarch"]}``.
        env: Environment variables of the workers.
        idle_limit: Seconds without a client after which workers end, and with the last one the job;
            0 is no limit.
        job_start_timeout: Seconds within which all workers must run, else the job is ended; None
            waits for ever.

    Raises:
        TypeError: A number or a variable has the wrong type.
        ValueError: A number is too small, or a name could not be read as an attribute of the state.
    """

    _LIVE = (*contract.WorkersJob._LIVE, "_control")
    _control: Control | None = None

    def __init__(
        self,
        meshes: Mapping[str, int],
        *,
        address: str = "auto",
        cpus_per_host: float = 1,
        gpus_per_host: float = 0,
        resources: Mapping[str, float] | None = None,
        runtime_env: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        idle_limit: float = 3600.0,
        job_start_timeout: float | None = None,
    ) -> None:
        super().__init__(meshes)
        bundle = _bundle(cpus_per_host, gpus_per_host, resources or {})
        self._described = _Described(
            address,
            bundle,
            None if runtime_env is None else dict(runtime_env),
            contract.check_env(env),
            contract.check_idle_limit(idle_limit),
        )
        self._job_start_timeout = job_start_timeout
        self._folder: Path | None = None
        self._cluster = address  # once it runs, where that was

    def _create(self, client_script: str | None) -> None:
        self._refuse_script(client_script, "`ray job submit` does, and state() works there as well")
        assert self._apply_id is not None
        self._folder = self._home / "ray" / self._apply_id
        self._secret_file = contract.make_secret_file(self._folder)
        self._cluster = self._ask(
            "start",
            bundle=self._described.bundle,
            runtime_env=self._described.runtime_env,
            environment={
                **self._described.env,
                contract.IDLE_LIMIT: f"{self._described.idle_limit:f}s",
                "MONARCH_SECRET": read_secret_file(self._secret_file),
            },
            hosts=contract.hosts_of(self._meshes),
        )
        logger.info(
            "started in the Ray cluster at %s as actor monarch-%s", self._cluster, self._apply_id
        )
        self._end_with_program()

    def _addresses(self) -> Mapping[str, Sequence[str]]:
        there = self._reported()
        try:
            with Waiting(f"Ray at {self._cluster}") as waiting:
                while missing := [
                    host for host in contract.hosts_of(self._meshes) if host not in there
                ]:
                    found = self._ask("look", bundle=self._described.bundle)
                    if found is None:
                        raise JobError(f"{self!r} has ended; kill() it, and state() starts it anew")
                    if failed := [
                        f"{mesh}[{rank}]: {why}"
                        for mesh, rank, why in found["failed"]
                        if (mesh, rank) in missing
                    ]:
                        raise JobError(
                            f"{self!r}: {len(failed)} of its hosts did not come up: {failed[0]}"
                        )
                    self._note(found["reports"])
                    there = self._reported()
                    state = (
                        f"{len(there)} of {len(contract.hosts_of(self._meshes))} workers run; each needs a"
                        f" node with {self._described.bundle}, and {found['nodes']} nodes have that"
                    )
                    if waiting.is_longer_than(self._job_start_timeout):
                        self.kill()
                        raise JobError(
                            f"{state}; the job was ended after {self._job_start_timeout:g} s"
                            " (job_start_timeout)"
                        )
                    waiting.show(state)
                    time.sleep(_ASK)
        finally:
            self._disconnect_control()
        return self._by_mesh(there)

    def _note(self, reports: Sequence[str]) -> None:
        """Keep what workers have said, so that the next run need not ask Ray."""
        assert self._folder is not None
        for report in reports:
            WorkerReport.decode(report).leave(self._folder / "workers")

    def _reported(self) -> Mapping[contract.HostId, str]:
        if self._folder is None:
            return {}
        return {
            (report.mesh, report.rank): report.address
            for report in contract.read_reports(self._folder / "workers")
        }

    def _forget_reports(self, hosts: Sequence[contract.HostId]) -> None:
        assert self._folder is not None
        with suppress(FileNotFoundError), _ours.opened(self._folder / "workers") as folder:
            folder.remove(*(f"{mesh}.{rank}" for mesh, rank in hosts))

    def _add_hosts(self, hosts: Sequence[contract.HostId]) -> None:
        self._ask("add", hosts=list(hosts))
        self._forget_reports(hosts)

    def _remove_hosts(self, hosts: Sequence[contract.HostId]) -> None:
        self._ask("remove", hosts=list(hosts))
        self._forget_reports(hosts)

    def can_run(self, spec: JobTrait) -> bool:
        """Check whether `spec` describes the same job, and its started workers can be reached."""
        return (
            self._same_spec(spec)
            and not contract.unreachable(self._reported().values())
            and self._is_running()
        )

    def _description(self) -> object:
        return self._described

    def _is_running(self) -> bool:
        there = self._reported().values()
        if there and len(contract.unreachable(there)) < len(there):
            return True
        if self._folder is None or len(there) == len(contract.hosts_of(self._meshes)):
            return False
        try:
            return self._ask("look", bundle=self._described.bundle) is not None
        except JobError as error:
            logger.warning("%s; so nothing of the job runs any more", error)
            return False

    def _why_ended(self) -> str:
        found = self._ask("look", bundle=self._described.bundle)
        if found is None:
            return f"all workers of {self!r} have ended, and with them its actor in Ray"
        ended = (f"{mesh}[{rank}]: {why}" for mesh, rank, why in found["ended"])
        return "; ".join(f"Ray at {self._cluster}: {told}" for told in ended)

    def _kill(self) -> None:
        self._outlive_program()
        if self._folder is not None:
            try:
                self._ask("kill")
            except JobError:
                there = self._reported().values()
                if len(contract.unreachable(there)) < len(there):
                    raise
                logger.info("there is no such cluster any more", exc_info=True)
            _ours.remove_tree(self._folder)
        self._disconnect_control()
        self._folder, self._secret_file = None, None

    def _ask(self, verb: str, **args: Any) -> Any:
        if self._control is None:
            self._control = Control(self._cluster, f"monarch-{self._apply_id}")
        try:
            return self._control.ask(verb, **args)
        except JobError:
            self._disconnect_control()
            raise

    def _disconnect_control(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None

    def _cleanup_log_context(self) -> str:
        return f"(Ray actor monarch-{self._apply_id} in the namespace monarch)"

    def __repr__(self) -> str:
        return f"RayJob({self._meshes!r}, address={self._described.address!r})"


def _bundle(cpus: float, gpus: float, others: Mapping[str, float]) -> dict[str, float]:
    """The resources of a host, as a bundle of a placement group."""
    bundle = {"CPU": cpus, "GPU": gpus, **others}
    for name, amount in bundle.items():
        if not isinstance(amount, (int, float)) or isinstance(amount, bool):
            raise TypeError(f"an amount of {name} is a number, got {amount!r}")
        if amount < 0:
            raise ValueError(f"an amount of {name} is at least 0, got {amount!r}")
    bundle = {name: amount for name, amount in bundle.items() if amount}
    if not bundle:
        raise ValueError(
            "Ray places nothing that needs nothing: ask for a CPU, a GPU or another resource of"
            " each host"
        )
    return bundle
