"""A look at the actors of this process, once a second while they do something.

An actor that has not changed since the last look is stuck, and the look tells since when. No
message has a clock for that.

An actor starts the pulse when it begins to serve, and, if it has stopped, whenever its thread has
waited for a message; one that is flooded never looks. It stops when nothing is handled and nothing
is queued, after one more look: a thread may have seen it go on just before. So an idle process has
no wake-up for it.
"""

from __future__ import annotations

import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from ..._namedtuple import NamedTuple
from ..calls.message import decode_meta
from ..hub import life
from ..hub.black_box import BoxActor, BoxCall, Line

if TYPE_CHECKING:
    from ..hub.message_hub import MessageHub
    from .cell import ActorCell

_PERIOD = 1.0  # seconds
# nanoseconds: a clock that differs by more was set, all else is how long it takes to read two
_STEP = 1_000_000
_offset = 0
_FIRST = 0.1  # seconds after which it looks when something gets active
_MOST = 128  # actors in a report; those that handle something are first
_SLOW = 32  # calls that took long, and are over


class _Seen(NamedTuple):
    """A call that was being handled at a tick.

    Attributes:
        activity: Gives the task that handles it; None where the actor's thread does.
        begun: How many calls of this endpoint had begun then.
        since: The time of the first tick that saw it; `time.monotonic_ns`, as a clock on the wall
            may be set meanwhile.
    """

    activity: Callable[[], object] | None
    endpoint: str
    begun: int
    since: int


class ActorPulse:
    """The pulse of one process.

    Args:
        hub: Its hub.
        cells: Gives its actors.

    Attributes:
        beating: Whether it goes on; a thread that gets active, and sees False, calls `start`.
        hooks: Called at each tick, on the I/O thread.
        ticks: How many there were.
    """

    def __init__(self, hub: MessageHub, cells: Callable[[], list[ActorCell]]) -> None:
        self.beating = False
        self.hooks: list[Callable[[], None]] = []
        self.ticks = 0
        self._poller = hub.poller
        self._cells = cells
        self._seen: dict[tuple[int, int], _Seen] = {}  # by id of the actor, and of what it handles
        self._slow: deque[BoxCall] = deque(maxlen=_SLOW)
        self._timer: object = None

    def start(self) -> None:
        """Start the thread; called on any thread."""
        self.beating = True
        self._poller.call_soon(self._go_on)

    def serves(self, cell: ActorCell) -> None:
        """An actor begins to take messages; on its thread.

        Its identity must be known even if it does not live until the next report.
        """
        if life.box is not None:
            life.box.happened(_actor(cell, life.IDLE, 0, 0))
        self.start()

    def since(self, uid: int, item: object) -> int | None:
        """Return since when an actor handles this, in nanoseconds since 1970.

        Good to a second; None if for less than that.
        """
        seen = self._seen.get((uid, id(item)))
        return _shown(seen.since) if seen is not None else None

    def _go_on(self, seconds: float = _FIRST) -> None:
        if self._timer is None:
            self._timer = self._poller.call_later(seconds, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.ticks += 1
        # first: a thread that gets active from here on starts it again
        went_on, self.beating = self.beating, False
        cells = self._cells()
        self._look(cells)
        if self._seen or any(cell.queued() for cell in cells):
            self.beating = True
        if went_on or self.beating:
            self._go_on(_PERIOD)
        for hook in self.hooks:
            hook()
        if life.box is not None:
            life.box.report(self._report(cells))

    def _look(self, cells: list[ActorCell]) -> None:
        now = time.monotonic_ns()
        before, self._seen = self._seen, {}
        for cell in cells:
            for activity, item in cell.active.items():
                endpoint = decode_meta(item[1].meta)[0]
                begun = cell.begun[endpoint]
                key = cell.uid, id(item)
                seen = before.pop(key, None)
                # the memory of a call that is over may be that of the next one; but that one has
                # then begun after it
                if seen is None or (
                    begun != seen.begun and not (seen.activity and seen.activity() is activity)
                ):
                    alone = activity is None or activity is cell.serving
                    seen = _Seen(None if alone else weakref.ref(activity), endpoint, begun, now)
                self._seen[key] = seen
        for (uid, _), over in before.items():
            if now - over.since > _PERIOD * 1.5e9:
                self._slow.append(BoxCall(uid, over.endpoint, _shown(over.since), _shown(now)))

    def _report(self, cells: list[ActorCell]) -> Iterator[Line]:
        active = {uid for uid, _ in self._seen}
        for (uid, _), seen in islice(self._seen.items(), _MOST):
            yield BoxCall(uid, seen.endpoint, _shown(seen.since), 0)
        yield from self._slow
        first = [cell for cell in cells if cell.uid in active]
        others = (cell for cell in cells if cell.uid not in active)
        for cell in islice((*first, *others), _MOST):
            yield _actor(cell, status_of(cell), len(cell.queued()), handled_by(cell))


def _shown(at: int) -> int:
    """A time of `time.monotonic_ns` in nanoseconds since 1970; the same until the clock is set."""
    global _offset
    offset = time.time_ns() - time.monotonic_ns()
    if abs(offset - _offset) > _STEP:
        _offset = offset
    return _offset + at


def _actor(cell: ActorCell, status: str, queued: int, handled: int) -> BoxActor:
    record: Any = cell.record
    return BoxActor(
        cell.uid, record.rank.rank, record.name, record.class_name or "", str(record), cell.incarnation, int(cell.since * 1e6),
        status, queued, handled,
    )  # fmt: skip


def begun_by(cell: ActorCell) -> dict[str, int]:
    """How many messages an actor has begun to handle, by endpoint; the engine's own are none."""
    return {name: count for name, count in cell.begun.copy().items() if name[:1] != "\0"}


def handled_by(cell: ActorCell) -> int:
    """How many messages an actor has handled."""
    return max(0, sum(begun_by(cell).values()) - len(cell.active))


def status_of(cell: ActorCell) -> str:
    """Return the status of an actor: a name of `life`, or ``Processing``."""
    if cell.ending is not None:
        return life.STOPPING
    if cell.thread is None:
        return life.CREATED
    if cell.actor is None:
        return life.INITIALIZING
    return "Processing" if cell.active else life.IDLE
