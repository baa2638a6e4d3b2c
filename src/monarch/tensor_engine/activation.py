"""The active mesh.

Operations without a distributed tensor among their arguments belong to it.

It is a context variable, so it belongs to one thread, or to one task of asyncio. torch's
interception belongs to a thread. So a thread gets an `_Interceptor` when the first of its tasks
activates a mesh, and that asks for each operation whether the task at hand has one.
"""

from __future__ import annotations

import threading
from contextvars import Token
from typing import TYPE_CHECKING, Any, cast

from torch.autograd.grad_mode import set_multithreading_enabled
from torch.utils._python_dispatch import TorchDispatchMode

from . import tensor
from .rank_mesh import RankMesh, active

if TYPE_CHECKING:
    from .device_mesh import DeviceMesh


class _Interceptor(TorchDispatchMode):
    supports_higher_order_operators = True  # to say what to do instead

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        mesh = active.get()
        if mesh is None:
            return func(*args, **(kwargs or {}))
        return tensor.dispatch(func, args, kwargs or {}, mesh, self)


class _Interceptions(threading.local):
    """How many activations of this thread are entered, and what intercepts for all of them.

    Meanwhile backward passes stay on this thread: for tensors on GPUs torch has threads of its own,
    on which no stream is active, no mesh, and nothing is recorded.
    """

    count = 0
    interceptor: _Interceptor | None = None
    multithreading: Any = None

    def enter(self) -> None:
        self.count += 1
        if self.count == 1:
            self.multithreading = set_multithreading_enabled(False)
            self.multithreading.__enter__()
            self.interceptor = _Interceptor()
            self.interceptor.__enter__()

    def exit(self) -> None:
        self.count -= 1
        if not self.count and self.interceptor is not None:
            self.interceptor.__exit__(None, None, None)
            self.interceptor = None
            self.multithreading.__exit__(None, None, None)


_interceptions = _Interceptions()


class Activation:
    """``with mesh.activate():``.

    Takes effect at ``with``; may be entered again after it was left. Activations nest.

    Args:
        mesh: None for no mesh.
    """

    def __init__(self, mesh: DeviceMesh | None) -> None:
        self._mesh = mesh
        self._tokens: list[Token[RankMesh | None]] = []

    def __enter__(self) -> DeviceMesh | None:
        self._tokens.append(active.set(self._mesh))
        if self._mesh is not None:
            _interceptions.enter()
        return self._mesh

    def __exit__(self, *raised: object) -> None:
        active.reset(self._tokens.pop())
        if self._mesh is not None:
            _interceptions.exit()


class _NoMesh:
    """``with no_mesh.activate():`` torch computes here, as if no mesh were active.

    For what was fetched, for one.
    """

    def activate(self) -> Activation:
        return Activation(None)

    def __repr__(self) -> str:
        return "no_mesh"


no_mesh = _NoMesh()


def get_active_mesh() -> DeviceMesh:
    """The active mesh.

    Raises:
        ValueError: There is none.
    """
    mesh = active_mesh()
    if mesh is None:
        raise ValueError("no device mesh is active; use `with mesh.activate():`")
    return mesh


def active_mesh() -> DeviceMesh | None:
    """The active mesh, if there is one."""
    return cast("DeviceMesh | None", active.get())  # nothing else is ever activated
