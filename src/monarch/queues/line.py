"""Waiting in a line of an actor."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, TypeVar

E = TypeVar("E")


async def done(answer: asyncio.Future[Any], line: deque[E], entry: E, timeout: float | None) -> bool:
    """Whether there was an answer in time. Who waits no longer, as it is late or its call was cancelled, leaves the line.

    Args:
        answer: What ends the wait.
        line: Where `entry` stands.
        timeout: In seconds.
    """
    try:
        await asyncio.wait({answer}, timeout=timeout)
    finally:
        if not answer.done():
            line.remove(entry)
    return answer.done()
