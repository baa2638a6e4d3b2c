"""Which directories are mirrored on other hosts, in Monarch 0.7."""

from __future__ import annotations

from typing import Any

from ..torchx import refuse


class Workspace:
    """Raises NotImplementedError, which says what to use."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        refuse(
            "config.Workspace",
            "install the same code on all hosts, or have them mount it; code sync does not exist yet",
        )

    @staticmethod
    def null() -> Workspace:
        """Raises NotImplementedError, which says what to use."""
        return Workspace()
