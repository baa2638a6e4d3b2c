"""What torchx tells of servers, in Monarch 0.7. See `monarch.tools.torchx`."""

from __future__ import annotations

from typing import NoReturn

from .torchx import Refused, refuse


class MeshSpec(Refused):
    """Raises NotImplementedError, which says what to use."""


class ServerSpec(Refused):
    """Raises NotImplementedError, which says what to use."""


def mesh_spec_from_str(mesh_spec_str: str) -> NoReturn:
    """Raises NotImplementedError, which says what to use."""
    refuse("mesh_spec.mesh_spec_from_str")
