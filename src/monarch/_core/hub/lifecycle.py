"""The life of a process as its senders see it: a pure table of states and events.

`TABLE` says what follows from what. Events go in, instructions come out; a `LocalPeer` carries them
out and is the only one that uses this.

A process may start again under its name, so news can be late: about the incarnation before. A
peer's own waits, for the answer of the agent or the end of a pause, have numbers: an answer is late
as soon as anything else has followed. News from elsewhere says when the agent knew of the end; it
is late for a connection that was begun after that.
"""

from __future__ import annotations

from ..supervision.failure import LINK, Failure

Instructions = tuple[str, ...]

NEW, STARTING, UP, BROKEN, ENDED = "new", "starting", "up", "broken", "ended"

# state, event -> next state, instructions in their order. Pairs not in it cannot occur.
#
# wanted: a frame can't be sent at once            connect: now
# up: an attempt to connect has succeeded          connect_soon: when the poller's thread gets to it
# refused: nothing listens (yet, or any more)      connect_later: the process may have accepted some who wait by then
# busy: too many wait there to be accepted         connect_at_length: this process may have descriptors by then
# short: this process has no descriptor left       ask: the agent of its host what became of it
# retry, inquire: a pause is over                  ask_soon: when the poller's thread gets to it
# listens: so says the agent                       ask_later: it has just died, and the agent is about to know
# ended, fell: so says the agent                   flush: send what waits, then let others send
# cut: the connection is lost                      end: let go of the connection, and of all that waits
# parted: same, and the process has said why       turn: same, but what can wait for the next incarnation does
# kept: something waits for the next incarnation   report: tell the hub that the process has ended
# news_ended, news_fell: another process says so   part: tell the hub that the connection broke though the process lives
#
# A process that has ended does not come back; one that fell may start again.
TABLE: dict[tuple[str, str], tuple[str, Instructions]] = {
    (NEW, "wanted"): (NEW, ("connect",)),
    (NEW, "up"): (UP, ("flush",)),
    (NEW, "refused"): (STARTING, ("ask_soon",)),
    (NEW, "busy"): (STARTING, ("connect_later",)),
    (NEW, "short"): (STARTING, ("connect_at_length",)),
    (NEW, "kept"): (STARTING, ("connect_soon",)),
    (NEW, "news_fell"): (NEW, ()),
    (NEW, "news_ended"): (ENDED, ("end",)),
    (STARTING, "wanted"): (STARTING, ()),
    (STARTING, "retry"): (STARTING, ("connect",)),
    (STARTING, "up"): (UP, ("flush",)),
    (STARTING, "refused"): (STARTING, ("ask_later",)),
    (STARTING, "busy"): (STARTING, ("connect_later",)),
    (STARTING, "short"): (STARTING, ("connect_at_length",)),
    (STARTING, "inquire"): (STARTING, ("ask",)),
    (STARTING, "listens"): (STARTING, ("connect_soon",)),
    (STARTING, "fell"): (NEW, ("end", "report")),
    (STARTING, "ended"): (ENDED, ("end", "report")),
    (STARTING, "news_fell"): (STARTING, ()),
    (STARTING, "news_ended"): (ENDED, ("end",)),
    (UP, "wanted"): (UP, ()),
    (UP, "cut"): (BROKEN, ("ask",)),
    (UP, "parted"): (ENDED, ("end", "part")),
    (UP, "news_fell"): (NEW, ("turn",)),
    (UP, "news_ended"): (ENDED, ("end",)),
    (BROKEN, "wanted"): (BROKEN, ()),
    (BROKEN, "listens"): (ENDED, ("end", "part")),
    (BROKEN, "fell"): (NEW, ("turn", "report")),
    (BROKEN, "ended"): (ENDED, ("end", "report")),
    (BROKEN, "news_fell"): (NEW, ("turn",)),
    (BROKEN, "news_ended"): (ENDED, ("end",)),
    (ENDED, "wanted"): (ENDED, ()),
    (ENDED, "news_fell"): (ENDED, ()),
    (ENDED, "news_ended"): (ENDED, ()),
}


class Lifecycle:
    """See the module.

    Args:
        name: Of the process.

    Attributes:
        state: One of the above.
        connected: When the last connection was begun (`time.monotonic`); 0 if there was none to
            this incarnation.
        awaited: Number of the answer, or the pause, that is waited for, if one is.
        failure: Why nothing can be sent any more; set when it has ended.
    """

    __slots__ = ("_name", "awaited", "connected", "failure", "state")

    def __init__(self, name: str) -> None:
        self._name = name
        self.state = NEW
        self.connected = 0.0
        self.awaited = 0
        self.failure: Failure | None = None

    def happen(self, event: str, failure: Failure | None = None) -> Instructions:
        """Take one event of the table, and the failure that comes with it. Returns what to do."""
        self.state, instructions = TABLE[self.state, event]
        if instructions:
            self.awaited += 1
        if self.state == NEW:
            self.connected = 0.0
        elif self.state == ENDED and self.failure is None:
            self.failure = failure
        return instructions

    def reached(self, begun: float) -> Instructions:
        """There is a connection, which was begun at this time."""
        self.connected = begun
        return self.happen("up")

    def cut(self, parting: str) -> Instructions:
        """The connection is lost; the process may have said why."""
        return (
            self.happen("parted", self._broken(f": {parting}")) if parting else self.happen("cut")
        )

    def paused(self, number: int, event: str) -> Instructions:
        """Pause `number` is over."""
        return self.happen(event) if number == self.awaited else ()

    def answered(self, number: int, failure: Failure | None) -> Instructions:
        """The agent has answered question `number`: why the process ended; None if it listens."""
        if number != self.awaited:
            return ()
        if failure is None:
            return self.happen("listens", self._broken())
        return self.happen("fell" if failure.restarts else "ended", failure)

    def heard(self, failure: Failure) -> Instructions:
        """Another process tells of an end."""
        if failure.restarts and 0 < failure.known <= self.connected:
            return ()
        return self.happen("news_fell" if failure.restarts else "news_ended", failure)

    def _broken(self, why: str = "") -> Failure:
        return Failure(
            LINK, f"the connection to the process broke although it runs{why}", proc=self._name
        )
