"""Content of files, in blocks that were fetched, or are on their way."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from .._core.plane import completed, notice
from ..actor import Future
from .folder import Attributes, digest_of

BLOCK = 1 << 20
"""Bytes of a block."""

_RUN = 4  # blocks, at most, that are asked for at once

Ask = Callable[..., Future[Any]]
"""Asks the other side: ``ask("stat", path)``. The answer is a value, or the number of an error."""


class Block:
    """Some of a file.

    Args:
        attributes: What the file was when this was asked for.
        answer: That of `Folder.read`, as a source passes it on.
        start: Where the block begins in what that brings.
        before: What it held the last time, if it was asked whether that is still so.
    """

    __slots__ = ("answer", "attributes", "before", "start")

    def __init__(self, attributes: Attributes, answer: Future[Any], start: int = 0, before: bytes = b"") -> None:
        self.attributes = attributes
        self.answer = answer
        self.start = start
        self.before = before

    def data(self, answer: tuple[Attributes, bool, Any]) -> memoryview:
        _, same, data = answer
        return memoryview(self.before + data if same else data)[self.start : self.start + BLOCK]

    def held(self) -> bytes:
        """What has come; empty if nothing has."""
        if (
            not self.answer.done()
            or self.answer.exception() is not None
            or isinstance(answer := self.answer.get(), int)
        ):
            return b""
        return bytes(self.data(answer))


class Blocks:
    """Those of all files of a view.

    Args:
        live: Ask only for what has changed of what is there already.
        kept: How many stay in memory.
    """

    def __init__(self, ask: Ask, live: bool, kept: int) -> None:
        self._ask = ask
        self._live = live
        self._kept = kept
        self._blocks: OrderedDict[tuple[str, int], Block] = OrderedDict()  # by path and index
        self._lock = threading.Lock()

    def get(self, path: str, attributes: Attributes, needed: range, ahead: int) -> list[Block]:
        """Those that are needed of a file, asked for now, or before.

        Args:
            attributes: What the file is.
            ahead: How many that follow are asked for as well, once half of them are missing.
        """
        end = -(-attributes.size // BLOCK)
        with self._lock:
            half = min(needed.stop + ahead // 2, end - 1)
            wanted = needed if self._has(path, attributes, half) else range(needed.start, min(needed.stop + ahead, end))
            self._fetch(path, attributes, [each for each in wanted if not self._has(path, attributes, each)])
            for index in needed:
                self._blocks.move_to_end((path, index))
            blocks = [self._blocks[path, index] for index in needed]
            while len(self._blocks) > self._kept:
                self._blocks.popitem(last=False)
        return blocks

    def first(self, path: str, attributes: Attributes) -> Block:
        """The first block, asked for now."""
        with self._lock:
            if not self._live:  # what was read before says nothing of now
                self._blocks.pop((path, 0), None)
            self._fetch(path, attributes, [0])
            return self._blocks[path, 0]

    def put(self, path: str, attributes: Attributes, content: bytes) -> None:
        """The first block of a file whose content came with its name."""
        with self._lock:
            self._blocks[path, 0] = Block(attributes, completed((attributes, False, content)))

    def drop(self, path: str, lost: Block) -> None:
        """Forget one that did not come, so that it is asked for again."""
        with self._lock:
            for key in [key for key, block in self._blocks.items() if key[0] == path and block.answer is lost.answer]:
                del self._blocks[key]

    def ask_again(self, path: str, attributes: Attributes) -> tuple[set[int], list[Future[Any]]]:
        """Ask about what is there of a file, as it was: whether it is still so."""
        with self._lock:
            there = {
                index: block.held()
                for (name, index), block in self._blocks.items()
                if name == path and block.attributes == attributes
            }
        return {index for index, data in there.items() if data}, [
            self._again(path, *each) for each in there.items() if each[1]
        ]

    def _has(self, path: str, attributes: Attributes, index: int) -> bool:
        block = self._blocks.get((path, index))
        return block is not None and block.attributes == attributes

    def _fetch(self, path: str, attributes: Attributes, indices: Sequence[int]) -> None:
        runs: list[list[int]] = []
        for index in indices:
            old = self._blocks.get((path, index)) if self._live else None
            if old is not None and old.attributes.inode == attributes.inode and (before := old.held()):
                self._blocks[path, index] = Block(attributes, self._again(path, index, before), 0, before)
            elif runs and runs[-1][-1] == index - 1 and len(runs[-1]) < _RUN:
                runs[-1].append(index)
            else:
                runs.append([index])
        for run in runs:
            answer = self._ask("read", path, run[0] * BLOCK, len(run) * BLOCK)
            notice(answer)  # nobody may come to read it
            for start, index in enumerate(run):
                self._blocks[path, index] = Block(attributes, answer, start * BLOCK)

    def _again(self, path: str, index: int, before: bytes) -> Future[Any]:
        answer = self._ask("read", path, index * BLOCK, BLOCK, len(before), digest_of(before))
        notice(answer)
        return answer
