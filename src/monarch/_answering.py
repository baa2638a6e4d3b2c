"""Answers to control records that take their time, or may raise; and those of a host's processes."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from ._core.plane import ControlRequest, Failure, Hub, ProcAddress, send_record


def answer_with(request: ControlRequest, function: Callable[..., Any], *args: Any) -> None:
    """Answer with what a function returns, or with the error that it raises."""
    try:
        request.answer(function(*args))
    except BaseException as error:
        request.fail(error)


def answer_on_thread(
    request: ControlRequest, name: str, function: Callable[..., Any], *args: Any
) -> None:
    """Answer as `answer_with` does, on a thread of its own, so that other records are read.

    Args:
        request: The request.
        name: Of the thread.
        function: May wait.
        *args: Its arguments.
    """
    threading.Thread(
        target=answer_with, args=(request, function, *args), name=name, daemon=True
    ).start()


class HostAnswers:
    """The answers of processes of a host to one record, as its agent collects them.

    They come on the I/O thread; `ask` and `wait` are called on another one.

    Args:
        hub: That of the agent.
        addresses: The processes; they are numbered in this order.
    """

    def __init__(self, hub: Hub, addresses: Sequence[ProcAddress]) -> None:
        self.waiting = set(range(len(addresses)))  # for the answers of these
        self._hub = hub
        self._addresses = addresses
        self._news = threading.Condition()

    def ask(self, record: tuple[Any, ...]) -> None:
        if self._addresses:
            send_record(self._hub, self._addresses, record, self)

    def wait(self, patience: float, longest: float = math.inf) -> None:
        """Wait until all have answered, or none has for `patience` seconds, or for `longest`."""
        with self._news:
            left, end = -1, time.monotonic() + longest
            while self.waiting and left != len(self.waiting):
                left = len(self.waiting)
                rest = max(0.0, end - time.monotonic())
                self._news.wait_for(lambda: not self.waiting, min(patience, rest))

    def take(self, index: int, frame: Any) -> None:
        """Keep the answer of a process."""
        raise NotImplementedError

    def lost(self, index: int, failure: Failure) -> None:
        """Note that a process has ended."""

    def reply(self, frame: Any) -> bool:
        with self._news:
            if frame.rank in self.waiting:
                self.take(frame.rank, frame)
        return self._came(frame.rank)

    def peer_failed(self, address: ProcAddress, failure: Failure) -> bool:
        if address in self._addresses:
            index = self._addresses.index(address)
            self.lost(index, failure)
            self._came(index)
        return not self.waiting

    def _came(self, index: int) -> bool:
        with self._news:
            self.waiting.discard(index)
            self._news.notify()
            return not self.waiting
