"""Content of files, in blocks that were fetched, or are on their way."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from typing import Any
from weakref import WeakSet

from .._core.plane import completed, notice
from ..actor import Future
from .folder import Attributes, digest_of

BLOCK = 1 << 20
"""Bytes of a block."""

_RUN = 4  # blocks, at most, that are asked for at once

Ask = Callable[..., Future[Any]]
"""Asks the other side: ``ask("stat", path)``. The answer is a value, or the number of an error."""


class Block:
    """A cached block of a file.

    Args:
        attributes: What the file was when this was asked for.
        answer: That of `Folder.read`, as a source passes it on.
        start: Where the block begins in what that brings.
        before: What it held the last time, if it was asked whether that is still so.
    """

    __slots__ = ("_joined", "answer", "attributes", "before", "start")

    def __init__(
        self, attributes: Attributes, answer: Future[Any], start: int = 0, before: bytes = b""
    ) -> None:
        self.attributes = attributes
        self.answer = answer
        self.start = start
        self.before = before
        self._joined = b""

    def data(self, answer: tuple[Attributes, bool, Any]) -> memoryview:
        _, same, data = answer
        if same:
            data = self._joined = self._joined or self.before + data
        return memoryview(data)[self.start : self.start + BLOCK]

    def held(self) -> tuple[Attributes, bytes]:
        """Return the bytes that have come, and the file's attributes when it was read.

        The bytes are empty if none have come.
        """
        if (
            not self.answer.done()
            or self.answer.exception() is not None
            or isinstance(answer := self.answer.get(), int)
        ):
            return self.attributes, b""
        return answer[0], bytes(self.data(answer))


_Key = tuple["Blocks", str, int]  # with path and index


class Memory:
    """Blocks of all views of a mount: those that were used last.

    Args:
        most: How many.
    """

    def __init__(self, most: int) -> None:
        self.files: WeakSet[object] = WeakSet()  # that are open
        self._most = most
        self._blocks: OrderedDict[_Key, Block] = OrderedDict()
        # held for no longer than this takes: one view waits for no other
        self._lock = threading.Lock()

    def ahead(self) -> int:
        """How many blocks of each open file may be fetched ahead, with none lost before it is read.

        A quarter of a file's share: the rest is for blocks already read, and for the kernel's own
        read-ahead.
        """
        return self._most // (4 * max(1, len(self.files)))

    def get(self, key: _Key) -> Block | None:
        with self._lock:
            if key in self._blocks:
                self._blocks.move_to_end(key)
            return self._blocks.get(key)

    def put(self, key: _Key, block: Block) -> None:
        with self._lock:
            self._blocks[key] = block
            self._blocks.move_to_end(key)
            while len(self._blocks) > self._most:
                self._blocks.popitem(last=False)

    def drop(self, key: _Key) -> None:
        with self._lock:
            self._blocks.pop(key, None)

    def of(self, owner: Blocks, path: str) -> dict[int, Block]:
        """The blocks of a file."""
        with self._lock:
            return {
                key[2]: block for key, block in self._blocks.items() if key[:2] == (owner, path)
            }


class Blocks:
    """The blocks of all files of a view.

    Args:
        live: Of a block that is there already, ask only for the bytes appended since, if the others
            are unchanged.
        memory: Where they stay.
    """

    def __init__(self, ask: Ask, live: bool, memory: Memory) -> None:
        self._ask = ask
        self._live = live
        self._memory = memory
        self._lock = threading.Lock()  # so that nothing is asked for twice

    def get(self, path: str, attributes: Attributes, needed: range, ahead: int) -> list[Block]:
        """Return the needed blocks of a file, asked for now, or before.

        Args:
            path: Path of the file.
            attributes: What the file is.
            needed: Numbers of the blocks that are needed.
            ahead: How many that follow are asked for as well, once half of them are missing.
        """
        end = -(-attributes.size // BLOCK)
        ahead = min(ahead, self._memory.ahead())
        with self._lock:
            half = min(needed.stop + ahead // 2, end - 1)
            enough = not ahead or self._find(path, attributes, half)
            wanted = needed if enough else range(needed.start, min(needed.stop + ahead, end))
            found = {
                index: block for index in wanted if (block := self._find(path, attributes, index))
            }
            found |= self._fetch(
                path, attributes, [index for index in wanted if index not in found]
            )
        return [found[index] for index in needed]

    def first(self, path: str, attributes: Attributes) -> Block:
        """The first block, asked for now."""
        with self._lock:
            if not self._live:  # earlier contents say nothing about the present ones
                self._memory.drop((self, path, 0))
            return self._fetch(path, attributes, [0])[0]

    def put(self, path: str, attributes: Attributes, content: bytes) -> None:
        """The first block of a file that had its content sent with its name."""
        self._memory.put(
            (self, path, 0), Block(attributes, completed((attributes, False, content)))
        )

    def drop(self, path: str, lost: Block) -> None:
        """Forget one that did not come, so that it is asked for again."""
        with self._lock:
            for index, block in self._memory.of(self, path).items():
                if block.answer is lost.answer:
                    self._memory.drop((self, path, index))

    def ask_again(
        self, path: str, alike: Collection[Attributes]
    ) -> tuple[set[int], list[Future[Any]]]:
        """Return whether a file is still one of `alike`, of which a part was read."""
        held = {index: block.held() for index, block in self._memory.of(self, path).items()}
        there = {index: data for index, (was, data) in held.items() if data and was in alike}
        return set(there), [self._again(path, *each) for each in there.items()]

    def _find(self, path: str, attributes: Attributes, index: int) -> Block | None:
        block = self._memory.get((self, path, index))
        return block if block is not None and block.attributes == attributes else None

    def _fetch(self, path: str, attributes: Attributes, indices: Sequence[int]) -> dict[int, Block]:
        blocks: dict[int, Block] = {}
        runs: list[list[int]] = []
        for index in indices:
            old = self._memory.get((self, path, index)) if self._live else None
            if (
                old is not None
                and old.attributes.inode == attributes.inode
                and (before := old.held()[1])
            ):
                blocks[index] = Block(attributes, self._again(path, index, before), 0, before)
            elif runs and runs[-1][-1] == index - 1 and len(runs[-1]) < _RUN:
                runs[-1].append(index)
            else:
                runs.append([index])
        for run in runs:
            answer = self._ask("read", path, run[0] * BLOCK, len(run) * BLOCK)
            notice(answer)  # it may never be read
            for start, index in enumerate(run):
                blocks[index] = Block(attributes, answer, start * BLOCK)
        for index in indices:
            self._memory.put((self, path, index), blocks[index])
        return blocks

    def _again(self, path: str, index: int, before: bytes) -> Future[Any]:
        answer = self._ask("read", path, index * BLOCK, BLOCK, len(before), digest_of(before))
        notice(answer)
        return answer
