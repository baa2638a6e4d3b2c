"""A folder as it is seen from elsewhere: what is known of it, blocks of its files, and what it takes to ask for more.

Two kinds of view differ in how long they believe what they know. A *live* one is that of files which others write: it asks again
after a second, or as soon as it is told of a change. One that is *kept* believes what it has seen until `forget`, and answers
from that what is not there, which is most of what an import asks.

What ends a wait: the answer, the end of who is asked, or `PATIENCE`. Whatever goes wrong over there is an OSError.
"""

from __future__ import annotations

import errno
import math
import os
import stat
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, cast

from .._core.plane import notice
from ..actor import Future
from .folder import Attributes

PATIENCE = 30.0
"""Seconds in which the other side answers, else the operation fails."""

BLOCK = 1 << 20
"""Bytes that are fetched at once."""

STALE_SECONDS = 0.25
"""For how long the kernel answers by itself what it has asked a kept view before."""

MOST_AHEAD = 8
"""Blocks, at most, that are fetched before they are read."""

_LIFE = 1.0  # seconds for which a live view believes what it knows
_MOST = 500_000  # names that are known at once

Ask = Callable[..., Future[Any]]
"""Asks the other side: ``ask("stat", path)``. The answer is a value, or the number of an error."""


class View:
    """Args:
    ask: How to ask the side that has the folder.
    live: Which kind it is; see above.
    kept: Blocks of files that stay in memory.
    """

    def __init__(self, ask: Ask, live: bool, kept: int = 64) -> None:
        self.live = live
        self._ask = ask
        self._life = _LIFE if live else math.inf
        self._kept = kept
        # By path: when it was asked for, and what it was; an error where there is none.
        self._known: dict[str, tuple[float, Attributes | int]] = {}
        self._listed: dict[str, tuple[float, dict[str, None]]] = {}
        self._blocks: OrderedDict[tuple[str, Attributes, int], Future[Any]] = OrderedDict()
        self._lock = threading.Lock()  # of the blocks

    def stat(self, path: str) -> Attributes:
        """What is known of a file, or a folder, or a symlink itself."""
        found: Attributes | int | None = self._fresh(self._known, path)
        if found is None and not self.live and path:
            parent, _, name = path.rpartition("/")
            found = self._fresh(self._known, path) if name in self.names(parent) else errno.ENOENT
        if found is None:
            asked = time.monotonic()
            found = cast("Attributes | int", self._answer(self._ask("stat", path), path, (errno.ENOENT, errno.ENOTDIR)))
            self._known[path] = asked, found
        if isinstance(found, int):
            raise _error(found, path)
        return found

    def names(self, path: str) -> Collection[str]:
        """The names in a folder."""
        names: dict[str, None] | None = self._fresh(self._listed, path)
        if names is None:
            asked = time.monotonic()
            found = self._answer(self._ask("list", path), path)
            if len(self._known) + len(found) > _MOST:
                self.forget()
            prefix = f"{path}/" if path else ""
            self._known.update((prefix + name, (asked, attributes)) for name, attributes in found.items())
            names = dict.fromkeys(found)
            self._listed[path] = asked, names
        return names

    def kind(self, path: str) -> int:
        """What a file was when it was listed."""
        found = self._known.get(path, (0.0, 0))[1]
        return 0 if isinstance(found, int) else found.mode

    def link(self, path: str) -> str:
        """What a symlink says."""
        text: str = self._answer(self._ask("link", path), path)
        return text

    def open(self, path: str) -> OpenFile:
        """Begin to read a file: its first block comes along, and whatever keeps it from being read.

        Where it is another one than was known, that is ESTALE, once: the kernel looks at it anew, and opens it again.
        """
        attributes = self.stat(path)
        if not stat.S_ISREG(attributes.mode):
            raise _error(errno.EISDIR if stat.S_ISDIR(attributes.mode) else errno.EINVAL, path)
        asked = time.monotonic()
        with self._lock:
            self._blocks.pop((path, attributes, 0), None)  # what was read before says nothing of now
        (answer,) = self.blocks(path, attributes, range(1))
        now, _ = self._answer_of_block((path, attributes, 0), answer)
        if now != attributes:
            known_since = self._known.get(path, (0.0,))[0]
            self._known[path] = asked, now
            if not self.live and asked - known_since > _LIFE:
                raise _error(errno.ESTALE, path)
        return OpenFile(self, path, now)

    def forget(self, changed: Mapping[str, Iterable[str]] | None = None) -> None:
        """Something has changed over there: by folder the names in it; None for anything."""
        if changed is None:
            self._known.clear()
            self._listed.clear()
            return
        for folder, names in changed.items():
            self._listed.pop(folder, None)
            for name in names:
                self._known.pop(f"{folder}/{name}" if folder else name, None)

    def blocks(self, path: str, attributes: Attributes, indices: range) -> list[Future[Any]]:
        """Of a file, as it is: asked for now, or before."""
        with self._lock:
            futures = []
            for index in indices:
                key = path, attributes, index
                if key not in self._blocks:
                    self._blocks[key] = self._ask("read", path, index * BLOCK, BLOCK)
                    notice(self._blocks[key])  # nobody may come to read it
                self._blocks.move_to_end(key)
                futures.append(self._blocks[key])
            while len(self._blocks) > self._kept:
                self._blocks.popitem(last=False)
        return futures

    def content(self, path: str, attributes: Attributes, index: int, answer: Future[Any]) -> bytes:
        """That of a block, if the file is still the same; a live one follows it."""
        now, data = self._answer_of_block((path, attributes, index), answer)
        if now.inode != attributes.inode or not (self.live or now == attributes or now.size > attributes.size):
            self._known.pop(path, None)
            raise OSError(errno.EIO, "the file is another one by now", path)
        return data

    def _fresh(self, known: dict[str, tuple[float, Any]], path: str) -> Any:
        asked, found = known.get(path, (-math.inf, None))
        return found if time.monotonic() - asked < self._life else None

    def _answer_of_block(self, key: tuple[str, Attributes, int], answer: Future[Any]) -> tuple[Attributes, bytes]:
        try:
            found: tuple[Attributes, bytes] = self._answer(answer, key[0])
        except BaseException:
            with self._lock:
                if self._blocks.get(key) is answer:  # so that it is asked for again
                    del self._blocks[key]
            self._known.pop(key[0], None)
            raise
        return found

    def _answer(self, future: Future[Any], path: str, errors: Collection[int] = ()) -> Any:
        try:
            answer = future.get(timeout=PATIENCE)
        except Exception as error:  # it has ended, or hangs
            raise OSError(errno.EIO, str(error).partition("\n")[0], path) from error
        if isinstance(answer, int) and answer not in errors:
            raise _error(answer, path)
        return answer


