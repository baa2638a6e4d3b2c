"""The directories of a process, one for each shared state of its own that replicas follow.

`Plane` hands it what replicas ask (`Seek`) and report (`SeekOutcome`); it answers each with whom to
read from, and forgets a directory with its state.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any

from ..._core.plane import ProcAddress
from ...errors import BackpressureError
from ..grants.records import Refusal, Seek, SeekOutcome
from ..grants.registry import RefusedError, Registry
from .directory import Directory, ReplicaReader
from .seqlock_owner import WORDS_SIZE


class Directories:
    """The directories by buffers of the shared states' versions. Called on any thread."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._lock = threading.Lock()
        self._found: dict[int, Directory] = {}
        registry.when_freed.append(self._freed)

    def seek(self, peer: ProcAddress, record: Seek, answer: Callable[[Any], None]) -> None:
        """Answer a replica when there is a source from which it may read."""
        try:
            self._registry.memory(record.claim, 0, WORDS_SIZE, write=False)
        except RefusedError as error:
            answer(error.refusal)
            return
        with self._lock:
            directory = self._found.setdefault(record.claim.id, Directory())
            answers = directory.seek(ReplicaReader(peer, record.number), record.wish, answer)
        _give(answers)
        try:
            self._registry.memory(record.claim, 0, WORDS_SIZE, write=False)
        except RefusedError:  # freed meanwhile, perhaps before there was a directory
            self._freed(record.claim.id)

    def settle(self, peer: ProcAddress, record: SeekOutcome) -> None:
        """Note what a replica has."""
        reader = ReplicaReader(peer, record.number)
        with self._lock:
            directory = self._found.get(record.claim.id)
            if directory is None:
                return
            if record.copy is not None:
                answers = directory.arrived(reader, record.copy)
            else:
                answers = directory.failed(reader) if record.failed else directory.left(reader)
        _give(answers)

    def process_lost(self, process: ProcAddress) -> None:
        """Forget the replicas of a process that is gone."""
        with self._lock:
            answers = [
                answer for directory in self._found.values() for answer in directory.lost(process)
            ]
        _give(answers)

    def _freed(self, buffer: int) -> None:
        with self._lock:
            directory = self._found.pop(buffer, None)
        if directory is not None:
            refusal = Refusal(True, "the shared state was dropped")
            _give(partial(answer, refusal) for answer in directory.waiting())


def _give(answers: Iterable[Callable[[], None]]) -> None:
    for answer in answers:
        # its process does not read; the answer is queued for when it does
        with suppress(BackpressureError):
            answer()
