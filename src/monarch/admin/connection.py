"""The connections of the server, and the time limits that close them.

A client may hold a connection open and do nothing; what ends each wait is here.

The head of a request must have come within some seconds, even if bytes come all the time. A reader
that takes nothing of an answer for some seconds is cut off. How many connections there are at a
time, and of whom, the listening socket says (`SharedListener`).
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_LIMIT = 10.0
"""Seconds for the head of a request."""
SEND_LIMIT = 30.0
"""Seconds in which a reader takes something of what waits for him."""


class ServerConnection(H11Protocol):
    """One, as uvicorn has it."""

    _head: asyncio.TimerHandle | None = None
    _full: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop(self._head)
        self._stop(self._full)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._expect_head()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._wait_for_reader(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        self._stop(self._full)
        super().resume_writing()

    def _expect_head(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:  # it has come
            self._stop(self._head)
            self._head = None
        elif self._head is None:
            self._head = self.loop.call_later(HEAD_LIMIT, self.transport.abort)

    def _wait_for_reader(self, waiting: int) -> None:
        """Abort the connection unless less waits at the next look than now."""

        def look() -> None:
            left = self.transport.get_write_buffer_size()
            if left >= waiting:
                self.transport.abort()
            else:
                self._wait_for_reader(left)

        self._full = self.loop.call_later(SEND_LIMIT, look)

    def _stop(self, timer: asyncio.TimerHandle | None) -> None:
        if timer is not None:
            timer.cancel()
