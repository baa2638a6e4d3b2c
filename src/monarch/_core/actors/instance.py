"""An actor as it sees itself: name, place, creator, and the operations on itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..._namedtuple import NamedTuple
from ..hub.spawn_requests import CreatorInstance
from ..shape import Point
from ..supervision.failure import ABORTED
from ..wire.address import ROOT, ProcAddress

if TYPE_CHECKING:
    from .contracts import Owner


class ActorId(NamedTuple):
    """Address-like identity of one actor; `str` gives ``trainers<id>.procs-0<id>@host``."""

    actor_name: str
    uid: int
    proc_id: ProcAddress

    @property
    def label(self) -> str:
        return self.actor_name

    @property
    def proc_name(self) -> str:
        return self.proc_id.proc

    @property
    def addr(self) -> str:
        return f"unix:{self.proc_id}"

    @property
    def is_root(self) -> bool:
        return self.uid == ROOT

    def __str__(self) -> str:
        return f"{plain(self.actor_name)}<{self.uid:x}>.{self.proc_id}"


def plain(name: str) -> str:
    """A name as it may stand in an id: letters, digits, ``-`` and ``_``."""
    return "".join(char for char in name if char.isalnum() or char in "-_")


class Instance:
    """A running actor, as `context().actor_instance` gives it."""

    __slots__ = ("_cell", "_record")

    def __init__(self, cell: Owner, record: CreatorInstance) -> None:
        self._cell = cell
        self._record = record

    @property
    def name(self) -> str:
        """The name it was spawned with; ``"root"`` on the client."""
        return self._record.name

    @property
    def class_name(self) -> str | None:
        """``module.QualName``; None on the client."""
        return self._record.class_name

    @property
    def rank(self) -> Point:
        """The position of the actor in the mesh that it was spawned in; never changes."""
        return self._record.rank

    @property
    def proc_mesh(self) -> Any:
        """The proc mesh it was spawned on."""
        return self._record.proc_mesh

    @property
    def proc(self) -> Any:
        """The one-element proc mesh of its process."""
        return self._record.proc

    @property
    def incarnation(self) -> int:
        """The number of restarts of this rank after failures; 0 at first."""
        return self._cell.incarnation

    @property
    def creator(self) -> CreatorInstance | None:
        """The actor that spawned this one; None on the client."""
        return self._record.creator

    @property
    def actor_id(self) -> ActorId:
        uid = self._cell.uid
        return ActorId("client" if uid == ROOT else self.name, uid, self._cell.hub.address)

    @property
    def proc_id(self) -> str:
        return str(self._cell.hub.address)

    def stop(self, reason: str | None = None) -> None:
        """End this actor after the current message; not a failure for its owner."""
        self._cell.stop_itself(reason or "stopped by itself")

    def kill(self, reason: str | None = None) -> None:
        """End this actor with a failure that its owner hears of."""
        text = reason or "no reason provided"
        self._cell.end(self._cell.own_failure(ABORTED, f"actor explicitly aborted due to: {text}"))

    abort = kill

    def __str__(self) -> str:
        return str(self._record)

    __repr__ = __str__

    def __reduce__(self) -> Any:
        raise TypeError(
            "an Instance cannot be sent to another process; send str(instance), or its creator"
            " record"
        )
