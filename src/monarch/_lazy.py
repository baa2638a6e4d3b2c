"""What is imported when it is first used, so that importing this package costs little: names of packages, and `logging`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from ._public import publish

if TYPE_CHECKING:
    import logging


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


class _Logger:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, method: str) -> Any:
        import logging

        return getattr(logging.getLogger(self._name), method)


def lazy_logger(name: str) -> logging.Logger:
    """A logger for warnings that hardly any program sees: `logging`, and `traceback` with it, cost 4 ms to import."""
    return cast("logging.Logger", _Logger(name))
