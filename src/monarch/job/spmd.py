"""SPMD programs as jobs.

They are a command of `torchrun` on hosts, and hosts that are found from inside a running
`torchrun`.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import shutil
import socket
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

from .. import config
from ..errors import JobError
from ..spmd.launcher import explain, launch
from ..spmd.options import parse_command
from .base.contract import WorkersJob
from .base.launch import MOST_REPORT, start_child
from .base.state import JobState
from .base.trait import JobTrait
from .base.worker_spec import WorkerSpec
from .local import LocalJob

_MESH = "workers"
_KEY = "monarch/spmd/workers"

_lifelines: list[socket.socket] = []
"""Of workers that end with this process."""


class SPMDJob(JobTrait):
    """A command of `torchrun`, and the hosts that it runs on: the first mesh of another job.

    Args:
        command: As it is typed: ``["torchrun", "--nproc-per-node", "8", "train.py"]``, or
            ``["python", "train.py"]``.
        hosts: Which hosts.

    Raises:
        ValueError: The command is none of `torchrun`'s; or it asks for several hosts where there is
            one.
    """

    def __init__(self, command: Sequence[str], hosts: JobTrait) -> None:
        self._command = list(command)
        self._options = parse_command(self._command)
        self._hosts = hosts
        self._saves_itself = hosts._saves_itself
        if isinstance(hosts, LocalJob) and self._options.nodes not in (None, (1, 1)):
            raise ValueError(
                f"this machine is one host, and the command asks for others: {self._command}"
            )

    def run_spmd(self) -> None:
        """Run the command on the hosts of the job, to its end, as ``monarch run`` does.

        Raises:
            JobError: A rank has failed. The text ends with its traceback.
        """
        state = self.state()
        outcome = launch(next(iter(state._hosts.values())), self._options)
        if outcome.status:
            raise JobError(
                explain(outcome, self._options) or f"a signal ended it: {outcome.signal}"
            )

    def _create(self, client_script: str | None) -> None:
        self._hosts._apply_id = self._apply_id
        self._hosts._create(client_script)

    def _state(self) -> JobState:
        found = self._hosts._state()._hosts
        return JobState(dict(zip((_MESH, *list(found)[1:]), found.values(), strict=True)))

    def can_run(self, spec: JobTrait) -> bool:
        """Check whether the hosts are those that `spec` asks for.

        Its command may be another one.
        """
        return isinstance(spec, SPMDJob) and self._hosts.can_run(spec._hosts)

    def _kill(self) -> None:
        self._hosts._kill()

    def _kept(self) -> None:
        self._hosts._kept()

    def __repr__(self) -> str:
        return f"SPMDJob({self._command!r}, {self._hosts!r})"


def serve(
    appdef: Any,
    scheduler: str | JobTrait = "local_cwd",
    scheduler_cfg: Mapping[str, Any] | None = None,
) -> SPMDJob:
    """Make a job of a command of `torchrun`.

    `SPMDJob.run_spmd` runs it; `state` gives its hosts as the mesh ``workers``.

    Args:
        appdef: The command as a list; or an ``AppDef`` of torchx, of which the first role counts.
        scheduler: ``"local"``, or a name that begins so, for this machine; or any job, for its
            hosts.
        scheduler_cfg: Ignored for this machine.

    Raises:
        ValueError: The command is empty, or none of `torchrun`'s; or it asks for several hosts on
            one machine.
        JobError: There is no such scheduler.
    """
    if isinstance(scheduler, JobTrait):
        return SPMDJob(_command(appdef), scheduler)
    if not scheduler.startswith("local"):
        raise JobError(
            f"there is no scheduler {scheduler!r} here: give the job that describes the hosts, such"
            " as serve(command, ProcessJob({'nodes': 2})), or 'local'"
        )
    return SPMDJob(_command(appdef), LocalJob((_MESH,)))


def _command(appdef: Any) -> list[str]:
    if isinstance(appdef, (list, tuple)):
        if not appdef:
            raise ValueError("command cannot be empty")
        return [str(word) for word in appdef]
    roles = getattr(appdef, "roles", None)
    if not roles:
        raise ValueError(
            f"serve takes a command as a list, or an AppDef with a role, got {appdef!r}"
        )
    if len(roles) > 1:
        warnings.warn(f"of {len(roles)} roles only the first runs: {roles[0].name!r}", stacklevel=3)
    return [roles[0].entrypoint, *roles[0].args]


class TorchStore(Protocol):
    """The protocol of a store, as in `torch.distributed`."""

    def set(self, key: str, value: str) -> object: ...
    def get(self, key: str) -> Any:
        """Return the value as text or bytes, once there is one."""


class StoreJob(WorkersJob):
    """The hosts of a running `torchrun`, as seen by its rank 0. Made by `from_store`.

    Its workers end with the ranks that have started them. So there is nothing to find again, and
    `kill` does nothing.
    """

    _saves_itself = False

    def __init__(self, name: str, addresses: Sequence[str]) -> None:
        super().__init__({name: len(addresses)})
        self._name = name
        self._found = tuple(addresses)

    @classmethod
    def from_store(
        cls,
        store: TorchStore,
        *,
        monarch_port: int = 0,
        name: str = "monarch_worker",
        transport: str = "ipc",
        rank: int | None = None,
        local_rank: int | None = None,
        world_size: int | None = None,
        local_world_size: int | None = None,
    ) -> StoreJob | None:
        """Start a worker on each host of a running `torchrun`. All ranks call it; it is collective.

        Args:
            store: A store that all ranks share.
            monarch_port: TCP port of the workers; 0 for a free one.
            name: Of the mesh in `state`.
            transport: ``"ipc"`` where all ranks are on this machine; ``"tcp"``, which needs a
                shared secret.
            rank: Of this process. It and what follows are by default those of `torchrun`'s
                variables.
            local_rank: Its rank on its host; rank 0 there starts the worker, which ends with it.
            world_size: Number of ranks.
            local_world_size: Number of ranks of each host.

        Returns:
            The job on rank 0, None on all others.

        Raises:
            ValueError: The ranks make no sense, or there is no such transport.
            JobError: A worker did not start.
        """
        own = [_of(given, variable) for given, variable in (
            (rank, "RANK"), (local_rank, "LOCAL_RANK"), (world_size, "WORLD_SIZE"), (local_world_size, "LOCAL_WORLD_SIZE"),
        )]  # fmt: skip
        number, local, size, local_size = own
        if not (0 <= number < size and 0 <= local < local_size <= size) or size % local_size:
            raise ValueError(
                f"rank {number} of {size}, local rank {local} of {local_size}: these make no sense"
                " together"
            )
        if transport not in ("ipc", "tcp"):
            raise ValueError(f"transport is 'ipc' or 'tcp', got {transport!r}")
        if local == 0:
            group = number // local_size
            store.set(f"{_KEY}/{group}", _start_worker(name, group, transport, monarch_port))
        if number:
            return None
        return cls(
            name, [_text(store.get(f"{_KEY}/{group}")) for group in range(size // local_size)]
        )

    def state(self, cached_path: str | os.PathLike[str] | None = None) -> JobState:
        """Attach the hosts. As `JobTrait.state`, but for the default: nothing is kept in a file."""
        return super().state(cached_path)

    def _create(self, client_script: str | None) -> None:
        self._refuse_script(client_script, "it is part of one")

    def _addresses(self) -> Mapping[str, Sequence[str]]:
        return {self._name: self._found}

    def can_run(self, spec: JobTrait) -> bool:
        """No: these hosts are this program's own."""
        return False

    def _kill(self) -> None:
        pass

    def __repr__(self) -> str:
        return f"StoreJob({self._name!r}, {list(self._found)!r})"


