"""A folder as it is seen from elsewhere: its known state, and the means to ask for more.

Two kinds of view differ in how long they believe what they know. A *live* one is that of files
which others write: it asks again after a second, or as soon as it is told of a change. One that
is *kept* believes what it has seen until `forget`, and answers from that which names do not exist,
the most frequent question of an import.

What ends a wait: the answer, the end of the other side, or `PATIENCE`. A waiting operation takes up
a thread that views of other folders need, so `MOST_PATIENT` operations at most go on waiting once
the other side has been silent for `SILENCE`. Every failure of the other side is an OSError.
"""

from __future__ import annotations

import errno
import math
import os
import stat
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, cast

from ..actor import Future
from .blocks import BLOCK, Ask, Block, Blocks, Memory
from .folder import Attributes

PATIENCE = 30.0
"""Seconds in which the other side answers, else the operation fails."""

SILENCE = 5.0
"""Seconds without any answer, while some are waited for, after which the other side may hang."""

MOST_PATIENT = 16
"""Operations that wait for `PATIENCE` even so."""

STALE_SECONDS = 0.25
"""For how long the kernel answers by itself what it has asked a kept view before."""

MOST_AHEAD = 8
"""Blocks, at most, that are fetched before they are read."""

_LIFE = 1.0  # seconds for which a live view trusts its knowledge
_MOST = 500_000  # names in memory at once
_MOST_SENT = 4096  # files with contents sent along with their names, a few KiB each
_NEVER = -math.inf, None  # asked for
# which have an actor each over there: one may answer while the other hangs
_NAMES, _CONTENT = "names", "content"


