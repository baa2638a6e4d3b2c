"""What is asked of a host: procs, and how each is to be started."""

from __future__ import annotations

import os
import pickle
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING

from ..._namedtuple import NamedTuple
from ..wire.address import ActorAddress, ProcAddress

if TYPE_CHECKING:
    from ..actors.log import Settings
    from ..net.trust import Trust
    from ..wire.channel import Channel


UNNAMED = "anon"
"""Name of procs that were given none; they go by that of the first actors on them."""


class Command(NamedTuple):
    """A program to execute instead of forking.

    Attributes:
        program: Path or name of the executable.
        arg0: What it sees as its own name; None for `program`.
        args: Arguments after that.
    """

    program: str
    arg0: str | None
    args: tuple[str, ...]


class Start(NamedTuple):
    """How one proc starts.

    Attributes:
        rank: Its linear rank in the mesh; in a request that goes to several hosts, among the procs of its host.
        command: What to execute; None forks the spawner.
        env: Changes to the environment: name to value, or to None to remove a variable.
        inherit_env: Change that of the request; otherwise an empty one.
        cpus: CPUs it is bound to, as ``taskset`` writes them; empty for all.
        nodes: What ``numactl`` is asked for, ``cpunodebind`` for one, with its value.
        incarnation: How often it has been started before.
    """

    rank: int
    command: Command | None
    env: dict[str, str | None]
    inherit_env: bool = True
    cpus: str = ""
    nodes: tuple[tuple[str, str], ...] = ()
    incarnation: int = 0

    @property
    def key(self) -> Hashable:
        """Equal for those that start alike, apart from where."""
        return self._replace(env=tuple(self.env.items()))  # type: ignore[arg-type]  # only compared

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """Its whole environment."""
        merged: dict[str, str | None] = {**(base if self.inherit_env else {}), **self.env}
        return {name: value for name, value in merged.items() if value is not None}


class SpawnRequest(NamedTuple):
    """Procs of one mesh, the same on each host that gets this.

    Attributes:
        mesh: Id of the proc mesh.
        name: Its name, for people.
        size: Number of ranks in the whole mesh.
        per_host: Number of ranks on each host.
        starts: The procs to start.
        owner: The actor that owns them.
        root: The client they belong to.
        sys_path: Where they import from.
        cwd: Their working directory.
        environ: The environment that they inherit; None for that of the host.
        preload: Modules to import once, before forking.
        config: Configuration they inherit.
        level: 1 for the procs of a client, 2 for those that they spawn.
        restarts: Whether procs that fail may be started again.
        logging: How they log, as long as they configure nothing themselves.
        host: What the requester calls this host, by which the procs will be known; filled in there.
    """

    mesh: str
    name: str
    size: int
    per_host: int
    starts: tuple[Start, ...]
    owner: ActorAddress
    root: ProcAddress
    sys_path: list[str]
    cwd: str
    environ: dict[str, str] | None
    preload: tuple[str, ...]
    config: dict[str, object]
    level: int = 1
    restarts: bool = False
    logging: Settings | None = None
    host: str = ""

    def on_host(self, host: str, position: int) -> SpawnRequest:
        """The part of one host, with the ranks of the mesh.

        Args:
            host: Its name.
            position: Which host of the mesh it is; it is called with that as rank.
        """
        first = position * self.per_host
        starts = tuple(start._replace(rank=first + start.rank) for start in self.starts)
        return self._replace(host=host, starts=starts)

    def proc_name(self, rank: int) -> str:
        return f"{self.mesh}.{rank}"

    @property
    def ends_groups(self) -> bool:
        """Whether what its procs have started ends with them."""
        return bool(self.config.get("end_process_groups", True))  # what is the default is not sent along


class AgentSpec(NamedTuple):
    """What a new agent is told.

    Attributes:
        address: Its address.
        root: The client that starts it; itself where a worker does.
        parent: The process that it ends with.
        listener: Descriptor that listens under its address.
        config: Configuration it inherits.
        preload: Modules that every proc needs.
        local_host: What its host is called where its sockets are.
        channel: Where it lets other hosts in; None where it lets none in.
        trust: Whom it lets in, and how it proves itself.
        report: Descriptor to write to what it is called, or why it can't be reached; -1 for none.
    """

    address: ProcAddress
    root: ProcAddress
    parent: int
    listener: int
    config: dict[str, object]
    preload: tuple[str, ...]
    local_host: str
    channel: Channel | None = None
    trust: Trust | None = None
    report: int = -1


class ProcSpec(NamedTuple):
    """What a new proc is told about itself; `local_host` is what its host is called where its sockets are."""

    address: ProcAddress
    local_host: str
    root: ProcAddress
    mesh: str
    name: str
    rank: int
    listener: int
    sys_path: list[str]
    cwd: str
    config: dict[str, object]
    level: int
    logging: Settings | None


def write_spec(spec: tuple[object, ...]) -> int:
    """A descriptor from which another process can read `spec`, however large."""
    fd = os.memfd_create("monarch-spec", os.MFD_CLOEXEC)
    with os.fdopen(os.dup(fd), "wb") as file:
        pickle.dump(spec, file)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


BEFORE_START = ("LD_", "PYTHON", "MALLOC_", "GLIBC_", "ASAN_", "LC_", "LANG", "OMP_", "MKL_", "OPENBLAS_", "KMP_")
"""Variables that act before, or while, the interpreter and its libraries start: a proc that changes one is executed."""


def needs_exec(env: dict[str, str], spawner_env: dict[str, str]) -> bool:
    """Whether an environment can only be had by starting a new interpreter."""
    changed = {key for key in env.keys() | spawner_env.keys() if env.get(key) != spawner_env.get(key)}
    return any(key.startswith(BEFORE_START) for key in changed)
