"""Flags of torch that are a process's, and change what an operation computes.

Those of the controller hold for what it issues: a template says which of them were not as torch has
them when it starts, and a rank sets those while it runs the operation, and takes them back after.
So what an endpoint or a function has set on a rank holds there for all that the controller left
alone, and neither recordings nor streams have to know that a flag was changed in between.

`settings.txt` names them. What only a GPU reads is looked at once a tensor of one was seen: reading
a flag costs 20 to 160 ns, for each operation.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

Settings = tuple[tuple[str, Any], ...]
"""Names and values of the flags that are not as torch has them when it starts."""


class Flag(NamedTuple):
    """One flag: what it is when torch starts, and the functions that read and set it."""

    default: Any
    get: Callable[[], Any]
    set: Callable[[Any], object]


_set_deterministic = torch._C._set_deterministic_algorithms
_get_deterministic = torch._C._get_deterministic_algorithms
_get_warn_only = torch._C._get_deterministic_algorithms_warn_only
_set_on = lambda on: _set_deterministic(on, warn_only=_get_warn_only())  # noqa: E731
_set_warn_only = lambda warn: _set_deterministic(_get_deterministic(), warn_only=warn)  # noqa: E731
FLAGS = {
    "default_dtype": Flag(torch.float32, torch.get_default_dtype, torch._C._set_default_dtype),
    "deterministic": Flag(False, _get_deterministic, _set_on),
    "deterministic_warn_only": Flag(False, _get_warn_only, _set_warn_only),
}
"""By name; those that only GPUs look at come last."""


def _add(name: str, default: str, getter: str, setter: str, *first: str) -> None:
    """Add a line of the table, if this version of torch has the flag."""
    get, put = (getattr(torch._C, f"_{way}", None) for way in (f"get_{getter}", f"set_{setter}"))
    if get is not None and put is not None:
        if name in _ABOVE:
            get, put = partial(_or_mixed, get), partial(_unless_mixed, put)
        starts: Any = {"True": True, "False": False}.get(default, default)
        if type(get(*first)) is tuple:  # of newer versions: whether to, and whether in parts
            starts = (starts, True)
        all_of = lambda value: value if type(value) is tuple else (value,)  # noqa: E731
        FLAGS[name] = Flag(starts, partial(get, *first), lambda new: put(*first, *all_of(new)))


_ABOVE = ("matmul_precision", "cudnn_tf32")
"""Older names that stand for several newer ones: setting one sets those, so they come first."""
_MIXED = "mixed"


def _or_mixed(get: Callable[[], Any]) -> Any:
    try:
        return get()
    except RuntimeError:  # the newer ones were set to something that it has no word for
        return _MIXED


def _unless_mixed(put: Callable[[Any], object], value: Any) -> None:
    if value != _MIXED:
        put(value)


_read: list[Callable[[], Any]] = []
for _line in Path(__file__).with_name("settings.txt").read_text("utf-8").splitlines():
    _who, *_row = _line.split()
    if _row and _who != "#":
        _add(*_row)
    if _who != "gpu":
        _read = [flag.get for flag in FLAGS.values()]
_last: tuple[list[Any], Settings] = ([], ())  # of one reading, for the next thread, whichever it is


def read_all() -> None:
    """From now on, read what only GPUs look at, too."""
    global _read
    _read = [flag.get for flag in FLAGS.values()]


def current() -> Settings:
    """The settings of this process, now."""
    global _last
    values = [read() for read in _read]
    before, settings = _last
    if values != before:
        pairs = zip(FLAGS.items(), values, strict=False)
        settings = tuple([(name, value) for (name, flag), value in pairs if value != flag.default])
        _last = values, settings
    return settings


class Scope:
    """The settings of operations while they run, in one process.

    Operations of the same settings run side by side, on the threads of several streams; one of
    other settings waits until none of them runs.
    """

    def __init__(self) -> None:
        self._free = threading.Condition()
        self._running = 0
        self._settings: Settings = ()
        self._undo = ExitStack()

    def around(
        self, function: Callable[..., Any], settings: Settings, shared: bool = False
    ) -> Callable[..., Any]:
        """Return the function as one that runs with these settings.

        Args:
            function: An operation.
            settings: Its settings.
            shared: Whether the controller is in this process: what it did not set when it issued
                the operation may be set now.
        """
        held = {name: flag.default for name, flag in FLAGS.items()} if shared else {}
        held |= dict(settings)

        def scoped(*args: Any, **kwargs: Any) -> Any:
            with self._free:
                while self._running and self._settings != settings:
                    self._free.wait()
                if not self._running:
                    self._set(held)
                    self._settings = settings
                self._running += 1
            try:
                return function(*args, **kwargs)
            finally:
                with self._free:
                    self._running -= 1
                    if not self._running:
                        self._undo.close()
                        self._free.notify_all()

        return scoped

    def _set(self, held: dict[str, Any]) -> None:
        before = {name: FLAGS[name].get() for name in held}
        if before == held:
            return  # as for most operations
        if not before.keys().isdisjoint(_ABOVE):  # with which others change
            before = {name: flag.get() for name, flag in FLAGS.items()}
        self._undo.callback(_apply, before)
        try:
            _apply(held)
        except BaseException:
            self._undo.close()
            raise


def _apply(values: dict[str, Any]) -> None:
    """Set flags, those first with which others change."""
    for name, flag in FLAGS.items():
        if name in values and flag.get() != values[name]:
            flag.set(values[name])


scope = Scope()
"""That of this process."""
