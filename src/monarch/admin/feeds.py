"""Server-sent events: asked for once, and sent to all readers, as long as there is one.

A reader has a buffer of bounded size. One that does not read loses the content, is told so by an
event ``gap``, and is given the whole state again where there is one. A feed runs on a thread of its
own, which ends when the last reader has gone.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import suppress
from typing import Any

from .._namedtuple import NamedTuple

MOST_BYTES = 1 << 20
"""Of the events that wait for a reader."""

HEARTBEAT = 5.0
"""Seconds after which a reader hears something: a longer silence means a lost server, and a proxy
may close the connection.
"""


class Event(NamedTuple):
    """An event of a feed.

    Attributes:
        name: What it is.
        data: What `json` takes.
        place: The value of `Last-Event-ID` by which a reader that was cut off goes on behind this
            event; empty: as the event before.
    """

    name: str
    data: Any
    place: str = ""

    @property
    def text(self) -> str:
        """As it is sent."""
        place = f"id: {self.place}\n" if self.place else ""
        return (
            f"event: {self.name}\n{place}data:"
            f" {json.dumps(self.data, separators=(',', ':'), default=str)}\n\n"
        )


class FeedSource:
    """Something that changes. It is made, used and closed on the thread of its feed.

    Attributes:
        hurries: Whether the last look was a glance, and the next one comes at once.
    """

    hurries = False

    def look(self) -> Iterable[Event]:
        """Return the events since the look before."""
        raise NotImplementedError

    def state(self) -> Event | None:
        """Return the state at the last look; None where events stand for themselves."""
        return None

    def last(self) -> Iterable[Event]:
        """Return the events after the last look at a program that has ended, without asking it."""
        return ()

    def close(self) -> None:
        """End the feed, when no page shows it."""


class Feed:
    """The events of a source, for all readers.

    Args:
        make: Makes the source, each time that a first reader comes.
        ended: Set when the program has ended, which ends the feed.
        interval: Seconds between looks.
    """

    def __init__(
        self, make: Callable[[], FeedSource], ended: threading.Event, interval: float = 1.0
    ) -> None:
        self._make = make
        self._interval = interval
        self._ended = ended
        self._lock = threading.Lock()
        self._readers: list[FeedReader] = []
        self._running = False
        self._looked = time.monotonic()

    @property
    def age(self) -> float:
        """Seconds since the last look that has not failed, or since the first reader came."""
        return time.monotonic() - self._looked

    def open(self, reader: FeedReader) -> None:
        """Send events to a reader from now on."""
        with self._lock:
            self._readers.append(reader)
            if not self._running:
                self._running = True
                self._looked = time.monotonic()
                threading.Thread(target=self._run, name="monarch-admin-feed", daemon=True).start()

    def close(self, reader: FeedReader) -> None:
        """Send it no more."""
        with self._lock:
            self._readers.remove(reader)

    def _run(self) -> None:
        source: FeedSource | None = None
        error = ""
        try:
            while readers := self._still_read(source):
                state = None
                try:
                    source = source or self._make()
                    texts = [event.text for event in source.look()]
                    if (
                        any(reader.lacks_state for reader in readers)
                        and (found := source.state()) is not None
                    ):
                        state = found.text
                    self._looked, error = time.monotonic(), ""
                except Exception as problem:
                    # the program may be about to end, or a host is slow: it is tried again
                    said = str(problem).partition("\n")[0] or type(problem).__name__
                    texts = [Event("error", {"message": said}).text]
                    error = said
                for reader in readers:
                    if state is not None and reader.lacks_state:
                        reader.put([state])
                        reader.lacks_state = False
                    elif not error or reader.told != error:
                        reader.put(texts)  # it lacks the state again if it has lost some
                    reader.told = error
                if error or source is None or not source.hurries:
                    self._ended.wait(self._interval)
        finally:
            if source is not None:
                source.close()

    def _still_read(self, source: FeedSource | None) -> list[FeedReader]:
        """Return the readers; none when the program has ended."""
        with self._lock:
            readers = list(self._readers)
            self._running = bool(readers) and not self._ended.is_set()
            if self._running:
                return readers
        last = [event.text for event in source.last()] if source is not None and readers else []
        for reader in readers:
            reader.put([*last, Event("end", {"message": "the program has ended"}).text])
            reader.end()
        return []


class FeedReader:
    """One who reads a feed, in an event loop.

    Args:
        feed: What.
        most: Bytes that wait for him at most.
    """

    def __init__(self, feed: Feed, most: int = MOST_BYTES) -> None:
        self.lacks_state = True
        self.told = ""  # why the last look has failed
        self._feed = feed
        self._most = most
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._lock = threading.Lock()
        self._texts: deque[str] = deque()
        self._size = 0
        self._lost = 0
        self._over = False

    def put(self, texts: Iterable[str]) -> None:
        """Add events, as they are sent; from any thread."""
        with self._lock:
            for text in texts:
                if self._size + len(text) > self._most and self._texts:
                    self._lost += len(self._texts)
                    self._texts.clear()
                    self._size = 0
                    self.lacks_state = True
                self._texts.append(text)
                self._size += len(text)
        self._wake()

    def end(self) -> None:
        """Send no more; from any thread."""
        self._over = True
        self._wake()

    def _wake(self) -> None:
        with suppress(RuntimeError):  # the server has ended
            self._loop.call_soon_threadsafe(self._news.set)

    def _take(self) -> list[str]:
        with self._lock:
            texts, lost = list(self._texts), self._lost
            self._texts.clear()
            self._size = self._lost = 0
        return ([Event("gap", {"lost": lost}).text] if lost else []) + texts

    async def texts(self) -> AsyncGenerator[str, None]:
        """Yield the events, until the feed ends, or its reader leaves."""
        self._feed.open(self)
        try:
            yield ": monarch\n\n"  # the head of the answer goes out at once
            sent = time.monotonic()
            while True:
                for text in self._take():
                    yield text
                    sent = time.monotonic()
                if self._over and not self._texts:
                    return
                try:  # a look that has found nothing new wakes this too
                    await asyncio.wait_for(self._news.wait(), sent + HEARTBEAT - time.monotonic())
                    self._news.clear()
                except asyncio.TimeoutError:
                    yield Event("beat", {"age": round(self._feed.age, 1)}).text
                    sent = time.monotonic()
        finally:
            self._feed.close(self)
