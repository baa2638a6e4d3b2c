"""What should be there: procs, actors, their counters, who owns whom.

Pure; of the package under test it keeps only handles.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

ALIVE = "alive"
GOING = "going"  # its end was set off, and may not have come about yet
GONE = "gone"

POLICIES = ("handles", "ignores", "raises", "absent")  # what an actor's `__supervise__` does
CLIENT = "client"
DEEPEST = 3


@dataclass(eq=False)
class Proc:
    mesh: Procs
    rank: int
    pid: int = 0
    state: str = ALIVE
    killed: Any = None
    """How it died, if it was not stopped."""
    instances: list[Instance] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.mesh.name}[{self.rank}]"


@dataclass(eq=False)
class Procs:
    """A proc mesh."""

    name: str
    owner: Instance | None
    sizes: dict[str, int]
    handle: Any = None
    procs: list[Proc] = field(init=False)

    def __post_init__(self) -> None:
        self.procs = [Proc(self, rank) for rank in range(math.prod(self.sizes.values()))]

    @property
    def state(self) -> str:
        return ALIVE if any(proc.state == ALIVE for proc in self.procs) else GONE


@dataclass(eq=False)
class Actors:
    """An actor mesh."""

    name: str
    owner: Instance | None
    sizes: dict[str, int]
    is_async: bool
    policy: str
    handle: Any = None
    instances: list[Instance] = field(default_factory=list)

    @property
    def state(self) -> str:
        return ALIVE if any(instance.state == ALIVE for instance in self.instances) else GONE


@dataclass(eq=False)
class Instance:
    """One actor.

    Attributes:
        sent: How many messages each sender has sent it.
        counters: What each sender has added up there.
        holding: Calls that wait to be released.
        seen: It has answered; one that is stopped before it began never runs, and has nothing to
            clean up.
    """

    mesh: Actors
    rank: int
    proc: Proc
    state: str = ALIVE
    counters: Counter[str] = field(default_factory=Counter)
    holding: int = 0
    seen: bool = False
    sent: Counter[str] = field(default_factory=Counter)
    owned: list[Procs | Actors] = field(default_factory=list)

    @property
    def handles_failures(self) -> bool:
        return self.mesh.policy == "handles"

    @property
    def depth(self) -> int:
        return 1 if self.mesh.owner is None else 1 + self.mesh.owner.depth

    def __str__(self) -> str:
        return f"{self.mesh.name}[{self.rank}]"


@dataclass(frozen=True)
class View:
    """A mesh, or a slice of it, as one addresses it."""

    mesh: Actors | Procs
    select: dict[str, int | slice]

    @property
    def handle(self) -> Any:
        return self.mesh.handle.slice(**self.select) if self.select else self.mesh.handle

    @property
    def sizes(self) -> dict[str, int]:
        return {
            label: len(range(*index.indices(size))) if isinstance(index, slice) else size
            for label, size in self.mesh.sizes.items()
            if not isinstance(index := self.select.get(label), int)
        }

    @property
    def ranks(self) -> list[int]:
        return ranks_of(self.mesh.sizes, self.select)

    @property
    def instances(self) -> list[Instance]:
        assert isinstance(self.mesh, Actors)
        return [self.mesh.instances[rank] for rank in self.ranks]

    @property
    def procs(self) -> list[Proc]:
        assert isinstance(self.mesh, Procs)
        return [self.mesh.procs[rank] for rank in self.ranks]

    def __str__(self) -> str:
        return f"{self.mesh.name}{self.ranks}"


def ranks_of(sizes: dict[str, int], select: dict[str, int | slice]) -> list[int]:
    """Linear ranks that a selection picks, in row-major order."""
    picked = []
    for label, size in sizes.items():
        index = select.get(label, slice(None))
        picked.append(range(*index.indices(size)) if isinstance(index, slice) else [index])
    strides = [math.prod(list(sizes.values())[place + 1 :]) for place in range(len(sizes))]
    return [
        sum(map(math.prod, zip(point, strides, strict=True)))
        for point in itertools.product(*picked)
    ]


class World:
    """One tree: all that the client has made, directly or not.

    Args:
        prefix: Begins the name of every mesh, which so is unique in the program.
    """

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.owned: list[Procs | Actors] = []
        self.procs: list[Procs] = []
        self.actors: list[Actors] = []
        self._names = itertools.count(1)

    def add_procs(self, owner: Instance | None, sizes: dict[str, int]) -> Procs:
        mesh = Procs(f"{self.prefix}p{next(self._names)}", owner, sizes)
        self.procs.append(mesh)
        self.owned_by(owner).append(mesh)
        return mesh

    def add_actors(
        self, owner: Instance | None, where: View, is_async: bool, policy: str
    ) -> Actors:
        mesh = Actors(f"{self.prefix}a{next(self._names)}", owner, where.sizes, is_async, policy)
        for rank, proc in enumerate(where.procs):
            instance = Instance(mesh, rank, proc, proc.state)
            mesh.instances.append(instance)
            proc.instances.append(instance)
        self.actors.append(mesh)
        self.owned_by(owner).append(mesh)
        return mesh

    def owned_by(self, owner: Instance | None) -> list[Procs | Actors]:
        return self.owned if owner is None else owner.owned

    def living_procs(self) -> list[Proc]:
        return [proc for mesh in self.procs for proc in mesh.procs if proc.state == ALIVE]

    def living(self) -> Iterator[Instance]:
        return (
            instance
            for mesh in self.actors
            for instance in mesh.instances
            if instance.state == ALIVE
        )

    def numbers(self, sender: str, receivers: Sequence[Instance]) -> dict[int, int]:
        """The number that the sender's next message to each of these has; they share a mesh."""
        return {receiver.rank: receiver.sent[sender] + 1 for receiver in receivers}

    def sent(self, sender: str, receivers: Sequence[Instance]) -> None:
        for receiver in receivers:
            receiver.sent[sender] += 1
