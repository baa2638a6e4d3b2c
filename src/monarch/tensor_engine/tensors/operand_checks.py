"""Errors for tensors that were used together and do not belong together.

They name the operation, each bad argument, and the way out.
"""

from __future__ import annotations

import dis
import os
import sys
from collections.abc import Sequence
from typing import Any

import torch

from ..controller.engine import holder
from ..errors import OperatorError, TensorError
from .rank_mesh import active as active_mesh
from .streams import active, stream_of
from .tensor_base import Bar, Storage, TensorBase

_OPERATORS = ("BINARY_OP", "BINARY_ADD", "BINARY_SUBTRACT", "BINARY_M", "BINARY_T", "BINARY_F", "BINARY_P", "BINARY_A",
              "BINARY_O", "BINARY_X", "BINARY_L", "BINARY_R", "INPLACE_", "COMPARE_OP")  # fmt: skip
_OURS = os.path.dirname(__file__) + os.sep
_TORCH = os.path.dirname(torch.__file__) + os.sep

LABELS = {
    "LOCAL_TENSOR": (
        "a tensor of this process. Give each rank a copy: monarch.tensor_engine.distribute(tensor),"
        " or make it while the mesh is active; or compute with it here, under `with"
        " no_mesh.activate():`"
    ),
    "WRONG_MESH": "a tensor of another mesh. Move it with to_mesh",
    "WRONG_STREAM": (
        "a tensor of another stream. Activate that stream, or borrow the tensor:"
        " stream.borrow(tensor)"
    ),
    "DROPPED": "a tensor that was dropped",
    "BORROWED": "lent to another stream, which may write to it. Drop the borrow first",
    "MUTATING_BORROW": (
        "lent to be read, and would be mutated. Drop the borrow first, or borrow it with"
        " mutable=True"
    ),
    "REQUIRES_GRAD": (
        "a tensor that requires a gradient, which this operation does not pass on. Use detach(), or"
        " torch.no_grad()"
    ),
}

_EVENTS = {"DROPPED": "dropped", "BORROWED": "borrowed", "MUTATING_BORROW": "borrowed"}


def error(
    function: str,
    args: Any,
    kwargs: Any,
    written: Sequence[Storage] = (),
    stream: int | None = None,
) -> Exception:
    """The error for an operation; finds the fault in its arguments by itself.

    Args:
        function: Name of the operation.
        args: Its arguments.
        kwargs: Its arguments by name.
        written: What it writes to.
        stream: Of the operation; by default the active one.
    """
    found = [arg for arg in _leaves((args, kwargs)) if isinstance(arg, torch.Tensor)]
    mesh = next((arg.mesh for arg in found if isinstance(arg, TensorBase)), None)
    problems: list[tuple[str, torch.Tensor]] = []
    numbers: dict[int, int] = {}
    for arg in found:
        label = _problem(arg, mesh, active.get().number if stream is None else stream, written)
        if label is not None and id(arg) not in numbers:
            numbers[id(arg)] = len(problems)
            problems.append((label, arg))
    shown = [_show(arg, numbers) for arg in args] + [
        f"{name}={_show(arg, numbers)}" for name, arg in kwargs.items()
    ]
    return _make(f"{function}({', '.join(shown)})", problems, mesh)


def admit(function: str, args: Any, kwargs: Any) -> None:
    """Begin what the arguments of an operation need, and raise if they can't be used even then."""
    found = [arg for arg in _leaves((args, kwargs)) if isinstance(arg, torch.Tensor)]
    for arg in found:
        if isinstance(arg, TensorBase):
            _begin(arg)
    mesh = next(arg.mesh for arg in found if isinstance(arg, TensorBase))
    stream = active.get().number
    if any(_problem(arg, mesh, stream, ()) is not None for arg in found):
        raise error(function, args, kwargs)


def local_error(function: str, arg: Any) -> Exception:
    """The error for one argument that should be distributed; None where a mesh should be active."""
    if isinstance(arg, torch.Tensor):
        return _make(f"{function}(ERROR_0)", [("LOCAL_TENSOR", arg)], None)
    if arg is not None:
        return TypeError(f"{function} takes a distributed tensor, got {arg!r}")
    return ValueError(
        f"{function} needs an active mesh, as none of its arguments is a distributed tensor: `with"
        " mesh.activate():`"
    )


