"""What is drawn: how a program ends, when, and what may be seen of it."""

from __future__ import annotations

import random
import signal
from dataclasses import dataclass

LATEST = 1.2  # seconds; its imports, and the first call, take less
EARLY = 0.02  # seconds: so soon after the first use of the API about half of the programs end


@dataclass(frozen=True)
class Way:
    """How a program ends.

    Attributes:
        statuses: Those that it may have, as `subprocess` has them.
        signals: What is sent to whom, in this order; by default it ends by itself.
        text: All that may be on its stderr: nothing, its own last line, or (None) what it likes
            but a word of ours.
    """

    statuses: tuple[int, ...]
    signals: tuple[tuple[str, signal.Signals], ...] = ()
    text: str | None = ""


def _of_others(*signals: tuple[str, signal.Signals]) -> Way:
    (number,) = [-number for who, number in signals if who == "client"]
    return Way((number,), signals, None)


_KILL = "client", signal.SIGKILL
_INTERRUPTED = "KeyboardInterrupt"
WAYS = {
    "end": Way((0,)),
    "exit": Way((3,)),
    "raise": Way((1,), text="RuntimeError: mine"),
    "os._exit": Way((4,)),
    "exit in a thread": Way((0,)),
    "raise in a thread": Way((0,), text="RuntimeError: mine"),
    "shut down": Way((0,)),
    "fork that exits": Way((0,)),
    "fork that is a client": Way((0,)),
    "abort": Way((-signal.SIGABRT,)),
    "kill itself": Way((-signal.SIGKILL,)),
    "interrupt itself": Way((-signal.SIGINT,), text=_INTERRUPTED),
    "SIGTERM": _of_others(("client", signal.SIGTERM)),
    "SIGTERM that exits": Way((9, -signal.SIGTERM), (("client", signal.SIGTERM),), None),
    "SIGHUP": _of_others(("client", signal.SIGHUP)),
    # in its imports it may be told otherwise
    "SIGINT": Way((-signal.SIGINT, 1), (("client", signal.SIGINT),), None),
    "SIGKILL": _of_others(_KILL),
    "SIGKILL, agent stopped": _of_others(("agent", signal.SIGSTOP), _KILL),
    "SIGKILL, agent stopped later": _of_others(_KILL, ("agent", signal.SIGSTOP)),
    "SIGKILL, agent killed": _of_others(("agent", signal.SIGKILL), _KILL),
    "SIGKILL, spawner stopped": _of_others(("spawner", signal.SIGSTOP), _KILL),
    "SIGKILL, spawner killed": _of_others(("spawner", signal.SIGKILL), _KILL),
    "SIGKILL, agent and spawner stopped": _of_others(
        ("agent", signal.SIGSTOP), ("spawner", signal.SIGSTOP), _KILL
    ),
    "SIGKILL, spawner and agent stopped later": _of_others(
        _KILL, ("spawner", signal.SIGSTOP), ("agent", signal.SIGSTOP)
    ),
    "SIGTERM, agent stopped": _of_others(("agent", signal.SIGSTOP), ("client", signal.SIGTERM)),
}


@dataclass(frozen=True)
class Case:
    """One ending.

    Attributes:
        name: A way.
        moment: Seconds: for a program that ends by itself, after its imports; for others, after
            its start.
        threads: How many of it use the API; 0 where its main thread does.
    """

    name: str
    moment: float
    threads: int

    @property
    def way(self) -> Way:
        return WAYS[self.name]

    def __str__(self) -> str:
        return f"{self.name!r} after {self.moment:.4f} s, {self.threads} threads"


def draw(seed: int, number: int) -> Case:
    """Return the case of a number; each way comes once in as many."""
    names = list(WAYS)
    random.Random(f"{seed} {number // len(names)}").shuffle(names)
    name = names[number % len(names)]
    choice = random.Random(f"{seed} {number}")
    by_itself = not WAYS[name].signals
    early = by_itself and choice.random() < 0.5
    moment = choice.expovariate(1 / EARLY) if early else choice.uniform(0.0, LATEST)
    threads = choice.choice([1, 1, 2]) if by_itself else choice.choice([0, 1])
    return Case(name, moment, 0 if "fork" in name else threads)
