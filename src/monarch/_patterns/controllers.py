"""Controllers: actors that exist once per program.

They live in the client's process, and are reachable by name from everywhere.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from .._core.actors.actor import Actor
from .._core.actors.context import context
from .._core.actors.endpoint import describe_class
from .._core.actors.proc_service import ProcService
from .._core.actors.request import UnaryCall
from .._core.calls.future import Future
from .._core.calls.message import NO_EXTENT
from .._core.calls.promise import map_future
from .._core.hub.control import send_record
from .._core.hub.control_service import ControlRequest, handles
from .._core.hub.spawn_requests import SpawnSpec
from .._core.mesh.actor_mesh import ActorMesh
from .._core.mesh.proc_mesh import _check_class, client_proc_mesh
from .._core.shape import Shape
from .._core.supervision.failure import Failure, MeshFailure
from .._core.wire import pickling
from .._core.wire.address import ROOT, SYSTEM, ActorAddress, ProcAddress, random_uid
from .._namedtuple import NamedTuple

P = ParamSpec("P")
A = TypeVar("A", bound=Actor)


class GetController(NamedTuple):
    """Find the controller of a name, or make it. Anybody ──▶ the client.

    Answer: the actor's id, and the pickled class it was made with; an error if it has failed. The
    client has ended: so has the program.

    Attributes:
        class_payload: The pickled class, opaque to the client: it is the asker's.
        init: Pickle of the class and its constructor's arguments.
    """

    name: str
    class_name: str
    is_async: bool
    class_payload: bytes
    init: bytes


class _Controller(NamedTuple):
    uid: int
    # opaque here: user classes are unpickled by the asker, never on the I/O thread
    class_payload: bytes


class _Table:
    """The controllers of one client process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.by_name: dict[str, _Controller] = {}
        self.failures: dict[str, Failure] = {}


_tables: dict[ProcAddress, _Table] = {}


def get_or_spawn_controller(
    name: str,
    Class: Callable[P, A],  # noqa: N803  # the name that programs know
    *args: P.args,
    **kwargs: P.kwargs,
) -> Future[A]:
    """The one actor of that name, created in the client's process by the first call with it.

    Args:
        name: One name space per program.
        Class: Its class, if it does not exist yet; ignored otherwise, like the arguments.
        *args: Arguments of its constructor.
        **kwargs: As `args`.

    Returns:
        A future of the reference; done when the actor exists, not when its ``__init__`` has
        returned. It raises ValueError, inside an ActorError, if the controller has failed.
    """
    cls = _check_class(Class, args, kwargs)
    cell = context()._cell
    root = cell.hub.root
    class_payload = pickling.dumps_inline(cls)
    init = pickling.dumps_inline((cls, args, kwargs))
    class_name, is_async = f"{cls.__module__}.{cls.__qualname__}", describe_class(cls).is_async
    request = UnaryCall(f"get_or_spawn_controller({name!r})", SYSTEM, root, cell.hub)
    record = GetController(name, class_name, is_async, class_payload, init)
    send_record(cell.hub, root, record, request, cell.uid)

    def reference(found: tuple[int, bytes]) -> A:
        uid, payload = found
        mesh: Any = ActorMesh(pickling.loads(payload), name, uid, (root,), Shape.unity())
        return mesh  # type: ignore[no-any-return]  # a mesh, typed as its class

    return map_future(request.future, reference)


@handles(GetController)
def _find_or_create(service: ProcService, request: ControlRequest, record: GetController) -> None:
    name = record.name
    table = _tables.setdefault(service.hub.address, _Table())
    with table.lock:
        found = table.by_name.get(name)
        if found is None:
            found = table.by_name[name] = _Controller(random_uid(), record.class_payload)
            _create(service, table, found.uid, record)
        failure = table.failures.get(name)
    if failure is None:
        request.answer((found.uid, found.class_payload))
    else:
        request.fail(ValueError(f"Failure on {name}: {MeshFailure(failure)!r}"))


def _create(service: ProcService, table: _Table, uid: int, wanted: GetController) -> None:
    root = service.hub.actors[ROOT]
    creator = root.record  # type: ignore[attr-defined]  # the root cell has one
    here = client_proc_mesh(service.hub.address)
    no_owner = ActorAddress(ProcAddress("", ""), 0)
    spec = SpawnSpec(uid, wanted.name, wanted.class_name, no_owner, creator, here, NO_EXTENT)

    def failed(failure: Failure) -> None:
        table.failures[wanted.name] = failure

    service.spawn(spec, wanted.is_async, 0, (wanted.init, []), on_failed=failed).try_to_start()


HANDLERS = (_find_or_create,)