def storage_error(function: str) -> Exception:
    """The error for memory of this process that a distributed tensor should take."""
    return RuntimeError(
        f"{function}: a distributed tensor can't take memory of this process. Where a mesh is"
        " active, local tensors can't be loaded (torch.load), unpickled, deep-copied or shared: do"
        " that under `with no_mesh.activate():`, and give what comes out of it to"
        " monarch.tensor_engine.distribute"
    )


def grad_error(function: str, arg: Any) -> Exception:
    """The error for a tensor that requires a gradient where none can be passed on."""
    return _make(f"{function}(ERROR_0)", [("REQUIRES_GRAD", arg)], arg.mesh)


def check(function: str, arg: Any, any_stream: bool = False) -> None:
    """Raise unless this is a distributed tensor that can be used, on the active stream or on any.

    A borrowed tensor counts as used from here on.
    """
    if not isinstance(arg, TensorBase):
        raise local_error(function, arg)
    _begin(arg)
    value = arg._value
    if value.storage.barred is not None or not (
        any_stream or value.lane.stream == active.get().number
    ):
        raise error(function, (arg,), {}, stream=value.lane.stream if any_stream else None)
    if (held := holder()) is not None:
        held.note([arg])


def check_write(function: str, arg: TensorBase) -> None:
    """Raise if a tensor that can be used can't be written to."""
    if arg._value.storage.frozen is not None:
        raise error(function, (arg,), {}, [arg._value.storage])


def _begin(arg: TensorBase) -> None:
    barred = arg._value.storage.barred
    if barred is not None and type(barred) is not Bar:
        barred.begin()


def _problem(arg: torch.Tensor, mesh: Any, stream: int, written: Sequence[Storage]) -> str | None:
    if not isinstance(arg, TensorBase):
        return "LOCAL_TENSOR"
    value = arg._value
    if value.mesh is not mesh:
        return "WRONG_MESH"
    if type(value.storage.barred) is Bar:
        return value.storage.barred.label
    if value.lane.stream != stream:
        return "WRONG_STREAM"
    return (
        "MUTATING_BORROW" if value.storage.frozen is not None and value.storage in written else None
    )


def _make(call: str, problems: list[tuple[str, torch.Tensor]], mesh: Any) -> Exception:
    lines = [
        (
            f"{call}: these tensors can't be used together"
            if len(problems) > 1
            else f"{call}: it can't be used here"
        )
    ]
    for number, (label, arg) in enumerate(problems):
        lines.append(f"  ERROR_{number}: {label}: {_describe(arg)} is {LABELS[label]}.")
        if label == "WRONG_STREAM":
            lines.append(f"    Its stream is {stream_of(arg._value.lane.stream)!r}.")
        elif label in _EVENTS:
            storage = arg._value.storage
            bar: Any = storage.frozen if label == "MUTATING_BORROW" else storage.barred
            lines.append(f"    It was {_EVENTS[label]} here:\n{bar.stack}")
    lines.append(
        f"  mesh of the operation: {mesh!r}; active mesh: {active_mesh.get()!r}; active stream:"
        f" {active.get()!r}"
    )
    kind = OperatorError if _from_operator() else TensorError
    return kind("\n".join(lines))


def _describe(arg: torch.Tensor) -> str:
    if isinstance(arg, TensorBase):
        return repr(arg)
    return f"torch.Tensor({tuple(arg.shape)}, dtype={arg.dtype}, device={str(arg.device)!r})"


def _show(arg: Any, numbers: dict[int, int]) -> str:
    if id(arg) in numbers:
        return f"ERROR_{numbers[id(arg)]}"
    if isinstance(arg, torch.Tensor):
        return "."
    if isinstance(arg, (list, tuple)):
        return f"[{', '.join(_show(each, numbers) for each in arg)}]"
    return repr(arg)


def _leaves(arg: Any) -> list[Any]:
    if isinstance(arg, (list, tuple)):
        return [leaf for each in arg for leaf in _leaves(each)]
    if isinstance(arg, dict):
        return [leaf for each in arg.values() for leaf in _leaves(each)]
    return [arg]


def _from_operator() -> bool:
    """Return whether the innermost line outside of torch and this package is inside an operator.

    There Python takes a TypeError for "these types have no such operator", and says only that.
    """
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith((_OURS, _TORCH)):
        frame = frame.f_back
    return dis.opname[frame.f_code.co_code[frame.f_lasti]].startswith(_OPERATORS)
