"""How workers find the functions that they are asked to run."""

from __future__ import annotations

import importlib
from functools import lru_cache
from typing import Any

import torch

from ..._core.plane import pickling


def _view_as_real(x: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(x.resolve_conj())


_INSTEAD = {
    "aten::view_as_real.default": _view_as_real,
    "aten::_efficientzerotensor.default": torch.ops.aten.zeros.default,
}
"""Operators that meet, or make, a tensor of a kind that the controller's handles do not have: one
that is conjugated only when it is read, which a program there can't resolve; zeros without memory,
which can't be sent.
"""


@lru_cache(maxsize=4096)
def find(function: str | bytes) -> Any:
    """A function by its name, or from its pickle.

    The same pickle gives the same function, with its state.

    Raises:
        RuntimeError: There is nothing of that name.
    """
    return _by_name(function) if isinstance(function, str) else pickling.loads(function)


def name_of(function: str | bytes) -> str:
    """The name of a function, for messages."""
    if isinstance(function, str):
        return function
    found = find(function)
    return getattr(found, "__qualname__", repr(found))


def _by_name(name: str) -> Any:
    if name in _INSTEAD:
        return _INSTEAD[name]
    if "::" in name:  # an operator: namespace::name.overload
        space, _, rest = name.partition("::")
        packet, _, overload = rest.partition(".")
        return getattr(getattr(getattr(torch.ops, space), packet), overload or "default")
    found = _attribute(name)
    return getattr(found, "_function", found)  # `remote` was applied where it is defined


def _attribute(name: str) -> Any:
    parts = name.split(".")
    problem: Exception | None = None
    for length in range(len(parts) - 1, 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:length]))
            for part in parts[length:]:
                found = getattr(found, part)
        except (ImportError, AttributeError) as error:
            problem = problem or error
        else:
            return found
    raise RuntimeError(f"failed to resolve function {name!r}: {problem}")
