"""`SkyPilotJob`: workers on the nodes of a cluster that SkyPilot gets in some cloud.

What ends the workers: `kill`, which ends the cluster; `idle_limit` seconds without a client, after
which SkyPilot ends it when it has been idle for `idle_minutes_to_autostop`. What ends the wait for
them: all can be reached; SkyPilot says that the cluster or its job has failed; `job_start_timeout`.
"""

from __future__ import annotations

import inspect
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any, NamedTuple

from .. import _ours
from .._extras import of_extra
from ..errors import JobError
from ..trust import read_secret_file
from .base import contract
from .base.trait import JobTrait
from .base.waiting import Waiting
from .base.worker_spec import WorkerSpec
from .ssh.text import run_python

_ASK = 5.0  # seconds between two questions to SkyPilot; the workers are tried more often
_LOOK = 0.5
_LIMIT = 120.0  # seconds for an answer that needs no machine
_DOWN = 1200.0  # and for the end of a cluster
_OVER = ("FAILED", "CANCELLED", "SUCCEEDED")  # how the states of a job begin that has ended

logger = logging.getLogger("monarch.job")


class _Described(NamedTuple):
    """The user's description, beside the meshes.

    Jobs with equal descriptions can take each other's place.
    """

    resources: dict[str, Any]
    cluster_name: str | None
    monarch_port: int
    idle_minutes_to_autostop: int | None
    down_on_autostop: bool
    python_exe: str
    setup_commands: str | None
    workdir: str | None
    file_mounts: dict[str, str]
    idle_limit: float


