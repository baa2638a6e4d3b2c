"""Names of a package that are imported when they are first used, so that importing the package costs nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from ._public import publish


def lazy_names(
    package: str, places: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package.

    Args:
        package: Its ``__name__``.
        places: The names, by the modules of the package in which they are.
    """
    modules = {name: module for module, names in places.items() for name in names}

    def find(name: str) -> Any:
        module = modules.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        source = import_module(f".{module}", package)
        publish(package, vars(source), (name,))
        return getattr(source, name)

    return find, lambda: sorted([*vars(sys.modules[package]), *modules])
