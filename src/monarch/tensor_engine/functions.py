"""How workers find the functions that they are asked to run."""

from __future__ import annotations

import importlib
from functools import lru_cache
from typing import Any

import torch


def find(function: Any) -> Any:
    """A function by its name, or itself.

    Raises:
        RuntimeError: There is nothing of that name.
    """
    return _by_name(function) if isinstance(function, str) else function


@lru_cache(maxsize=4096)
def _by_name(name: str) -> Any:
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
