"""`ActorMesh.update_class`: actors that run take another class, and keep what they hold.

An update is two calls to the actors, so it has its place among their other messages, waits for
ranks that start again, and ends as calls do. The first one asks each rank whether it can; the
second one has it done. In between, the owner of the actors is told, so that a rank that fails from
then on starts again with the new class; one that fails before it took it is asked again.

What ends its wait: the answers of the ranks, their end, or that of their owner. Those end that of
an update that was begun before this one, too, and so this one's wait for its turn.
"""

from __future__ import annotations

import contextvars
import sys
import threading
from pickle import PickleBuffer
from typing import Any, cast

from .._core import plane
from .._namedtuple import NamedTuple
from .._patterns.activities import owners_of
from ..actor import Actor, ActorMesh, Endpoint, Future, context, endpoint
from ..programs import ask


class Succeed(NamedTuple):
    """Start these ranks with this class when they start again.

    Client of a mesh ──▶ the process of its owner. Answer: None.

    Attributes:
        uid: Of the actors.
        ranks: Of the whole mesh.
        name: Its name, which its pickle does not keep.
        successor: Its pickle.
    """

    uid: int
    ranks: list[int]
    name: str
    successor: bytes


class ActorPlace(NamedTuple):
    """Which rank an actor is, and what it needs when it starts again.

    Attributes:
        rank: Of the whole mesh.
        owner: The process of its owner; None if it does not start again.
    """

    rank: int
    owner: plane.ProcAddress | None


_lock = threading.Lock()
# of the updates under way, by the uid of the mesh: set when it is over
_latest: dict[int, threading.Event] = {}


def update_class(mesh: ActorMesh[Any], cls: Any) -> Future[None]:
    """See `ActorMesh.update_class`."""
    _check(mesh, cls)
    take: Endpoint[..., Any] = Endpoint(mesh._target, "update_class", endpoint(take_class))
    asked = _hidden(take).call(cls, None)
    done: plane.Promise[None] = plane.Promise(plane.operation_of(asked))
    turn = threading.Event()
    with _lock:
        args = _take_turn, _latest.get(mesh._uid), turn, done, mesh, cls, take, asked
        run = contextvars.copy_context().run
        threading.Thread(target=run, args=args, name="monarch-update", daemon=True).start()
        _latest[mesh._uid] = turn
    return done.future


def _check(mesh: ActorMesh[Any], cls: Any) -> None:
    if not isinstance(cls, type) or not issubclass(cls, Actor):
        raise TypeError(f"update_class takes a subclass of monarch.actor.Actor, got {cls!r}")
    plane.check_names(cls)
    old: type = mesh._class
    if cls is old:
        raise ValueError(
            f"{cls.__qualname__} is the class that they run; define it anew, as its edited `class`"
            " statement does"
        )
    if plane.describe_class(cls).is_async != plane.describe_class(old).is_async:
        was, now = (
            ("async def", "def") if plane.describe_class(old).is_async else ("def", "async def")
        )
        raise ValueError(
            f"the endpoints of {old.__qualname__} were `{was}` and are `{now}`: that decides how an"
            " actor waits for its messages, and can't change while it lives. Spawn new actors"
        )
    same_name = (cls.__module__, cls.__qualname__) == (old.__module__, old.__qualname__)
    if same_name and plane.is_importable(cls):
        raise ValueError(
            f"{cls.__qualname__} would go by its name to procs that have imported {cls.__module__}"
            " before it was edited. Bring the new file there: `await hosts.sync_workspace(folder,"
            " auto_reload=True)`, or `monarch sync --reload`"
        )


def _hidden(take: Endpoint[..., Any]) -> Endpoint[..., Any]:
    take._meta = plane.UPDATE_CLASS  # no endpoint of the class can be called that
    return take


def _take_turn(
    before: threading.Event | None,
    turn: threading.Event,
    done: plane.Promise[None],
    mesh: Any,
    *rest: Any,
) -> None:
    """Continue an update of this mesh that began before.

    Two in turns would leave each rank with another one's class.
    """
    try:
        if before is not None:
            before.wait()
        _go_on(done, mesh, *rest)
    finally:
        with _lock:
            if _latest.get(mesh._uid) is turn:
                del _latest[mesh._uid]
        turn.set()


def _go_on(
    done: plane.Promise[None],
    mesh: ActorMesh[Any],
    cls: type,
    take: Endpoint[..., Any],
    asked: Future[Any],
) -> None:
    try:
        ranks: dict[plane.ProcAddress, list[int]] = {}
        for rank, owner in asked.get().values():
            if owner is not None:
                ranks.setdefault(owner, []).append(rank)
        hub = plane.current_hub()
        content = plane.pickling.dumps_inline(cls)
        name = f"{cls.__module__}.{cls.__qualname__}"
        for told in [
            ask(hub, owner, Succeed(mesh._uid, some, name, content))
            for owner, some in ranks.items()
        ]:
            told.get()
        try:
            # a rank that was lost, and starts again, may do so with the old class, as its owner was
            # told too late
            _hidden(take.options(retries=sys.maxsize)).call(cls, name).get()
        finally:
            mesh._became(cls)
    except BaseException as error:
        done.reject(error)
    else:
        done.resolve(None)


def take_class(actor: Any, cls: type, name: str | None) -> ActorPlace:
    """Give the actor of this thread another class.

    Args:
        actor: The actor.
        cls: Its new class.
        name: That of the class where it comes from, as a pickle does not keep it; None only asks
            whether it can.

    Raises:
        TypeError: Its objects are laid out otherwise.
    """
    old = type(actor)
    try:
        actor.__class__ = cls
    except TypeError as error:
        raise TypeError(
            f"an actor of {old.__qualname__} can't take the new class and keep its state, as"
            " objects of that are laid out otherwise (`__slots__`, or another base class in C):"
            f" {error}. Spawn new actors"
        ) from None
    if name is None:
        actor.__class__ = old
    here = context()
    cell = cast("Any", here._cell)
    if name is not None:
        cell.record.class_name = name
        if plane.describe_class(cls).is_async:
            cell.queue_again()
    spec = cell._spec
    return ActorPlace(here.actor_instance.rank.rank, spec.owner.proc if spec.restarts else None)


@plane.handles(Succeed)
def _succeed(service: plane.ControlService, request: plane.ControlRequest, record: Succeed) -> None:
    for owner in owners_of(service.hub):
        mesh = owner.ownership.get(record.uid)
        if isinstance(mesh, plane.OwnedActors) and mesh.init is not None:
            init = plane.pickling.dumps(_Successor(mesh.init, record.successor))
            mesh.successors.update(dict.fromkeys(record.ranks, (record.name, init)))
    request.answer(None)


class _Successor:
    """Arguments of a spawn, with another class.

    They are unpickled where the actor is constructed, and not before.
    """

    def __init__(self, init: tuple[bytes, Any], cls: bytes) -> None:
        self._init = init
        self._cls = cls

    def __reduce__(self) -> Any:
        payload, buffers = self._init
        return _with_class, (
            PickleBuffer(payload),
            [PickleBuffer(each) for each in buffers],
            self._cls,
        )


def _with_class(payload: Any, buffers: list[Any], cls: bytes) -> tuple[type, Any, Any]:
    _, args, kwargs = plane.pickling.loads(payload, buffers)
    return plane.pickling.loads(cls), args, kwargs


HANDLERS = (_succeed,)
