"""Threads that take turns, and a clock that goes on when all of them wait.

One thread at a time has the turn: the program's, or that of an actor. It keeps it until it waits
for something of the engine: an answer, a message, `asyncio.sleep`. Then the I/O thread takes the
next step: it delivers a message, or gives the turn to a thread that has what it waited for. When
nothing is left to be done, the clock goes on to the next timer. So a run depends on nothing but the
program and the seed, which picks among what could be next.

What ends a wait: `wake`, the time that it was given, or `kill`, which raises `Killed` in it. A
thread that the program has started itself takes no turns; while it waits for the engine, others run
beside the thread that has the turn.
"""

from __future__ import annotations

import heapq
import itertools
import random
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from ..._core.net.poller import Timer, guarded
from .own_random import OwnRandom

Job = Callable[[], object]
# seconds that a thread gets which does not wait for the engine, but for something else
_END_BOUND = 5.0
# After so many timers in a row for which the program waits, it may be something outside that it
# waits for, such as an answer of a thread of its own: seconds of rest before each further one.
_BUSY, _PAUSE = 5_000, 0.001


class Killed(BaseException):
    """Raised in the threads of a proc that was killed, wherever they wait."""


_here = threading.local()


def my_turn() -> Turn | None:
    """The turn of the calling thread, if it takes turns."""
    turn: Turn | None = getattr(_here, "turn", None)
    return turn


@contextmanager
def without_turn() -> Iterator[None]:
    """Let the calling thread keep its turn, wherever it waits."""
    turn, _here.turn = my_turn(), None
    try:
        yield
    finally:
        _here.turn = turn


class Lane:
    """Jobs that are done in their order; among lanes, the schedule decides.

    Args:
        turns: The schedule that runs them.
        owner: The owner of the jobs.
    """

    def __init__(self, turns: Turns, owner: object = None) -> None:
        self.turns = turns
        self.owner = owner
        self.jobs: deque[Job] = deque()
        self.held = False
        self._closed = False

    def put(self, job: Job) -> None:
        """Have this done; on any thread, also in a finalizer."""
        if not self._closed:
            self.turns.put(self, job)

    def hold(self, held: bool) -> None:
        """Hold up what waits, and what comes; or no longer."""
        if held != self.held:
            self.turns.hold(self, held)

    def close(self) -> None:
        """Drop jobs that were not done, and later ones."""
        self._closed = True
        self.jobs.clear()


class Turn:
    """The part of one thread.

    Args:
        turns: The schedule.
        owner: What ends it with `Turns.kill`.
    """

    def __init__(self, turns: Turns, owner: object) -> None:
        self.turns = turns
        self.owner = owner
        self.thread: threading.Thread | None = None
        self.killed = False
        self.asleep = True
        self.woken = False
        self.gate = threading.Lock()
        self.gate.acquire()
        self.lane = Lane(turns)

    def grant(self) -> None:
        """Let the thread run, when the schedule comes to it."""
        self.lane.put(partial(self.turns.give, self))


