"""Names of `monarch.job` whose features do not exist yet. Each says what is missing, when it is called."""

from __future__ import annotations

from typing import Any

from .features import missing


class PortForwarder:
    """Reaches TCP ports of workers through actors."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        missing("PortForwarder", "port forwarding")


def shell(*args: Any, **kwargs: Any) -> int:
    """Open an interactive shell on a host."""
    missing("shell", "remote commands")