class MountView:
    """A folder of another side, as it is seen here.

    Args:
        ask: How to ask the side that has the folder.
        live: Which kind it is; see above.
        memory: Where blocks of files stay; None for one of its own.
    """

    def __init__(self, ask: Ask, live: bool, memory: Memory | None = None) -> None:
        self.live = live
        self._ask = ask
        self._life = _LIFE if live else math.inf
        # By path: when it was asked for, and what it was; an error where there is none. Or when it
        # has changed, and None.
        self._known: dict[str, tuple[float, Attributes | int | None]] = {}
        self._listed: dict[str, tuple[float, dict[str, None] | None]] = {}
        self._forgotten = -math.inf  # when everything had changed
        self._sent: dict[str, tuple[Attributes, bytes]] = {}  # files that came with their names
        self.memory = memory or Memory(64)
        self._blocks = Blocks(ask, live, self.memory)
        self._lock = threading.Lock()  # of the known state, and of the waiting operations
        self._waiting = {_NAMES: 0, _CONTENT: 0}  # operations
        # when the last answer came, or the first of those began to wait
        self._heard = {_NAMES: 0.0, _CONTENT: 0.0}

    def stat(self, path: str) -> Attributes:
        """Return the attributes of a file, a folder, or a symlink itself."""
        found: Attributes | int | None = self._fresh(self._known, path)
        if found is None and not self.live and path:
            parent, _, name = path.rpartition("/")
            found = self._fresh(self._known, path) if name in self.names(parent) else errno.ENOENT
        if found is None:
            asked = time.monotonic()
            found = cast(
                "Attributes | int",
                self._answer(self._ask("stat", path), path, (errno.ENOENT, errno.ENOTDIR)),
            )
            self._keep(asked, {path: found})
        if isinstance(found, int):
            raise _error(found, path)
        return found

    def names(self, path: str) -> Collection[str]:
        """The names in a folder."""
        names: dict[str, None] | None = self._fresh(self._listed, path)
        if names is None:
            asked = time.monotonic()
            if self.live:
                folders, contents = {path: self._answer(self._ask("list", path), path)}, {}
            else:
                folders, contents = self._answer(self._ask("tree", path), path)
            known = {
                _below(folder, name): each
                for folder, found in folders.items()
                for name, each in found.items()
            }
            listed = {folder: dict.fromkeys(found) for folder, found in folders.items()}
            self._keep(asked, known, listed)
            if len(self._sent) > _MOST_SENT:
                self._sent.clear()
            self._sent.update(contents)
            names = listed[path]
        return names

    def kind(self, path: str) -> int:
        """Return the type of a file when it was listed."""
        found = self._known.get(path, _NEVER)[1]
        return found.mode if isinstance(found, Attributes) else 0

    def link(self, path: str) -> str:
        """Return the target of a symlink."""
        return str(self._answer(self._ask("link", path), path))

    def open(self, path: str) -> OpenFile:
        """Begin to read a file: its first block comes along, or the error of reading it.

        Where it is another one than was known, that is ESTALE, once: the kernel looks at it anew,
        and opens it again.
        """
        attributes = self.stat(path)
        if not stat.S_ISREG(attributes.mode):
            raise _error(errno.EISDIR if stat.S_ISDIR(attributes.mode) else errno.EINVAL, path)
        sent, content = self._sent.get(path, (None, b""))
        if sent == attributes:
            self._blocks.put(path, attributes, content)
            return OpenFile(self, path, attributes)
        asked = time.monotonic()
        now, _ = self._content(path, self._blocks.first(path, attributes))
        if now != attributes:
            known_since = self._known.get(path, _NEVER)[0]
            self._keep(asked, {path: now})
            if not self.live and asked - known_since > _LIFE:
                raise _error(errno.ESTALE, path)
        return OpenFile(self, path, now)

    def forget(self, changed: Mapping[str, Iterable[str]] | None = None) -> None:
        """Something has changed over there: by folder the names in it; None for anything."""
        now = time.monotonic()
        with self._lock:
            if changed is None:
                self._forgotten = now
                self._known.clear()
                self._listed.clear()
                self._sent.clear()
                return
            for folder, names in changed.items():
                self._listed[folder] = now, None
                self._known.update((_below(folder, name), (now, None)) for name in names)

    def read(
        self, path: str, attributes: Attributes, needed: range, ahead: int
    ) -> Iterator[tuple[Attributes, memoryview]]:
        """Blocks of a file, and what it was when each was read; see `Blocks.get`."""
        for block in self._blocks.get(path, attributes, needed, ahead):
            yield self._content(path, block)

    def unchanged(self, path: str, alike: Collection[Attributes], seen: Collection[int]) -> bool:
        """Return whether the part of a file in memory, read as one of `alike`, is still current.

        It must be some of it, and all of `seen`.
        """
        there, answers = self._blocks.ask_again(path, alike)
        if not there or not there.issuperset(seen):
            return False
        return all(self._answer(answer, path, side=_CONTENT)[1] for answer in answers)

    def lost(self, path: str) -> None:
        """Note that a file differs from its known attributes."""
        self._known[path] = time.monotonic(), None

    def _fresh(self, known: dict[str, tuple[float, Any]], path: str) -> Any:
        asked, found = known.get(path, _NEVER)
        return found if time.monotonic() - asked < self._life else None

    def _keep(
        self,
        asked: float,
        known: Mapping[str, Attributes | int],
        listed: Mapping[str, dict[str, None]] | None = None,
    ) -> None:
        """Take over answers to a question asked at `asked`, unless all was forgotten since."""
        with self._lock:
            if asked <= self._forgotten:
                return
            while len(self._known) + len(known) > _MOST and self._listed:
                folder = next(iter(self._listed))
                for name in self._listed.pop(folder)[1] or ():
                    self._known.pop(_below(folder, name), None)
            if len(self._known) + len(known) > _MOST:  # by those that were asked for one by one
                self._known.clear()
            for path, found in known.items():
                # an answer to an earlier question must not replace a later one, or the note that
                # the file has changed since
                if self._known.get(path, _NEVER)[0] < asked:
                    self._known[path] = asked, found
            for path, names in (listed or {}).items():
                if self._listed.get(path, _NEVER)[0] < asked:
                    self._listed[path] = asked, names

    def _content(self, path: str, block: Block) -> tuple[Attributes, memoryview]:
        try:
            answer = self._answer(block.answer, path, side=_CONTENT)
        except BaseException:
            # a failed block must be asked for again, not remembered
            self._blocks.drop(path, block)
            self.lost(path)
            raise
        return answer[0], block.data(answer)

    def _answer(
        self, future: Future[Any], path: str, errors: Collection[int] = (), side: str = _NAMES
    ) -> Any:
        try:
            answer = future.get() if future.done() else self._wait(future, side)
        except Exception as error:  # it has ended, or hangs
            raise OSError(errno.EIO, str(error).partition("\n")[0], path) from error
        if isinstance(answer, int) and answer not in errors:
            raise _error(answer, path)
        return answer

    def _wait(self, future: Future[Any], side: str) -> Any:
        began = time.monotonic()
        with self._lock:
            if not self._waiting[side]:
                self._heard[side] = began
            # only some may wait long: each holds one of the threads that answer the kernel
            patient = sum(self._waiting.values()) < MOST_PATIENT
            self._waiting[side] += 1
        try:
            while not future.done():
                end = began + PATIENCE
                if not patient:
                    end = min(end, self._heard[side] + SILENCE)
                left = end - time.monotonic()
                if left <= 0:
                    raise TimeoutError(
                        f"no answer for {PATIENCE if end == began + PATIENCE else SILENCE:g} s"
                    )
                with suppress(TimeoutError):
                    future.get(timeout=left)
            self._heard[side] = time.monotonic()
            return future.get()
        finally:
            with self._lock:
                self._waiting[side] -= 1


