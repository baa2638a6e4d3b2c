"""Pollers on threads of their own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from helpers.waiting import PATIENCE
from monarch._core.net.poller import Poller


@contextmanager
def running_poller() -> Iterator[Poller]:
    """One that runs until the block ends."""
    poller = Poller()
    thread = threading.Thread(target=poller.run, name="test-poller")
    thread.start()
    try:
        yield poller
    finally:
        poller.stop()
        thread.join(PATIENCE)
        assert not thread.is_alive()
        poller.close()


def settle(poller: Poller) -> None:
    """Wait until the loop has taken everything that was asked of it before, and polled once."""
    for _ in range(2):
        done = threading.Event()
        poller.call_soon(done.set)
        assert done.wait(PATIENCE)
