"""Imports on first use, so that importing this package costs little.

Names of packages, `logging`, notes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from ._core.extension import html
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


def shown_by(name: str) -> Callable[[object], str | None]:
    """A ``_repr_html_`` for objects of this kind, which notebooks know by `name`."""
    return lambda thing: html(name, thing)


def whole(name: str) -> Any:
    """The module of that name if it was imported, all of it; else None.

    Another thread may be in the midst of its import, and it lacks names until that is over: a
    thread that must not wait for that, as the I/O thread, asks here.
    """
    module = sys.modules.get(name)
    return None if getattr(getattr(module, "__spec__", None), "_initializing", False) else module


_LONGEST = 300  # characters of what a peer has sent, in a line of a log


class _Logger:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, method: str) -> Any:
        import logging

        return getattr(logging.getLogger(self._name), method)


def lazy_logger(name: str) -> logging.Logger:
    """A logger for rare warnings, which imports `logging` when it is first used.

    `logging`, and `traceback` with it, cost 4 ms to import.
    """
    return cast("logging.Logger", _Logger(name))


class _CountedLogger(_Logger):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._counts: dict[object, int] = {}

    def __getattr__(self, method: str) -> Callable[..., None]:
        def tell(text: str, *args: object) -> None:
            kind = method, text, sys.exc_info()[0]
            count = self._counts[kind] = self._counts.get(kind, 0) + 1
            if count & (count - 1):
                return
            many = f" ({count} such so far)" if count > 1 else ""
            named = import_module("._words", __package__).named
            shown = (named(str(each))[:_LONGEST] for each in args)
            super(_CountedLogger, self).__getattr__(method)(text + many, *shown, stacklevel=2)

        return tell


def counted_logger(name: str) -> logging.Logger:
    """A logger for what a peer may cause with each message that it sends.

    It tells of the first of a kind, and whenever there have been twice as many. Arguments put into
    a text are shown in one line, and not more than 300 characters of it.
    """
    return cast("logging.Logger", _CountedLogger(name))


def note(area: str, text: str, *args: object) -> None:
    """Note what the engine did and why, for a report of a bug.

    Notes are about processes, links, failures and bounds, not about messages.

    It goes to the loggers ``monarch.engine.*``, which are silent until the program sets the level
    of ``monarch.engine``: a program that wants the notes in its own logging, or `_engine_log`.
    Until then nothing is imported or formatted.

    Args:
        area: The end of the logger's name.
        text: One sentence.
        *args: What it has in place of ``%s``, or functions that make it.
    """
    known = whole("logging")
    if known is not None and known.getLogger("monarch.engine").level:
        known.getLogger(f"monarch.engine.{area}").info(
            text, *(each() if callable(each) else each for each in args)
        )
