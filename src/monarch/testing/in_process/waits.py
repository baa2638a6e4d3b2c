"""Locks, conditions and queues that give up the turn of a thread which waits there."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from queue import Empty
from typing import Any

from .turns import Turn, Turns, my_turn


class TurnLock:
    """The lock that `calls.waiting.block` waits at.

    The waiting thread takes it, and the thread with the result releases it.
    """

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._taken = False
        self._sleeper: Turn | None = None
        self._real = threading.Lock()  # for threads without turns

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if not self._taken:
            self._taken = True
            self._real.acquire()
            return True
        if not blocking:
            return False
        turn = self._sleeper = my_turn()
        if turn is None:
            return self._wait_beside(timeout)
        end = None if timeout < 0 else self._turns.now + timeout
        while self._taken:
            if end is not None and self._turns.now >= end:
                return False
            self._turns.pause(turn, end)
        return True

    def _wait_beside(self, timeout: float) -> bool:
        self._turns.beside(1)
        try:
            return self._real.acquire(timeout=timeout)
        finally:
            self._turns.beside(-1)

    def release(self) -> None:
        self._taken = False
        self._real.release()
        if self._sleeper is not None:
            self._turns.wake(self._sleeper)


class TurnCondition(threading.Condition):
    """A condition with waits that give up the turn.

    Args:
        turns: The schedule.
        lock: As of any condition.
    """

    def __init__(self, turns: Turns, lock: Any) -> None:
        super().__init__(lock)
        self._turns = turns
        self._sleepers: list[Turn] = []

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        """Wait until it is true, or the time is up; return whether it is true."""
        turn = my_turn()
        if turn is None:
            return super().wait_for(predicate, timeout)
        end = None if timeout is None else self._turns.now + timeout
        while not (true := predicate()) and (end is None or self._turns.now < end):
            self._sleepers.append(turn)
            self.release()
            try:
                self._turns.pause(turn, end)
            finally:
                self.acquire()
        return true

    def notify_all(self) -> None:
        """Wake all that wait."""
        super().notify_all()
        sleepers, self._sleepers = self._sleepers, []
        for turn in sleepers:
            self._turns.wake(turn)


class TurnQueue:
    """As `queue.SimpleQueue`, for one reader."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._items: deque[Any] = deque()
        self._reader: Turn | None = None

    def put(self, item: Any) -> None:
        self._items.append(item)
        if self._reader is not None:
            self._turns.wake(self._reader)

    def get(self) -> Any:
        turn = self._reader = my_turn()
        assert turn is not None
        while not self._items:
            self._turns.pause(turn)
        return self._items.popleft()

    def get_nowait(self) -> Any:
        try:
            return self._items.popleft()
        except IndexError:
            raise Empty from None
