"""The agent's answers to `ResolveProc`: that a proc listens, or how it ended.

`host_procs` passes it the questions of other processes, and says when the state of a proc has
changed. A question waits until that is known, or its time is over.
"""

from __future__ import annotations

from collections.abc import Callable

from ... import config
from ..net.poller import Poller
from ..supervision.failure import Failure

_EXIT_EXPECTED = 5.0  # seconds within which a proc's exit is known after its connection broke
_HEARS = 1.0, 2.5  # seconds after which a proc that runs on after its connection broke is tried

Answer = Callable[[Failure | None], None]


class Resolver:
    """Keeps questions until they can be answered.

    Args:
        poller: Of the agent.
        outcome: Says what became of a proc, if that is known, as `ProcEntry.outcome`.
        probe: Checks whether a proc that is to listen does.
    """

    def __init__(
        self,
        poller: Poller,
        outcome: Callable[[str, float, bool], tuple[bool, Failure | None]],
        probe: Callable[[str], None],
    ) -> None:
        self._poller = poller
        self._outcome = outcome
        self._probe = probe
        self._waiting: dict[str, list[Callable[[], None]]] = {}

    def resolve(self, name: str, connected: float, answer: Answer) -> None:
        """Call `answer` with None when a proc listens, or with how it ended, once that is known.

        Args:
            connected: When the connection was made that broke (`time.monotonic`); 0 if there was
                none yet.
        """
        known, failure = self._outcome(name, connected, False)
        if not known:
            self._wait(name, connected, answer)
            return
        if failure is None:
            self._probe(name)
        answer(failure)

    def settle(self, name: str) -> None:
        """Answer the questions about a proc that can be answered by now."""
        for look in self._waiting.pop(name, []):
            look()

    def _wait(self, name: str, connected: float, answer: Answer) -> None:
        """A lost connection is explained by an exit within moments; a proc not heard of may still
        be asked for, and one that ended may be started again. The time ends the wait in any case.
        """

        def look(final: bool = False) -> None:
            if timer.callback is None:  # answered
                return
            known, failure = self._outcome(name, connected, True)
            if known or final:
                timer.cancel()
                if final:
                    self._waiting[name].remove(look)
                    if not self._waiting[name]:
                        del self._waiting[name]
                answer(failure)
            else:
                self._waiting.setdefault(name, []).append(look)

        timeout = _EXIT_EXPECTED if connected else config.value("pending_actor_delivery_timeout")
        timer = self._poller.call_later(timeout, lambda: look(final=True))
        for seconds in _HEARS if connected else ():
            self._poller.call_later(seconds, lambda: self._probe(name))
        self._waiting.setdefault(name, []).append(look)