def _start_worker(name: str, group: int, transport: str, port: int) -> str:
    """Start the worker of this host, which ends with this process.

    It returns the worker's address when it serves.
    """
    # for a socket, so with a short path
    folder = Path(tempfile.mkdtemp(prefix="monarch_job_", dir="/tmp"))
    spec = WorkerSpec(
        name,
        str(group),
        f"ipc://{folder}/worker" if transport == "ipc" else f"tcp://:{port}",
        towards=os.environ.get("MASTER_ADDR", "localhost"),
        farewell=str(folder / "ended"),
    )
    with ExitStack() as undo:
        undo.callback(shutil.rmtree, folder, ignore_errors=True)
        _, ours = start_child(spec)
        undo.callback(ours.close)  # ends the worker
        address = _reported(ours)
        undo.pop_all()
    _lifelines.append(ours)
    atexit.register(_remove, folder, os.getpid())
    return address


def _reported(lifeline: socket.socket) -> str:
    """Wait until a worker serves; return its address."""
    limit = config.value("host_spawn_ready_timeout") or None
    poll = select.poll()
    poll.register(lifeline, select.POLLIN)
    if not poll.poll(None if limit is None else limit * 1000):
        raise JobError(
            f"the worker of this host did not serve within {limit:g} s (host_spawn_ready_timeout)"
        )
    report = lifeline.recv(MOST_REPORT)
    if not report:
        raise JobError("the worker of this host ended before it served; its error stands above")
    address: str = json.loads(report)["address"]
    return address


def _remove(folder: Path, owner: int) -> None:
    """Remove the folder at the end of the program that has started the worker.

    A fork of it leaves the folder alone.
    """
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


class MissingRankError(RuntimeError, ValueError):
    """A rank was neither given nor is its variable set; a RuntimeError, as in Monarch 0.7."""


def _of(given: int | None, variable: str) -> int:
    found = os.environ.get(variable) if given is None else given
    if found is None:
        raise MissingRankError(f"give {variable.lower()}=, as {variable} is not set")
    return int(found)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


__all__ = ["SPMDJob", "StoreJob", "serve"]