class OpenFile:
    """A file that is being read. If it is replaced by another one meanwhile, that is an error, and so is any change but
    growth where the view is kept.

    Args:
        view: What it is a part of.
        attributes: What it is now.
    """

    def __init__(self, view: View, path: str, attributes: Attributes) -> None:
        self._view = view
        self._path = path
        self.attributes = attributes
        self._last = -1  # block that was read last
        self._ahead = 1  # blocks that are fetched while one is read

    def read(self, offset: int, size: int) -> bytes:
        """Fewer bytes at the end of the file."""
        attributes = self._view.stat(self._path) if self._view.live else self.attributes
        if attributes.inode != self.attributes.inode:
            raise OSError(errno.EIO, "the file was replaced by another one", self._path)
        end = min(offset + size, attributes.size)
        if offset >= end:
            return b""
        first, last = offset // BLOCK, (end - 1) // BLOCK
        if abs(first - self._last) > 1:
            self._ahead = 1
        elif first > self._last:
            self._ahead = min(MOST_AHEAD, 2 * self._ahead)
        self._last = last
        most = -(-attributes.size // BLOCK)
        futures = self._view.blocks(self._path, attributes, range(first, min(last + 1 + self._ahead, most)))
        parts = []
        for index, answer in zip(range(first, last + 1), futures, strict=False):
            data = self._view.content(self._path, attributes, index, answer)
            begin = index * BLOCK
            parts.append(data[max(0, offset - begin) : end - begin])
        return parts[0] if len(parts) == 1 else b"".join(parts)


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
