"""Starting and ending servers by way of torchx, in Monarch 0.7. See `torchx`."""

from __future__ import annotations

from typing import Any, NoReturn

from .torchx import refuse


def torchx_runner() -> NoReturn:
    """Raises NotImplementedError, which says what to use."""
    refuse("commands.torchx_runner")


def create(config: Any, name: str | None = None) -> NoReturn:
    """Raises NotImplementedError, which says what to use."""
    refuse("commands.create")


def info(server_handle: str) -> NoReturn:
    """Raises NotImplementedError, which says what to use."""
    refuse("commands.info")


async def server_ready(server_handle: str, check_interval: Any = None) -> NoReturn:
    """Raises NotImplementedError, which says what to use."""
    refuse("commands.server_ready")


async def get_or_create(name: str, config: Any, check_interval: Any = None, force_restart: bool = False) -> NoReturn:
    """Raises NotImplementedError, which says what to use."""
    refuse("commands.get_or_create")


def kill(server_handle: str) -> NoReturn:
    """Raises NotImplementedError, which says what to use."""
    refuse(
        "commands.kill",
        "job.kill() ends the hosts of a job of `monarch.job`, and hosts.shutdown() those that were attached",
    )


async def kill_and_confirm(server_handle: str, timeout_after_kill: int = 300) -> NoReturn:
    """Raises NotImplementedError, which says what to use."""
    kill(server_handle)
