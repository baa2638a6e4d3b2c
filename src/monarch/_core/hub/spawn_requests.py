"""The content of control records that start something: actors, and procs on a host."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from ..._guards.main_guard import Nesting
from ..._namedtuple import NamedTuple
from ..shape import Extent, Point
from ..wire.address import ActorAddress, ProcAddress


class CreatorInstance:
    """Picklable record of an actor: its spawn name, class, rank, proc mesh and creator."""

    __slots__ = ("class_name", "creator", "name", "proc_mesh", "rank")

    def __init__(
        self,
        name: str,
        class_name: str | None,
        rank: Point,
        proc_mesh: Any,
        creator: CreatorInstance | None,
    ) -> None:
        self.name = name
        self.class_name = class_name
        self.rank = rank
        self.proc_mesh = proc_mesh
        self.creator = creator

    @property
    def proc(self) -> Any:
        """The one-element proc mesh of its process."""
        return self.proc_mesh.slice(**self.rank)

    def __str__(self) -> str:
        """Path of creation, ``<root>.<__main__.Trainer trainers{'gpus': 0/8}>``."""
        if self.creator is None:
            return f"<{self.name}>"
        return f"{self.creator}.<{self.class_name} {self.name}{self.rank!r}>"

    __repr__ = __str__

    def __reduce__(self) -> Any:
        own = self.name, self.class_name, self.rank, self.proc_mesh, self.creator
        return CreatorInstance, own


class SpawnSpec(NamedTuple):
    """One actor mesh to be spawned; the same for every rank."""

    uid: int
    name: str
    class_name: str
    owner: ActorAddress
    creator: CreatorInstance
    proc_mesh: Any
    extent: Extent
    restarts: bool = False  # whether a rank that fails may be started again
    incarnation: int = 0  # how often this rank has been
    rank: int | None = None  # which rank, where the message that carries this does not say it


class LogSettings(NamedTuple):
    """How the client's root logger writes to its terminal.

    Attributes:
        root: Level of the logger.
        level: Level of the handler.
        stream: ``"stdout"`` or ``"stderr"``.
        template: As `logging.Formatter` takes it, and so are the next two.
    """

    root: int
    level: int
    stream: str
    template: str | None
    date: str | None
    style: str


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
        rank: Its linear rank in the mesh; in a request that goes to several hosts, among the procs
            of its host.
        command: What to execute; None forks the spawner.
        env: Changes to the environment: name to value, or to None to remove a variable.
        inherit_env: Change that of the request; otherwise an empty one.
        cpus: CPUs it is bound to, as ``taskset`` writes them; empty for all.
        nodes: What ``numactl`` is asked for, ``cpunodebind`` for one, with its value.
        incarnation: How often it has been started before.
        log_level: Level of its root logger, where a client has asked for one since; filled in by
            its agent.
    """

    rank: int
    command: Command | None
    env: dict[str, str | None]
    inherit_env: bool = True
    cpus: str = ""
    nodes: tuple[tuple[str, str], ...] = ()
    incarnation: int = 0
    log_level: int | None = None

    @property
    def key(self) -> Hashable:
        """Equal for those that start alike, apart from where."""
        return self._replace(env=tuple(self.env.items()))  # type: ignore[arg-type]  # only compared

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """The whole environment of the process."""
        merged: dict[str, str | None] = {**(base if self.inherit_env else {}), **self.env}
        return {name: value for name, value in merged.items() if value is not None}


class SpawnRequest(NamedTuple):
    """Procs of one mesh, the same on each host that gets this.

    Attributes:
        mesh: Id of the proc mesh.
        name: Its name, for people.
        sizes: Of the whole mesh, by dimension. (An `Extent` would bring the actor API, and with
            it actors, to the agent.)
        per_host: Number of ranks on each host.
        starts: The procs to start.
        owner: The actor that owns them.
        root: The client they belong to.
        sys_path: Where they import from.
        cwd: Their working directory.
        environ: The environment that they inherit; None for that of the host.
        preload: Modules to import once, before forking.
        config: Configuration they inherit.
        nesting: Where they stand among procs that own procs.
        restarts: Whether procs that fail may be started again.
        logging: How they log, as long as they configure nothing themselves.
        host: What the requester calls this host, by which the procs will be known; filled in there.
    """

    mesh: str
    name: str
    sizes: dict[str, int]
    per_host: int
    starts: tuple[Start, ...]
    owner: ActorAddress
    root: ProcAddress
    sys_path: list[str]
    cwd: str
    environ: dict[str, str] | None
    preload: tuple[str, ...]
    config: dict[str, object]
    nesting: Nesting = Nesting(1)
    restarts: bool = False
    logging: LogSettings | None = None
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
        """True if programs that the procs have started end with them."""
        # defaults are not sent along
        return bool(self.config.get("end_process_groups", True))
