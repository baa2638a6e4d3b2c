"""Gives public objects the name of the module where programs find them.

Pickles, tracebacks and representations show that name, not the place of the definition.

So a pickle finds them by a name that stays, and imports with them all that they need.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import FunctionType
from typing import Any

RELEASE = "0.1.0"
"""The release of this package. Both sides of a link between hosts must be of the same."""


def publish(package: str, found: Mapping[str, Any], names: Iterable[str]) -> None:
    """Name those of `names` that are found already after the package that exports them.

    An object with a public name elsewhere keeps that.

    Args:
        package: Its ``__name__``.
        found: Objects by name, such as the package's ``globals()``.
        names: The exported names.
    """
    for name in names:
        exported = found.get(name)
        if isinstance(exported, (type, FunctionType)) and _is_private(exported.__module__, package):
            exported.__module__ = package
            if exported.__qualname__ != name:
                exported.__name__ = exported.__qualname__ = name


def _is_private(module: str, package: str) -> bool:
    return module.startswith((f"{package}.", "monarch._"))