class SkyPilotJob(contract.WorkersJob):
    """Hosts that are nodes of a cluster of SkyPilot, with one worker each.

    This program has to reach the nodes by their internal addresses: it runs in the same network of
    the cloud. The nodes need pymonarch, of the release of this program, which `setup_commands` can
    install.

    Args:
        meshes: Name to number of nodes.
        resources: Arguments of `sky.Resources`: ``{"infra": "aws", "accelerators": "H100:8"}``.
        cluster_name: Name of the cluster; by default one of its own.
        monarch_port: TCP port of workers.
        idle_minutes_to_autostop: Minutes without a running worker after which SkyPilot ends the
            cluster; None for never.
        down_on_autostop: Whether that removes it, or only stops its nodes.
        python_exe: The interpreter of workers. ``~/`` is the home directory there.
        setup_commands: Lines of shell to run on each node before: ``"pip install pymonarch"``.
        workdir: Folder of this machine to copy there.
        file_mounts: Further files, path there to path here.
        idle_limit: Seconds without a client after which workers end; 0 is no limit.
        job_start_timeout: Seconds within which all workers must be reached, else the cluster is
            removed; None waits for ever.

    Raises:
        TypeError: A number of nodes has the wrong type.
        ValueError: A number is below 1, or a name could not be read as an attribute of the state.
    """

    def __init__(
        self,
        meshes: Mapping[str, int],
        resources: Mapping[str, Any] | None = None,
        cluster_name: str | None = None,
        monarch_port: int = 22222,
        idle_minutes_to_autostop: int | None = 10,
        down_on_autostop: bool = True,
        python_exe: str = "python",
        setup_commands: str | None = None,
        workdir: str | None = None,
        file_mounts: Mapping[str, str] | None = None,
        *,
        idle_limit: float = 3600.0,
        job_start_timeout: float | None = None,
    ) -> None:
        super().__init__(meshes)
        if not 0 < monarch_port < 65536:
            raise ValueError(f"monarch_port is a TCP port, got {monarch_port!r}")
        self._described = _Described(
            dict(resources or {}), cluster_name, monarch_port, idle_minutes_to_autostop,
            down_on_autostop, contract.check_python(python_exe), setup_commands, workdir,
            dict(file_mounts or {}), contract.check_idle_limit(idle_limit),
        )  # fmt: skip
        self._job_start_timeout = job_start_timeout
        self._folder: Path | None = None
        self._request: Any = None

    def _create(self, client_script: str | None) -> None:
        self._refuse_script(client_script, "`sky exec` does")
        sky, described = _sky(), self._described
        assert self._apply_id is not None
        folder = self._home / "skypilot" / self._apply_id
        self._folder = folder  # which `kill` removes, also if this raises
        self._secret_file = contract.make_secret_file(folder)
        # SkyPilot shows and keeps `envs` as they are
        secret = {"MONARCH_SECRET": read_secret_file(self._secret_file)}
        keeps_secrets = "secrets" in inspect.signature(sky.Task).parameters
        task = sky.Task(
            name="monarch",
            run=self._script(),
            setup=described.setup_commands,
            num_nodes=sum(self._meshes.values()),
            envs={
                contract.IDLE_LIMIT: f"{described.idle_limit:f}s",
                **({} if keeps_secrets else secret),
            },
            workdir=described.workdir,
            **({"secrets": secret} if keeps_secrets else {}),
        )
        task.set_resources(sky.Resources(**described.resources))
        if described.file_mounts:
            task.set_file_mounts(described.file_mounts)
        self._request = sky.launch(
            task,
            cluster_name=self._cluster,
            idle_minutes_to_autostop=described.idle_minutes_to_autostop,
            down=described.down_on_autostop,
        )
        logger.info("asked SkyPilot for cluster %s", self._cluster)

    def _script(self) -> str:
        """Return the script that SkyPilot runs on each node.

        The node's rank tells its mesh and its host in it.
        """
        spec = WorkerSpec(
            "sky",
            "$SKYPILOT_NODE_RANK",
            f"tcp://:{self._described.monarch_port}",
            "$MONARCH_FIRST_NODE",
        )
        command = run_python(self._described.python_exe, contract.worker_command(spec, []))
        return (
            f'export MONARCH_FIRST_NODE=$(echo "$SKYPILOT_NODE_IPS" | head -n 1)\nexec {command}\n'
        )

    @property
    def _cluster(self) -> str:
        return self._described.cluster_name or f"monarch-{(self._apply_id or '')[:8]}"

    def _addresses(self) -> Mapping[str, Sequence[str]]:
        sky = _sky()
        with Waiting(f"SkyPilot cluster {self._cluster}") as waiting:
            try:
                number, handle = _answer(
                    sky,
                    self._request,
                    self._job_start_timeout,
                    lambda: waiting.show("it is being provisioned"),
                )
            except _Late:
                self.kill()
                raise JobError(
                    f"cluster {self._cluster} was not there within {self._job_start_timeout:g} s"
                    " (job_start_timeout), and was removed"
                ) from None
            except Exception as error:
                raise JobError(
                    f"SkyPilot has not started cluster {self._cluster}: {contract.first_line(error)}"
                ) from error
            addresses = [
                f"tcp://{address}:{self._described.monarch_port}"
                for address in handle.internal_ips()
            ]
            asked = waiting.seconds
            while missing := contract.unreachable(addresses):
                state = f"{len(missing)} of {len(addresses)} workers can't be reached"
                if waiting.is_longer_than(self._job_start_timeout):
                    self.kill()
                    raise JobError(
                        f"{state} within {self._job_start_timeout:g} s (job_start_timeout): cluster"
                        " was removed"
                    )
                if waiting.seconds - asked > _ASK:
                    asked = waiting.seconds
                    status = _answer(sky, sky.job_status(self._cluster, [number]))[number]
                    if status is not None and status.name.startswith(_OVER):
                        raise JobError(
                            f"{state}: their job is {status.name}; `sky logs {self._cluster}`"
                            " says why"
                        )
                waiting.show(state)
                time.sleep(_LOOK)
        dealt, first = {}, 0
        for mesh, size in self._meshes.items():
            dealt[mesh] = addresses[first : first + size]
            first += size
        return dealt

    def can_run(self, spec: JobTrait) -> bool:
        """Check whether `spec` describes the same job, and SkyPilot has its cluster, or gets it."""
        return self._same_spec(spec) and self._is_running()

    def _description(self) -> object:
        return self._described

    def _is_running(self) -> bool:
        sky = _sky()
        found = _answer(sky, sky.status(cluster_names=[self._cluster]))
        return any(cluster["status"].name in ("INIT", "UP") for cluster in found)

    def _kill(self) -> None:
        if self._request is not None:
            sky = _sky()
            try:
                _answer(sky, sky.down(self._cluster), _DOWN)
            except Exception as error:
                if self._is_running():
                    raise JobError(
                        f"SkyPilot has not removed cluster {self._cluster}: {contract.first_line(error)}"
                    ) from error
        if self._folder is not None:
            _ours.remove_tree(self._folder)
        self._folder, self._secret_file, self._request = None, None, None

    def _cleanup_log_context(self) -> str:
        return f"(sky down {self._cluster})"

    def __repr__(self) -> str:
        return f"SkyPilotJob({self._meshes!r}, {self._described.resources!r})"


def _sky() -> Any:
    missing = "SkyPilotJob needs a package that is missing here: pip install 'pymonarch[skypilot]'"
    return of_extra("sky", missing, JobError)


class _Late(JobError):
    """SkyPilot takes longer than it may."""


def _answer(
    sky: Any,
    request: Any,
    limit: float | None = _LIMIT,
    meanwhile: Callable[[], None] = lambda: None,
) -> Any:
    """Return SkyPilot's answer to a request.

    SkyPilot has no time limit; a late answer is left to a thread of its own.

    Args:
        sky: SkyPilot.
        request: The id of the request, as SkyPilot returned it.
        limit: Seconds; None is for ever.
        meanwhile: Called often.

    Raises:
        _Late: The time is over.
        Exception: As SkyPilot has it.
    """
    answer: Future[Any] = Future()

    def ask() -> None:
        try:
            answer.set_result(sky.get(request))
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=ask, name="monarch-skypilot", daemon=True).start()
    end = None if limit is None else time.monotonic() + limit
    while not wait([answer], _LOOK).done:
        meanwhile()
        if end is not None and time.monotonic() > end:
            raise _Late(f"SkyPilot did not answer within {limit:g} s")
    return answer.result()


__all__ = ["SkyPilotJob"]
