"""What one actor owns, in the order it was created, and which ranks of it have failed already."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class Ledger:
    """The owned meshes of one actor.

    A mesh is entered when it is created and struck when it has been stopped. A rank fails once: the owner hears of the
    first thing that ended it, whichever of its process, its host or its own code that was.
    """

    __slots__ = ("_failed", "_owned")

    def __init__(self) -> None:
        self._owned: dict[int | str, Any] = {}
        self._failed: set[tuple[int | str, int]] = set()

    def enter(self, uid: int | str, mesh: Any) -> None:
        self._owned[uid] = mesh

    def strike(self, uid: int | str) -> Any:
        """Forget a mesh; returns what was entered, or None."""
        return self._owned.pop(uid, None)

    def __contains__(self, uid: object) -> bool:
        return uid in self._owned

    def __len__(self) -> int:
        return len(self._owned)

    def youngest_first(self) -> list[Any]:
        """The order in which to stop them: what was created last may use what was created before it."""
        return list(reversed(self._owned.values()))

    def meshes(self) -> Iterable[Any]:
        return list(self._owned.values())

    def first_failure(self, uid: int | str, rank: int) -> bool:
        """Whether this is news: the mesh is owned, and the rank had not failed before."""
        if uid not in self._owned or (uid, rank) in self._failed:
            return False
        self._failed.add((uid, rank))
        return True
