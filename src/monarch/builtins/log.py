"""Logging on the ranks of a mesh."""

from __future__ import annotations

import logging
from typing import Any

from monarch.tensor_engine import remote

_logger = logging.getLogger("monarch.builtins")


@remote(propagate="inspect")
def log_remote(*args: Any, level: int = logging.WARNING, **kwargs: Any) -> None:
    """Log a message on every rank.

    Args:
        *args: As for ``logging.Logger.log``; distributed tensors are shown as the rank has them.
        level: Of the message.
        **kwargs: As for ``logging.Logger.log``.
    """
    _logger.log(level, *args, **kwargs)


@remote(propagate="inspect")
def set_logging_level_remote(level: int) -> None:
    """Set the level from which the ranks log."""
    logging.getLogger().setLevel(level)


__all__ = ["log_remote", "set_logging_level_remote"]
