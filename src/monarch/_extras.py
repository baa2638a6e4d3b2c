"""Libraries that only extras of this package bring."""

from __future__ import annotations

import importlib
import sys
from typing import Any

TOML = "tomllib" if sys.version_info >= (3, 11) else "tomli"


def of_extra(name: str, missing: str, kind: type[Exception] = ImportError) -> Any:
    """Import a module that may not be installed.

    Args:
        name: The module.
        missing: Text of the error, with how to get it; ``{}`` stands for the missing module.
        kind: The error that says so.

    Raises:
        kind: It is not installed.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raised = kind(missing.replace("{}", error.name or name))
        if isinstance(raised, ImportError):
            raised.name = error.name
        raise raised from None
