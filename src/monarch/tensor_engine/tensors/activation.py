"""The active mesh.

Operations without a distributed tensor among their arguments belong to it.

It is a context variable, so it belongs to one thread, or to one task of asyncio. torch's
interception belongs to a thread. So a thread gets an `_Interceptor` when the first of its tasks
activates a mesh, and that asks for each operation whether the task at hand has one.
"""

from __future__ import annotations

import threading
from contextvars import Token
from functools import cache
from typing import TYPE_CHECKING, Any, cast

import torch
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


_UNCLEAR = {
    "data is not allocated yet": "this reads values of a distributed tensor, which are on the ranks:"
    " write torch.stack([a, b]) for torch.tensor([a, b]), give tensor_split a list of numbers, or"
    " call it in a remote function",
    "Tensor subclass Uninitialized": "a lazy module finds its sizes in values that are on the ranks:"
    " make it with all its sizes, such as nn.Linear(in_features, out_features)",
    "cannot be called on meta tensors": "this reads values of a distributed tensor, which are on the"
    " ranks, as sparse and nested tensors do: make and use them in a remote function",
}
"""Errors of torch from places that no mode can intercept: part of the text, and the remedy."""


def _explain(error: object) -> None:
    """Say what to do in an error that speaks of torch's inside alone."""
    if isinstance(error, RuntimeError):
        told, _, _ = str(error).partition("\n")
        for words, what in _UNCLEAR.items():
            if words in told:
                error.args = (f"{what} (torch says: {told})",)


@cache
def _plans_for_gpus() -> bool:
    """Return whether torch knows GPUs; operations for ranks look for none here.

    torch starts CUDA when an operation names a GPU, before a mode can intercept the operation.
    Where there is a GPU, that makes no context: only what the operation does then would make one.
    """
    start, is_built = torch.cuda._lazy_init, torch.backends.cuda.is_built()
    if is_built and torch.cuda.is_available():
        return True

    def start_here() -> None:
        if active.get() is None:
            start()
        elif not is_built:
            raise RuntimeError(
                "torch here is a build without CUDA, so it can't plan for the GPUs of the ranks:"
                " install the build that the ranks have, which needs no GPU on this machine"
            )

    torch.cuda._lazy_init = start_here
    return is_built


class _Interceptions(threading.local):
    """How many activations of this thread are entered, and what intercepts for all of them.

    Meanwhile backward passes stay on this thread: for tensors on GPUs torch has threads of its own,
    on which no stream is active, no mesh, and nothing is recorded.
    """

    count = 0
    interceptor: _Interceptor | None = None
    multithreading: Any = None
    lifts: bool

    def enter(self) -> None:
        self.count += 1
        if self.count == 1:
            self.multithreading = set_multithreading_enabled(False)
            self.multithreading.__enter__()
            self.lifts = torch._C._only_lift_cpu_tensors()
            # a literal is copied to a GPU by an operation of its own, which the ranks do
            torch._C._set_only_lift_cpu_tensors(self.lifts or _plans_for_gpus())
            self.interceptor = _Interceptor()
            self.interceptor.__enter__()

    def exit(self) -> None:
        self.count -= 1
        if not self.count and self.interceptor is not None:
            self.interceptor.__exit__(None, None, None)
            self.interceptor = None
            self.multithreading.__exit__(None, None, None)
            torch._C._set_only_lift_cpu_tensors(self.lifts)


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

    def __exit__(self, kind: object = None, error: object = None, trace: object = None) -> None:
        _explain(error)
        active.reset(self._tokens.pop())
        if self._mesh is not None:
            _interceptions.exit()


class _NoMesh:
    """``with no_mesh.activate():`` torch computes here, as if no mesh were active.

    For operations on fetched tensors, for one.
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
