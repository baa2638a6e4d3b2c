"""The errors of distributed tensors, as programs see them."""

from __future__ import annotations

from collections import deque
from typing import Any

from . import call_sites
from .instructions import Poison

# hashes of failures that the program was told of; the last of them
_told: deque[int] = deque(maxlen=10_000)


def was_told(poison: Poison) -> bool:
    """Return whether the program has got a `RemoteException` for a failure, wherever fetched."""
    return hash(poison) in _told


class RemoteException(Exception):
    """An operation failed on a worker, some time after it was issued.

    It is raised where something that depends on it is fetched.

    Attributes:
        rank: The rank of the engine on which it failed.
        worker_error_string: The worker's traceback.
        controller_frames: The stack that issued the operation, outermost first.
    """

    def __init__(self, poison: Poison) -> None:
        _told.append(hash(poison))
        self._poison = poison
        self.rank = poison.rank
        self.worker_error_string = poison.error
        self.controller_frames = call_sites.lines(poison.site)
        self.function = poison.function
        stack = "\n".join(map(str, self.controller_frames)) or "  (not known)"
        line = call_sites.user_line(poison.site)
        where = f", issued at {line.where}:{line.line}," if line is not None else ""
        super().__init__(
            f"{poison.function}{where} failed asynchronously on rank {poison.rank}.\n"
            f"The operation was issued here (most recent call last):\n{stack}\n"
            f"On rank {poison.rank} it raised:\n{poison.error}"
        )

    def __reduce__(self) -> Any:
        return _arrived, (self._poison, self.args, vars(self))


def _arrived(poison: Poison, args: tuple[Any, ...], attributes: dict[str, Any]) -> RemoteException:
    """A failure that an actor got, which has told this program of it.

    The stack is known where it was made.
    """
    _told.append(hash(poison))
    error = RemoteException.__new__(RemoteException, *args)
    vars(error).update(attributes)
    return error


class TensorError(TypeError):
    """Tensors that do not belong together were used together, or one is no longer usable."""


class OperatorError(RuntimeError):
    """A `TensorError` of an operator.

    Python hides a TypeError that comes out of ``a + b``.
    """
