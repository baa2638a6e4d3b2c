"""One switch: whether log messages of actors say which actor wrote them.

    monarch.actor.config.prefix_python_logs_with_actor = False

For everything else see `monarch.config`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from .._core.actors import log

if TYPE_CHECKING:
    from collections.abc import Callable


class _ConfigModule(ModuleType):
    """Makes the attribute of the module that of the code which reads it."""

    @property
    def prefix_python_logs_with_actor(self) -> bool:
        return log.prefix_enabled

    @prefix_python_logs_with_actor.setter
    def prefix_python_logs_with_actor(self, enabled: bool) -> None:
        if not isinstance(enabled, bool):
            raise TypeError(f"prefix_python_logs_with_actor must be True or False, got {enabled!r}")
        log.prefix_enabled = enabled

    def __reduce__(self) -> tuple[Callable[[str], ModuleType], tuple[str]]:
        # by name, as any module; cloudpickle knows only the plain kind
        return import_module, (self.__name__,)


sys.modules[__name__].__class__ = _ConfigModule
