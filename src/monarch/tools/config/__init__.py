"""What describes a server for torchx, in Monarch 0.7. See `monarch.tools.torchx`."""

from __future__ import annotations

from ..torchx import Refused
from .workspace import Workspace

NOT_SET = "__NOT_SET__"


class Config(Refused):
    """Raises NotImplementedError, which says what to use."""


__all__ = ["NOT_SET", "Config", "Workspace"]
