"""Steps of training, as programs mark them, in a ring of a bounded size.

Where the program calls all ranks for each step, all of them take as long as the slowest, from mark
to mark. So the actor that marks steps is looked at from then on: what its own messages take is
known of each step, also without telemetry.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Iterator
from typing import Any

from .._namedtuple import NamedTuple
from ..actor import context
from .ids import actor_id, proc_id
from .metrics import fits
from .registry import Asked, produces

Row = tuple[Any, ...]

_MOST = 10_000


class _Mark(NamedTuple):
    """The last mark of an actor: its number, when, and how long the actor had been busy until then."""

    number: int
    at: int
    busy: int | None


# time, actor, rank, number; the time since the mark before, of that what its messages took; total,
# samples
_steps: deque[Row] = deque(maxlen=_MOST)
_last_steps: dict[int, _Mark] = {}


class _BusySampler:
    """Adds up how long an actor handles messages; has no other use, and keeps none."""

    def __init__(self) -> None:
        self.gap = 1
        self._busy = 0
        # by id of the frame; the first is that of which only the rest is seen
        self._begun = {0: time.time_ns()}

    def begin(self, origin: Any, frame: Any) -> None:
        self._begun.pop(0, None)
        self._begun[id(frame)] = time.time_ns()

    def raised(self, frame: Any) -> None:
        pass

    def done(self, frame: Any) -> None:
        self._busy += time.time_ns() - self._begun.pop(id(frame))

    def busy(self, now: int) -> int:
        """Nanoseconds in which messages have been handled."""
        return self._busy + sum(now - begin for begin in self._begun.copy().values())


def step(
    number: int | None = None, *, total: int | None = None, samples: int | None = None
) -> None:
    """Say that a step of training begins: the time since the one before is what that has taken.

    Called by each rank.

    Args:
        number: Which; by default one more than the last.
        total: How many there will be: the dashboard then tells how much is done, and for how long
            it goes on.
        samples: How many this rank has worked on since its last mark: the dashboard then tells how
            many all ranks do in a second.

    Raises:
        TypeError: It is no whole number.
        ValueError: It is one that 64 bits can't hold, or samples are less than none.
    """
    given = {"the step": number, "all steps": total, "samples": samples}
    for of, each in given.items():
        if each is not None and (isinstance(each, bool) or not isinstance(each, int)):
            raise TypeError(f"step() takes the number of {of}, got {each!r}")
        if each is not None and not fits(each):
            raise ValueError(f"step() takes a number of 64 bits, got {each!r}")
    if samples is not None and samples < 0:
        raise ValueError(f"step() takes samples from 0 on, got {samples!r}")
    current = context()
    here = current.actor_instance
    uid, busy = here.actor_id.uid, _busy(current._cell)
    now = time.time_ns() // 1000
    last = _last_steps.get(uid)
    which = number if number is not None else last.number + 1 if last is not None else 0
    took = own = None
    if last is not None:
        took = now - last.at
        if busy is not None and last.busy is not None:
            own = min(took, (busy - last.busy) // 1000)
    _steps.append((now, uid, here.rank.rank, which, took, own, total, samples))
    _last_steps[uid] = _Mark(which, now, busy)
    while len(_last_steps) > _MOST:  # of actors that have ended
        _last_steps.pop(next(iter(_last_steps)))


def _busy(cell: Any) -> int | None:
    """Nanoseconds in which an actor has handled messages; None of the program itself."""
    if not hasattr(cell, "sampler"):
        return None
    if cell.sampler is None:
        cell.sampler = _BusySampler()
    busy: int = cell.sampler.busy(time.time_ns())
    return busy


def recent_steps(most: int) -> dict[int, list[tuple[int, int, int]]]:
    """The last steps of each actor, in microseconds: when each ended, its time, the busy part."""
    found: defaultdict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for at, uid, _, _, took, own, *_ in list(_steps):
        if took is not None:
            found[uid].append((at, took, took if own is None else own))
    return {uid: steps[-most:] for uid, steps in found.items()}


@produces("steps")
def _step_rows(asked: Asked) -> Iterator[Row]:
    address = asked.service.hub.address
    here = proc_id(address)
    for at, uid, *rest in list(_steps):
        yield at, here, actor_id(address, uid), *rest
