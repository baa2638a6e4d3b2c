"""Waits that can never end, by edge chasing (Chandy, Misra and Haas, 1983). Pure.

A *wait* is code of an actor that has stopped, for as long as it takes, until a call has been
answered by every actor it was sent to. Such an actor is *kept* from answering by a wait of its own,
if the call is queued behind, or handled by, the code that waits. A cycle of waits, each kept by the
next, is a deadlock: unless something in it fails or is stopped, it stays for ever.

Each process looks for cycles through its own waits. About once per interval it asks, for a wait
that it has seen before, the actors that owe the answer: "what keeps you?" (a `Probe`). The process
of such an actor passes the probe on along the wait that keeps it, or drops it if none does. Once
the probe asks about a call that is kept by the very wait that sent it, there is a cycle::

    process of A                        process of B                        process of A
    A's wait, seen before ── Probe ──▶ B's wait keeps that call ── Probe ──▶ A's wait keeps that call: a deadlock

*One report per cycle.* A probe passes only waits that began before the one that sent it. So of all
the waits of a cycle only that which began last hears of it, and it alone is given up. It asks when
it has lasted for an interval, and the others have lasted longer: one round is enough, unless
messages were slow. Therefore it asks again after 2, 4, 8, ... intervals. Where cycles share a wait,
which takes a call to several actors, giving that up breaks all of them: if the probe of another was
under way, one more wait is given up than was needed.

*No false report.* When the probe is back, the first wait is on and keeps the call of the last one.
So that call is unanswered and the last wait, seen before, has stayed on; so the call that it was
seen to keep is unanswered, too, and so on, back to the first. This needs three things of the
caller. A call's answer is the only thing that ends a wait: one with a time limit, or that another
answer could end, does not count. A call is answered only by the code that handles it: one with a
response port that was handed out is kept by no actor. And a call is kept by a wait only where both
were seen at one moment.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ..._namedtuple import NamedTuple

EVERYTHING = None
"""Name of the activity that is the actor's whole thread: while it waits, nothing else of the actor
runs.
"""

NO_ACTIVITY = object()


class CallId(NamedTuple):
    """One call, wherever it is: the process that made it (orderable), and its number there."""

    process: Any
    request: int


class WaitId(NamedTuple):
    """A wait, ordered by its begin: hosts' clocks need not agree, any single order will do."""

    began: float
    call: CallId


class Wait(NamedTuple):
    """A wait in progress.

    Attributes:
        silent: Process and id of each actor that has not answered yet.
        text: Who waits for what.
    """

    id: WaitId
    silent: tuple[tuple[Any, int], ...]
    text: str


class Probe(NamedTuple):
    """The question "what keeps you from answering this call?".

    Attributes:
        path: The waits passed so far; the first started to ask.
        round: Which of its attempts this is.
        process: Where the question goes.
        actor: Whom it is about.
        call: What that actor owes an answer to.
        chain: The waits of `path` in words.
    """

    path: tuple[WaitId, ...]
    round: int
    process: Any
    actor: int
    call: CallId
    chain: tuple[str, ...]

    @property
    def initiator(self) -> WaitId:
        return self.path[0]


def keeper(
    call: CallId,
    queued: Collection[CallId],
    handled: Mapping[Any, CallId | None],
    waiting: Collection[Any],
    serving: object = EVERYTHING,
) -> object:
    """Return the activity of an actor by which it can't answer `call` yet, or `NO_ACTIVITY`.

    Args:
        queued: What it has received and not begun.
        handled: By activity, what it is handling; None for a call that may be answered by others.
        waiting: The activities that wait.
        serving: The activity that takes queued messages.
    """
    activity = next((activity for activity, taken in handled.items() if taken == call), NO_ACTIVITY)
    if activity is NO_ACTIVITY and call in queued:
        activity = serving
    if activity is not NO_ACTIVITY and EVERYTHING in waiting:
        activity = EVERYTHING
    return activity if activity in waiting else NO_ACTIVITY


class Chaser:
    """The waits of one process, and the probes that pass it."""

    def __init__(self) -> None:
        self._seen: dict[WaitId, int] = {}  # how many sweeps ago a wait was seen first
        self._passed: set[tuple[WaitId, int, WaitId]] = set()

    def sweep(self, waits: Iterable[WaitId]) -> list[tuple[WaitId, int]]:
        """Return the waits that must ask now, with the round; called once per interval with all."""
        self._seen = {wait: self._seen.get(wait, -1) + 1 for wait in waits}
        self._passed.clear()
        return [(wait, age) for wait, age in self._seen.items() if age and not age & (age - 1)]

    def ask(self, wait: Wait, round_: int) -> list[Probe]:
        """The first step of a chase."""
        return _probes(wait, round_, (), ())

    def pass_on(self, probe: Probe, wait: Wait) -> list[Probe]:
        """The next step, along the wait that keeps the call of `probe`, not of the initiator.

        That must be an older wait, which the last sweep has seen: a wait that a time limit has just
        ended, before its code goes on, is not taken for one without a limit. A wait is passed once
        in a round, as far as is remembered: a second path to it leads nowhere else.
        """
        passed = (probe.initiator, probe.round, wait.id)
        if (
            wait.id > probe.initiator
            or wait.id not in self._seen
            or wait.id in probe.path
            or passed in self._passed
        ):
            return []
        self._passed.add(passed)
        return _probes(wait, probe.round, probe.path, probe.chain)


def _probes(
    wait: Wait, round_: int, path: tuple[WaitId, ...], chain: tuple[str, ...]
) -> list[Probe]:
    path, chain = (*path, wait.id), (*chain, wait.text)
    return [
        Probe(path, round_, process, actor, wait.id.call, chain) for process, actor in wait.silent
    ]


def explain(chain: Iterable[str]) -> str:
    """Return the message of the error that ends one wait of the circle."""
    lines = "".join(f"  {text}\n" for text in chain)
    return (
        f"these actors wait for each other, so none of the answers can come:\n{lines}The first of"
        " these waits was given up, so that the others can go on. Do not wait for this answer, or"
        " have it sent to a Port; or make the endpoints that wait concurrent"
        " (`@concurrent_endpoint`, `await`), so that their actors take other calls meanwhile"
    )
