"""Objects of any kind that live on the ranks.

Examples are a data loader, a module with its own graph, a file.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree

from ..planning import fakes
from ..worker.worker import workers


class OpaqueRef:
    """A handle of an object on each rank.

    The object lives as long as the handle, and fails as a tensor would.

    Made in a remote function, ``return OpaqueRef(obj)``; its rule returns ``OpaqueRef(None)``;
    passed to remote functions, which use ``ref.value``. It stands for a tensor without a meaning,
    which carries the object with it.

    Args:
        value: The object.

    Raises:
        RuntimeError: Made or read in the program, which has no objects of ranks.
    """

    def __init__(self, value: Any) -> None:
        if not (workers or fakes.is_faking()):
            raise RuntimeError(
                "attempting to create an OpaqueRef outside of a remote function: return it from one"
            )
        self._key: Any = torch.zeros((), dtype=torch.int64)
        if not fakes.is_faking():
            self._key._opaque = value

    @property
    def value(self) -> Any:
        """The object of this rank; in remote functions only."""
        return self._tensor()._opaque

    @value.setter
    def value(self, new: Any) -> None:
        self._tensor()._opaque = new

    def _tensor(self) -> Any:
        if not hasattr(self._key, "_opaque"):
            raise RuntimeError(
                "attempting to access an OpaqueRef outside of a remote function: its objects are on"
                " the ranks"
            )
        return self._key


def _unflatten(leaves: Any, context: Any) -> OpaqueRef:
    made = OpaqueRef.__new__(OpaqueRef)
    (made._key,) = leaves
    return made


pytree.register_pytree_node(
    OpaqueRef, lambda ref: ([ref._key], None), _unflatten, serialized_type_name="monarch.OpaqueRef"
)
