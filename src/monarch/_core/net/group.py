"""Connections read together, by the poller's thread or by one that borrows all of them.

An epoll set of their own, which the poller watches as one descriptor. So a thread that waits for
the answers of many processes borrows, and gives back, with one system call, reads those that are
ready in one go, and no other thread fights with it for the interpreter lock. Each connection can be
borrowed alone as well; the set then does not tell of it.

Frames that wait to be written are not lent: the poller's thread writes them, even while another
reads.
"""

from __future__ import annotations

import select
from contextlib import suppress

from .loan import Lendable
from .poller import READ, WRITE, Handler, Poller, guarded


class Group(Lendable):
    """Takes the place of the poller for its connections. Any thread may use it."""

    def __init__(self, poller: Poller) -> None:
        self._epoll = select.epoll()
        super().__init__(poller, self._epoll.fileno())
        self._handlers: dict[int, Handler] = {}
        self._waiting_to_write: set[int] = set()
        self.call_soon = poller.call_soon
        self.call_later = poller.call_later
        poller.add(self.fd, self._ready, select.EPOLLIN)

    # in the place of a poller, for the connections

    @property
    def thread_id(self) -> int | None:
        return self._poller.thread_id

    def add(self, fd: int, handler: Handler, events: int = READ) -> None:
        """As `Poller.add`."""
        self._epoll.register(fd, events)
        self._handlers[fd] = handler

    def modify(self, fd: int, events: int) -> None:
        """Change the events of `fd`; only the poller's thread hears that it can be written to."""
        self._epoll.modify(fd, events & ~WRITE)
        if events & WRITE:
            if fd not in self._waiting_to_write:
                self._waiting_to_write.add(fd)
                self._poller.add(fd, self._handlers[fd], WRITE)
        elif fd in self._waiting_to_write:
            self._waiting_to_write.discard(fd)
            self._poller.remove(fd)

    def remove(self, fd: int) -> None:
        """As `Poller.remove`."""
        if self._handlers.pop(fd, None) is None:
            return
        if fd in self._waiting_to_write:
            self._waiting_to_write.discard(fd)
            self._poller.remove(fd)
        with suppress(OSError, ValueError):  # closed already, by us or with the group
            self._epoll.unregister(fd)

    def close(self) -> None:
        """Let go of the descriptor; its connections are closed, or as good as that."""
        with self._events:
            if not self.closed:
                self.closed = True
                self._poller.remove(self.fd)
                self._epoll.close()

    def abandon(self) -> None:
        """Let go of the descriptor in a forked child, and of nothing else.

        The epoll instance is the parent's.
        """
        self.closed = True
        self._epoll.close()

    # reading

    def receive(self) -> None:
        try:
            ready = self._epoll.poll(0)
        except ValueError:  # it was closed since the reader looked
            return
        for fd, events in ready:
            handler = self._handlers.get(fd)
            if handler is not None:
                guarded(handler, events)

    def _ready(self, events: int) -> None:
        if not self._reading.acquire(blocking=False):
            self._look_away()
            return
        try:
            if not self.closed:
                self.receive()
        finally:
            self._reading.release()

    def _watch(self, read: bool) -> None:
        if not self.closed:
            self._poller.modify(self.fd, select.EPOLLIN if read else 0)

    def _cut_short(self, error: BaseException) -> None:
        self._update_events()  # the connection that was being read knows
