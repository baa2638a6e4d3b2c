"""What one actor owns, in the order it was created, and which ranks of it have failed already."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class Ledger:
    """The owned meshes of one actor.

    A mesh is entered when it is created and struck when it has been stopped. A rank fails once: the owner hears of the
    first thing that ended it, whichever of its process, its host or its own code that was.
    """

    __slots__ = ("_closed", "_dead", "_failed", "_owned")

    def __init__(self) -> None:
        self._owned: dict[int | str, Any] = {}
        self._failed: set[tuple[int | str, int]] = set()
        self._closed = False
        self._dead: set[object] = set()

    def enter(self, uid: int | str, mesh: Any) -> None:
        """Own one more mesh.

        Raises:
            RuntimeError: The owner is ending: nobody would stop what it makes now.
        """
        if self._closed:
            raise RuntimeError("this actor is ending; it can create nothing more")
        self._owned[uid] = mesh

    def close(self) -> list[Any]:
        """The owner ends: nothing can be entered any more. What it owns, in the order in which to stop it."""
        self._closed = True
        return self.youngest_first()

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

    def first_death(self, process: object) -> bool:
        """Note the end of a process, which may be heard of in several ways; whether it was news."""
        news = process not in self._dead
        self._dead.add(process)
        return news

    def is_news(self, uid: int | str, rank: int) -> bool:
        """Whether the mesh is owned, and the rank is not known to have failed."""
        return uid in self._owned and (uid, rank) not in self._failed

    def first_failure(self, uid: int | str, rank: int) -> bool:
        """Note a failure; whether it was news."""
        if not self.is_news(uid, rank):
            return False
        self._failed.add((uid, rank))
        return True
