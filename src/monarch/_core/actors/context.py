"""The current context: the running actor as it sees itself, and the rank of its message.

Kept in a context variable, so it follows asyncio tasks and `asyncio.to_thread`. Threads that an
actor starts belong to that actor; they do not inherit context variables, so each process that runs
actors notes, as a thread starts, who started it. Everything else in the client is the root client.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from ..._guards.main_guard import note_importer
from ..._namedtuple import NamedTuple
from ..calls.message import NO_EXTENT
from ..extension import client_context
from ..shape import Extent, Point
from ..supervision.failure import ABORTED
from ..wire import reducers
from ..wire.address import ROOT, ProcAddress

if TYPE_CHECKING:
    from ..hub.message_hub import MessageHub
    from ..hub.spawn_requests import CreatorInstance
    from .base_cell import BaseCell


EndHook = Callable[[Any, "BaseException | None"], Any]


class NotYet(Exception):
    """A sign that arguments, read on an event loop, are not there yet.

    Waiting for them must not block the loop.

    Attributes:
        subscribe: Takes a function that is called, on some thread, when it is worth trying again.
    """

    def __init__(self, subscribe: Callable[[Callable[[], object]], None]) -> None:
        super().__init__("the arguments are not there yet")
        self.subscribe = subscribe


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

    def __init__(self, cell: BaseCell, record: CreatorInstance) -> None:
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


class Context:
    """The current actor and message.

    Attributes:
        actor_instance: The actor that runs, an `Instance`.
        message_rank: Its position in the mesh, or slice, that the current message was sent to.
    """

    __slots__ = ("_cell", "_endpoint", "_extent", "_hooks", "_rank")

    def __init__(
        self, cell: BaseCell, rank: int = 0, extent: Extent = NO_EXTENT, endpoint: str = ""
    ) -> None:
        self._cell = cell
        self._endpoint = endpoint
        self._rank = rank
        self._extent = extent
        self._hooks: list[EndHook] | None = None

    @property
    def actor_instance(self) -> Instance:
        return self._cell.instance

    @property
    def message_rank(self) -> Point:
        return Point(self._rank, self._extent)

    @property
    def trace(self) -> str:
        """The W3C trace context of the call that is handled; empty where its caller had none."""
        return getattr(self._endpoint, "trace", "")

    def _when_handled(self, hook: EndHook) -> None:
        """Have something called when the message has been handled: for arguments that are lent."""
        self._hooks = [*(self._hooks or ()), hook]

    def _handled(self, result: Any = None, error: BaseException | None = None) -> Any:
        """The message has been handled, with this outcome; the result that its caller shall get."""
        hooks, self._hooks = self._hooks, None
        for hook in hooks or ():
            result = hook(result, error)
        return result

    def __repr__(self) -> str:
        return f"<Context {self.actor_instance} message_rank={self.message_rank!r}>"

    def __reduce__(self) -> Any:
        raise TypeError("a Context cannot be sent to another process")


current: ContextVar[Context | None] = ContextVar("monarch_context")
_fallback: Callable[[], Context] | None = None


def set_fallback(make: Callable[[], Context], override: bool = False) -> None:
    """Set the answer of `context()` outside actors.

    In the client that is the root client, booted on first use.
    """
    global _fallback
    if override or _fallback is None:
        _fallback = make


def running() -> Context | None:
    """The context of the actor that runs; None where none does."""
    return current.get(None) or getattr(threading.current_thread(), "_monarch_context", None)


def context() -> Context:
    """The current context; never fails.

    On the client, outside of actors, that of the root client.
    """
    # as `running()`, without its call: each use of the API passes here
    found = current.get(None) or getattr(threading.current_thread(), "_monarch_context", None)
    if found is not None:
        return found
    if _fallback is None:  # the program has imported nothing that makes it a client
        fresh: Context = client_context()
        return fresh
    return _fallback()


def _own_classes() -> dict[str, type] | None:
    here = running()
    return None if here is None else here._cell.classes


reducers.own_classes = _own_classes


def forget() -> None:
    """Forget the actor in a forked child: it does not run in this process."""
    current.set(None)
    vars(threading.current_thread()).pop("_monarch_context", None)


def current_hub() -> MessageHub:
    """The message hub of this process."""
    return context()._cell.hub


def note_thread_starters() -> None:
    """Have each thread that starts from now on remember the actor that started it."""
    start = threading.Thread.start
    if hasattr(start, "_monarch"):
        return

    def start_noting(thread: threading.Thread) -> None:
        starter = running()
        if starter is not None:
            thread._monarch_context = starter  # type: ignore[attr-defined]  # ours
            note_importer(thread)
        start(thread)

    start_noting._monarch = True  # type: ignore[attr-defined]  # marks the patch
    # no hook before Python 3.14
    threading.Thread.start = start_noting  # type: ignore[method-assign, assignment]


def current_rank() -> Point:
    """Position of the current actor in the mesh, or slice, that the current message was sent to."""
    return context().message_rank


def current_size() -> dict[str, int]:
    """Sizes, by label, of the mesh or slice that the current message was sent to."""
    return dict(context().message_rank.extent)


def current_actor_name() -> str:
    """Id of the current actor, an address-like text."""
    return str(context().actor_instance.actor_id)