class Turns:
    """See the module.

    Args:
        seed: Determines which job is next; None takes them in order of arrival.

    Attributes:
        now: Seconds since the beginning.
        acting: The owner of the job that the I/O thread is doing.
        ending: Whether the block ends, which does not wait for what nothing could end.
    """

    def __init__(self, seed: int | None) -> None:
        self.now = 0.0
        self.acting: object = None
        self.ending = False
        self._chance = None if seed is None else random.Random(seed)
        self._changed = threading.Condition()
        self._ready: list[Lane] = []
        self._timers: list[tuple[float, int, Lane, Timer]] = []
        self._numbers = itertools.count()
        self._turns: set[Turn] = set()
        self._holders: set[Turn] = set()
        self._beside = 0  # waits of threads that take no turns
        self._outside = 0  # jobs of such threads that are waited for
        self._rings = 0  # since the thread of the program ran last
        self._closed = False
        self.random = OwnRandom(self)
        self._thread = threading.Thread(target=self._run, name="monarch-turns", daemon=True)

    @property
    def thread_id(self) -> int | None:
        """The I/O thread."""
        return self._thread.ident

    def begin(self) -> None:
        """Start; the calling thread has the turn."""
        turn = self.new(self)
        turn.asleep = False
        self._holders.add(turn)
        _here.turn = turn
        self._thread.start()

    def end(self) -> None:
        """End every thread but the calling one, and the I/O thread."""
        mine = my_turn()
        for turn in [*self._turns]:
            if turn is not mine:
                self._end_turn(turn)
        with self._changed:
            self._holders.discard(mine)  # nothing else runs in its place
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._turns <= {mine}, _END_BOUND)
            self._closed = True
            self._changed.notify_all()
        self._thread.join()
        self.random.belongs_to(self)
        _here.turn = None

    # threads

    def new(self, owner: object) -> Turn:
        turn = Turn(self, owner)
        with self._changed:
            self._turns.add(turn)
        return turn

    def thread(
        self,
        owner: object,
        target: Callable[..., object],
        args: tuple[Any, ...] = (),
        name: str = "",
    ) -> _Thread:
        """A thread that takes turns, from its start to its end."""
        return _Thread(self.new(owner), target, args, name)

    def enter(self, turn: Turn) -> None:
        """The calling thread is that of `turn`, and waits until it gets it."""
        _here.turn = turn
        turn.thread = threading.current_thread()
        turn.gate.acquire()
        self.random.belongs_to(turn.owner)

    def leave(self, turn: Turn) -> None:
        """The thread has ended."""
        with self._changed:
            self._turns.discard(turn)
            self._holders.discard(turn)
            self._changed.notify_all()

    def give(self, turn: Turn) -> None:
        with self._changed:
            self._holders.add(turn)
            if turn.owner is self:
                self._rings = 0
        turn.gate.release()

    def pause(self, turn: Turn, until: float | None = None) -> None:
        """Give up the turn until `wake`, or until that time. May end early: look again."""
        with self._changed:
            waits = not (turn.woken or turn.killed)
            turn.woken = False
            if waits:
                turn.asleep = True
                timer = (
                    None if until is None else self.at(turn.lane, until, partial(self.wake, turn))
                )
                self._holders.discard(turn)
                self._changed.notify_all()
        if waits:
            limit = _END_BOUND if self.ending and turn.owner is self else -1
            if not turn.gate.acquire(timeout=limit):
                raise RuntimeError(self._why_stuck())
            if timer is not None:
                timer.cancel()
            self.random.belongs_to(turn.owner)
        if turn.killed:
            raise Killed

    def wake(self, turn: Turn) -> None:
        """Note that what the thread waits for is there; on any thread."""
        with self._changed:
            if turn.asleep:
                turn.asleep = False
                turn.grant()
            else:
                turn.woken = True

    def kill(self, owner: object) -> None:
        """End the threads of `owner`, wherever they wait."""
        for turn in [turn for turn in self._turns if turn.owner is owner]:
            self._end_turn(turn)

    def stand_still(self, owner: object, still: bool) -> None:
        """Let no thread of `owner` come to its turn; or let them again."""
        for turn in [turn for turn in self._turns if turn.owner is owner]:
            turn.lane.hold(still)

    def _why_stuck(self) -> str:
        """Return who has had the turn for all of `_END_BOUND`, and where it stands."""
        frames = sys._current_frames()
        threads = [turn.thread for turn in self._holders if turn.thread]
        stacks = [
            f"{thread.name}:\n{''.join(traceback.format_stack(frames.get(thread.ident or 0)))}"
            for thread in threads
        ]
        return f"local() can't end: an actor waits, or works on, outside of it:\n{''.join(stacks)}"

    def _end_turn(self, turn: Turn) -> None:
        turn.killed = True
        self.wake(turn)

    def sleep(self, seconds: float) -> None:
        """Let the calling thread wait for so long, by this clock."""
        turn, end = my_turn(), self.now + seconds
        if turn is None:
            raise RuntimeError(
                "this thread takes no turns with those of local(): only its test and its actors do"
            )
        self.pause(turn, end)  # once at least: others come to their turn
        while self.now < end:
            self.pause(turn, end)

    def beside(self, change: int) -> None:
        """A thread that takes no turns begins to wait for the engine, or has ended that."""
        with self._changed:
            self._beside += change
            self._changed.notify_all()

    def outside(self, change: int) -> None:
        """Count a job of a thread without turns, which the program waits for.

        While there is one, the clock stands still.
        """
        with self._changed:
            self._outside += change
            self._changed.notify_all()

    # jobs

    def put(self, lane: Lane, job: Job) -> None:
        with self._changed:
            lane.jobs.append(job)
            if len(lane.jobs) == 1 and not lane.held:
                self._ready.append(lane)
            self._changed.notify_all()

    def hold(self, lane: Lane, held: bool) -> None:
        with self._changed:
            lane.held = held
            if lane.jobs and not held:
                self._ready.append(lane)
            elif lane in self._ready:
                self._ready.remove(lane)
            self._changed.notify_all()

    def at(self, lane: Lane, time: float, job: Callable[[], None]) -> Timer:
        """Have a job done at that time."""
        timer = Timer(job)
        with self._changed:
            heapq.heappush(self._timers, (time, next(self._numbers), lane, timer))
            self._changed.notify_all()
        return timer

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(self._something_to_do)
                if self._closed:
                    return
                if not self._ready:
                    self._rings += 1
                    if self._rings > _BUSY and self._changed.wait(_PAUSE):
                        continue
                    self._ring()
                job = self._next()
            if job is not None:
                guarded(job)

    def _something_to_do(self) -> bool:
        if self._closed:
            return True
        if self._holders and not self._beside:
            return False
        while self._timers and self._timers[0][3].callback is None:
            heapq.heappop(self._timers)
        return bool(self._ready or (self._timers and not self._outside and not self._holders))

    def _next(self) -> Job | None:
        if not self._ready:  # the timer was one of a lane that is closed
            return None
        lane = self._ready.pop(
            0 if self._chance is None else self._chance.randrange(len(self._ready))
        )
        if not lane.jobs:  # it was closed
            return None
        self.acting = lane.owner
        job = lane.jobs.popleft()
        if lane.jobs:
            self._ready.append(lane)
        return job

    def _ring(self) -> None:
        """Go on to the next timer."""
        time, _, lane, timer = heapq.heappop(self._timers)
        self.now = max(self.now, time)
        if timer.callback is not None:
            lane.put(timer.callback)


class _Thread(threading.Thread):
    def __init__(
        self, turn: Turn, target: Callable[..., object], args: tuple[Any, ...], name: str
    ) -> None:
        super().__init__(target=target, args=args, name=name, daemon=True)
        self._turn = turn

    def start(self) -> None:
        self._turn.asleep = False
        self._turn.grant()
        try:
            super().start()
        except BaseException:
            self._turn.turns.leave(self._turn)
            raise

    def run(self) -> None:
        self._turn.turns.enter(self._turn)
        try:
            if not self._turn.killed:
                super().run()
        except Killed:
            pass
        finally:
            self._turn.turns.leave(self._turn)
