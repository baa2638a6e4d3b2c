"""Fake tensors without `torch._dynamo`.

Its import takes a second, and only `torch.compile` needs it.

Torch imports it in two places that programs pass without compiling anything: what a compiler has to
leave alone is wrapped in ``torch._dynamo.disable`` when it first runs, dispatch modes for one; and
the mode of fake tensors reads its settings. `install` puts a module in its place that has the
settings, and a `disable` that waits for a compiler. Where a process group is made, torch takes that
for the compiler, and clears the cache of its rules. Asked for anything else, it makes way for the
real one.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

_NAME = "torch._dynamo"
_CONFIG = f"{_NAME}.config"


class _Placeholder(ModuleType):
    config: ModuleType
    trace_rules: _Rules
    undisguised: list[tuple[Callable[..., Any], bool]]
    """What `disable` has left as it was, and the real one is to wrap: the function, and whether
    with all that it calls.
    """

    def __getattr__(self, name: str) -> Any:
        if name in ("__file__", "__spec__", "__wrapped__"):  # what tools ask of every module
            raise AttributeError(
                f"module {_NAME!r} has not been imported yet, so it has no {name!r}"
            )
        return getattr(_real(self), name)

    def disable(self, fn: Any = None, recursive: bool = True, **options: Any) -> Any:
        """As ``torch._dynamo.disable``.

        What `torch._compile` asks to be wrapped, and looks up at each call, waits for a compiler.
        """
        if fn is None or options != {"wrapping": False}:
            return _real(self).disable(fn, recursive, **options)
        self.undisguised.append((fn, recursive))
        return fn

    @staticmethod
    def graph_break(msg: str = "") -> None:
        """Does nothing outside of compiled code; optimizers call it in each step."""


class _Rules:
    """In the place of ``torch._dynamo.trace_rules``: no rules yet."""

    def __init__(self, dynamo: _Placeholder) -> None:
        self._dynamo = dynamo

    def clear_lru_cache(self) -> None:
        if sys.modules.get(_NAME) is not self._dynamo:
            _real(self._dynamo).trace_rules.clear_lru_cache()

    def __getattr__(self, name: str) -> Any:
        return getattr(_real(self._dynamo).trace_rules, name)


def _real(placeholder: _Placeholder) -> ModuleType:
    # it is there, or on its way: its modules ask each other
    if sys.modules.get(_NAME) is not placeholder:
        return importlib.import_module(_NAME)
    del sys.modules[_NAME]
    module = importlib.import_module(_NAME)
    module.config = placeholder.config  # the import system sets it only where it has loaded it
    for fn, recursive in placeholder.undisguised:
        vars(fn)["__dynamo_disable"] = module.disable(fn, recursive, wrapping=False)
    return module


def install() -> None:
    """Put the placeholder where `torch._dynamo` will be, unless that is there already."""
    if _NAME in sys.modules:
        return
    spec = spec_from_file_location(_CONFIG, Path(torch.__file__).parent / "_dynamo" / "config.py")
    if spec is None or spec.loader is None:  # a torch that is laid out in another way
        return
    placeholder = _Placeholder(_NAME)
    placeholder.undisguised = []
    placeholder.trace_rules = _Rules(placeholder)
    placeholder.config = module_from_spec(spec)
    sys.modules[_CONFIG] = placeholder.config  # it looks itself up there
    try:
        spec.loader.exec_module(placeholder.config)
    except BaseException:
        del sys.modules[_CONFIG]
        raise
    sys.modules[_NAME] = torch._dynamo = placeholder
