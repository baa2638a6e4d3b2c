"""Which folders of this machine are mirrored on hosts."""

from ...sync.workspace import Workspace

__all__ = ["Workspace"]