class OpenFile:
    """A file that is being read.

    If it is replaced by another one meanwhile, that is an error. A live one is followed; one that
    is kept is as long as it was, and if blocks already read have changed, that is an error.

    Args:
        view: What it is a part of.
        attributes: What it is now.
    """

    def __init__(self, view: MountView, path: str, attributes: Attributes) -> None:
        self._view = view
        self._path = path
        self.attributes = attributes
        self._alike = {attributes}  # states in which it still held the blocks that were read
        self._seen: set[int] = set()  # blocks that have been read
        self._last = -1  # block that was read last
        self._ahead = 1  # blocks that are fetched while one is read
        self._lost = False
        view.memory.files.add(self)

    def read(self, offset: int, size: int) -> list[memoryview]:
        """Read, and return the parts to put together; fewer bytes at the end of the file."""
        attributes = self._view.stat(self._path) if self._view.live else self.attributes
        if self._lost:
            raise OSError(errno.EIO, "the file is another one by now", self._path)
        if attributes.inode != self.attributes.inode:
            raise OSError(errno.EIO, "the file was replaced by another one", self._path)
        end = min(offset + size, attributes.size)
        if offset >= end:
            return []
        needed = range(offset // BLOCK, (end - 1) // BLOCK + 1)
        # the kernel asks for several at once, in any order
        if abs(needed.start - self._last) > MOST_AHEAD:
            self._ahead = 1
        elif needed.start > self._last:
            # doubled as long as it is read in order: a few blocks at random places cost no more
            # than themselves
            self._ahead = min(MOST_AHEAD, 2 * self._ahead)
        self._last = needed[-1]
        parts = []
        for index, (now, data) in zip(
            needed, self._view.read(self._path, attributes, needed, self._ahead), strict=True
        ):
            self._check(now)
            self._seen.add(index)
            start, stop = max(0, offset - index * BLOCK), min(BLOCK, end - index * BLOCK)
            parts.append(data[start:stop])
            if len(data) < stop:  # it has become shorter: what follows does not belong here
                break
        return parts

    def is_current(self) -> bool:
        """Return whether the file still holds the blocks that were read; if not, later reads fail."""
        try:
            self._check(self._view.stat(self._path))
        except OSError:
            self._lost = True
        return not self._lost

    def _check(self, now: Attributes) -> None:
        """Check that a block may stand beside earlier ones, by the state of the file."""
        known = self.attributes
        if now in self._alike or (self._view.live and now.inode == known.inode):
            return
        if now.inode == known.inode and now.size >= known.size:
            # Where only `ctime` differs, it is rather its permissions, or another name, than its
            # content.
            seen = self._seen if (now.size, now.mtime) != (known.size, known.mtime) else ()
            if self._view.unchanged(self._path, self._alike, seen):
                self._alike.add(now)
                return
        self._view.lost(self._path)
        raise OSError(errno.EIO, "the file is another one by now", self._path)


def _below(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
