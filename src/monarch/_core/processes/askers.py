"""In the agent: who asks what became of a proc, and waits until that is known."""

from __future__ import annotations

from collections.abc import Callable

from ... import config
from ..net.poller import Poller
from ..supervision.failure import Failure

_EXIT_EXPECTED = 5.0  # seconds within which the exit of a proc whose connection broke is known
_HEARS = 1.0, 2.5  # seconds after which a proc whose connection broke, and that runs on, is tried

Answer = Callable[[Failure | None], None]


class Askers:
    """Args:
    poller: Of the agent.
    word: Whether it is known what became of a proc, and what, as `ProcEntry.word`.
    try_it: See whether a proc that is to listen does.
    """

    def __init__(
        self,
        poller: Poller,
        word: Callable[[str, float, bool], tuple[bool, Failure | None]],
        try_it: Callable[[str], None],
    ) -> None:
        self._poller = poller
        self._word = word
        self._try = try_it
        self._waiting: dict[str, list[Callable[[], None]]] = {}

    def ask(self, name: str, connected: float, answer: Answer) -> None:
        """Have `answer` called with None when a proc listens, or with how it ended, as soon as that is known.

        Args:
            connected: When the connection was made that broke (`time.monotonic`); 0 if there was none yet.
        """
        known, failure = self._word(name, connected, False)
        if not known:
            self._wait(name, connected, answer)
            return
        if failure is None:
            self._try(name)
        answer(failure)

    def settle(self, name: str) -> None:
        """Something became of a proc."""
        for look in self._waiting.pop(name, []):
            look()

    def _wait(self, name: str, connected: float, answer: Answer) -> None:
        """A lost connection is explained by an exit within moments; a proc not heard of may still be asked for, and one that ended
        may be started again. What ends the wait in any case is the time.
        """

        def look(final: bool = False) -> None:
            if timer.callback is None:  # answered
                return
            known, failure = self._word(name, connected, True)
            if known or final:
                timer.cancel()
                answer(failure)
            else:
                self._waiting.setdefault(name, []).append(look)

        timeout = _EXIT_EXPECTED if connected else config.value("pending_actor_delivery_timeout")
        timer = self._poller.call_later(timeout, lambda: look(final=True))
        for seconds in _HEARS if connected else ():
            self._poller.call_later(seconds, lambda: self._try(name))
        self._waiting.setdefault(name, []).append(look)
