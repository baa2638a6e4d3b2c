"""Controllers: actors that exist once per program, in the client's process, reachable by name from everywhere."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from ..._namedtuple import NamedTuple
from ..actors.actor import Actor
from ..actors.cell import SpawnSpec
from ..actors.context import context
from ..actors.endpoint import describe_class
from ..actors.proc_system import ProcSystem
from ..actors.request import One
from ..calls.future import Future, map_future
from ..calls.message import NO_EXTENT
from ..hub.contracts import Origin
from ..hub.system import System
from ..shape import Shape
from ..supervision.failure import Failure, MeshFailure
from ..wire import pickling
from ..wire.address import ROOT, SYSTEM, ActorAddress, ProcAddress, random_uid
from ..wire.frame import Frame
from .actor_mesh import ActorMesh
from .proc_mesh import _check_class, client_proc_mesh

P = ParamSpec("P")
A = TypeVar("A", bound=Actor)


class _Controller(NamedTuple):
    uid: int
    class_payload: bytes  # opaque here: user classes are unpickled by whoever asked, never on the I/O thread


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

    Returns:
        A future of the reference; done when the actor exists, not when its ``__init__`` has returned. It raises
        ValueError, inside an ActorError, if the controller has failed.
    """
    cls = _check_class(Class, args, kwargs)
    cell = context()._cell
    root = cell.node.root
    class_payload = pickling.dumps_inline(cls)
    init = pickling.dumps_inline((cls, args, kwargs))
    info = (f"{cls.__module__}.{cls.__qualname__}", describe_class(cls).is_async)
    request = One(f"get_or_spawn_controller({name!r})", SYSTEM, root, cell.node)
    content = pickling.dumps_call((name, *info, class_payload, init), {})
    cell.node.cast([root], SYSTEM, b"controller", content, request, cell.uid)

    def reference(found: tuple[int, bytes]) -> A:
        uid, payload = found
        mesh: Any = ActorMesh(pickling.loads(payload), name, uid, (root,), Shape.unity())
        return mesh  # type: ignore[no-any-return]  # a mesh, typed as its class

    return map_future(request.future, reference)


def _on_controller(
    system: System, origin: Origin, frame: Frame, name: str, class_name: str, is_async: bool, cls: bytes, init: bytes
) -> None:
    """In the client: find or create a controller."""
    assert isinstance(system, ProcSystem)
    table = _tables.setdefault(system.node.address, _Table())
    with table.lock:
        found = table.by_name.get(name)
        if found is None:
            found = table.by_name[name] = _Controller(random_uid(), bytes(cls))
            _create(system, table, name, found.uid, class_name, is_async, init)
        failure = table.failures.get(name)
    if failure is None:
        system.answer(origin, frame, (found.uid, found.class_payload))
    else:
        system.answer_error(origin, frame, ValueError(f"Failure on {name}: {MeshFailure(failure)!r}"))


def _create(
    system: ProcSystem, table: _Table, name: str, uid: int, class_name: str, is_async: bool, init: bytes
) -> None:
    root = system.node.actors[ROOT]
    record = root.record  # type: ignore[attr-defined]  # the root cell has one
    here = client_proc_mesh(system.node.address)
    nobody = ActorAddress(ProcAddress("", ""), 0)
    spec = SpawnSpec(uid, name, class_name, nobody, record, here, NO_EXTENT)

    def failed(failure: Failure) -> None:
        table.failures[name] = failure

    system.spawn(spec, is_async, 0, (init, []), on_failed=failed).try_to_start()


System.handlers["controller"] = _on_controller
