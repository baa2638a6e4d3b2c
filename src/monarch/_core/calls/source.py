"""What a future waits for: tells it in words, ends the waits that nothing else would, and hears of being read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio

    from ..net.loan import Lendable
    from .future import Future
    from .waits import Awaited


class Source:
    """What a future waits for: tells it in words, and hears of being read."""

    __slots__ = ()
    name: str = "an operation"
    """What it is, in few words; `describe` says more while it lasts."""

    def describe(self) -> str:
        return self.name

    def deadlock(self) -> str | None:
        """Why the current thread must not block on this, if it must not."""
        return None

    def awaited(self) -> Awaited | None:
        """The call that must be answered, by all it says, before the wait ends; None if something else may end it."""
        return None

    def unanswered(self) -> Awaited | None:
        """Calls of which any may end the wait, for asking whether they still can be answered."""
        return self.awaited()

    def connection(self) -> Lendable | None:
        """What to read for the answer, if that is known: a connection, or several."""
        return None

    def has_answer_of(self, rank: int) -> bool:
        """Whether another answer of that rank could only be the same once more."""
        return False

    def observed(self, future: Future[Any], loop: asyncio.AbstractEventLoop | None) -> None:
        """Someone starts to wait: in `loop`, or by blocking a thread."""

    def timed_out(self, text: str) -> TimeoutError:
        """What a reader gets whose time is up."""
        return TimeoutError(text)

    def cancel(self, future: Future[Any]) -> bool:
        """Try to keep from beginning what has not begun; False where that can't be."""
        return False

    def abandoned(self, future: Future[Any]) -> None:
        """A wait timed out or was cancelled."""


class Described(Source):
    """A source that is only a text."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name
