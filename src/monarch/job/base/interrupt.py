"""The interrupt of a program that is in the middle of ending its job."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def one_interrupt_held() -> Iterator[None]:
    """Hold the first SIGINT back until the end of the block.

    A second one interrupts at once.
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield  # no other thread is interrupted, nor one where SIGINT is ignored
        return
    held: list[FrameType | None] = []

    def hold(number: int, frame: FrameType | None) -> None:
        if held:
            handler(number, frame)
        held.append(frame)

    signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if held:
            handler(signal.SIGINT, held[0])
