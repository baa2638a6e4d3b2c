"""Which reader of a shared state reads from whom: a pure table, events in, routes out.

It is kept by the owner's process.

Readers that have a version serve those that come later, so that the source serves few at a time
however many there are: a tree that grows as they arrive. A reader is sent, in this order, to

1. a copy, or the source, on its own host: that costs no network, and any number may;
2. none yet, if another of its host fetches the same: one per host does;
3. a copy of another host that serves fewer than `fanout` of other hosts; the source, as long as
   fewer than `fanout` have, or fetch, the same;
4. none yet, until there is one.

So the source sends each version to `fanout` readers of each layout, if none of them fails.

Copies serve readers of the same layout: the same parts of the same tensors, of the same sources. No
reader waits for one that waits for it: a reader has been given a version that is there already.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from ..._core.plane import ProcAddress

FANOUT = 2
"""Readers of other hosts that a source or a copy serves at one time."""


class ReplicaReader(NamedTuple):
    """One replica: its process, and its number there."""

    process: ProcAddress
    number: int


class Wish(NamedTuple):
    """A reader's wish for a version.

    Attributes:
        layout: Says which parts of which tensors of which sources.
        versions: Of these sources; newer ones will do.
        is_near: The sources are on its host.
    """

    layout: bytes
    versions: tuple[int, ...]
    is_near: bool


class Copy(NamedTuple):
    """A reader's copy.

    Attributes:
        handle: Its `SharedState`, pickled.
        version: Of that shared state itself.
        versions: Of the sources.
    """

    handle: bytes
    version: int
    versions: tuple[int, ...]


Answer = Callable[[Any], None]
"""Takes the `Copy` to read; None stands for the sources themselves."""


class _Entry:
    """A reader: it waits for a route, reads, has a copy, or none of these."""

    __slots__ = ("answer", "copy", "given", "is_far", "reads", "server", "wish")

    def __init__(self, wish: Wish, answer: Answer) -> None:
        self.wish = wish
        self.answer: Answer | None = answer  # while it waits
        self.reads = False
        self.server: ReplicaReader | None = None  # while it reads: from whom; None for the sources
        self.given: Copy | None = None
        self.is_far = False
        self.copy: Copy | None = None


class _View:
    """The state of one wish: copies, the hosts with one, the hosts that fetch one."""

    def __init__(self, entries: Mapping[ReplicaReader, _Entry], wish: Wish) -> None:
        alike = [
            (reader, entry) for reader, entry in entries.items() if entry.wish.layout == wish.layout
        ]
        self.copies = [
            reader
            for reader, entry in alike
            if entry.copy is not None and _reach(entry.copy.versions, wish.versions)
        ]
        self.near = {reader.process.host: reader for reader in self.copies}
        self.fetching = {
            reader.process.host
            for reader, entry in alike
            if entry.reads and _reach(entry.wish.versions, wish.versions)
        }
        self.is_full = False  # no source can serve one more


class Directory:
    """The readers of one shared state.

    Args:
        fanout: Readers of other hosts that each serves at one time.
    """

    def __init__(self, fanout: int = FANOUT) -> None:
        self._fanout = fanout
        self._entries: dict[ReplicaReader, _Entry] = {}
        self._load: Counter[ReplicaReader | None] = Counter()

    def seek(self, reader: ReplicaReader, wish: Wish, answer: Answer) -> list[Callable[[], None]]:
        """A reader wants a version, and gives up the one it has.

        Returns:
            The answers that can be given now, to this one and others, as for all events.
        """
        self._remove(reader)
        self._entries[reader] = _Entry(wish, answer)  # last in the line
        return self._assign()

    def arrived(self, reader: ReplicaReader, copy: Copy) -> list[Callable[[], None]]:
        """A reader has what it was sent for, and serves others."""
        entry = self._entries.get(reader)
        if entry is None:  # taken for dead meanwhile
            return []
        self._release(entry)
        entry.copy = copy
        return self._assign()

    def failed(self, reader: ReplicaReader) -> list[Callable[[], None]]:
        """A reader did not get what it was sent for.

        The source is not given to others until it has something new.
        """
        entry = self._entries.get(reader)
        if entry is not None and entry.server is not None:
            server = self._entries.get(entry.server)
            if server is not None and server.copy is entry.given:
                server.copy = None
        return self.left(reader)

    def left(self, reader: ReplicaReader) -> list[Callable[[], None]]:
        """Remove a reader: it wants nothing more, and serves no others."""
        self._remove(reader)
        return self._assign()

    def lost(self, process: ProcAddress) -> list[Callable[[], None]]:
        """A process has ended."""
        for reader in [reader for reader in self._entries if reader.process == process]:
            self._remove(reader)
        return self._assign()

    def waiting(self) -> list[Answer]:
        """The answers that are owed."""
        return [entry.answer for entry in self._entries.values() if entry.answer is not None]

    def _remove(self, reader: ReplicaReader) -> None:
        entry = self._entries.pop(reader, None)
        if entry is not None:
            self._release(entry)

    def _release(self, entry: _Entry) -> None:
        if entry.reads and entry.is_far:
            self._load[entry.server] -= 1
            if not self._load[entry.server]:
                del self._load[entry.server]
        entry.answer, entry.reads, entry.server, entry.given = None, False, None, None

    def _assign(self) -> list[Callable[[], None]]:
        answers: list[Callable[[], None]] = []
        views: dict[Wish, _View] = {}
        for reader, entry in self._entries.items():
            if entry.answer is None:
                continue
            view = views.get(entry.wish)
            if view is None:
                view = views[entry.wish] = _View(self._entries, entry.wish)
            if self._route(reader.process.host, entry, view):
                answers.append(partial(entry.answer, entry.given))
                entry.answer = None
        return answers

    def _route(self, host: str, entry: _Entry, view: _View) -> bool:
        """Decide from whom it reads; False if it waits."""
        if entry.wish.is_near or host in view.near:
            return self._read(entry, None if entry.wish.is_near else view.near[host], is_far=False)
        if host in view.fetching or view.is_full:
            return False
        servers: list[ReplicaReader | None] = [*view.copies]
        if len(view.copies) + len(view.fetching) < self._fanout:  # the others wait for these
            servers.append(None)
        server = min(servers, key=lambda server: (self._load[server], server is None), default=None)
        if not servers or self._load[server] >= self._fanout:
            view.is_full = True
            return False
        view.fetching.add(host)
        return self._read(entry, server, is_far=True)

    def _read(self, entry: _Entry, server: ReplicaReader | None, is_far: bool) -> bool:
        entry.reads, entry.server, entry.is_far = True, server, is_far
        entry.given = None if server is None else self._entries[server].copy
        if is_far:
            self._load[server] += 1
        return True


def _reach(versions: Sequence[int], wanted: Sequence[int]) -> bool:
    return all(version >= least for version, least in zip(versions, wanted, strict=True))
