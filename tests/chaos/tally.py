"""What was done, and how long it took."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any


class Tally:
    """Filled by all threads of a run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.operations: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.endings: Counter[str] = Counter()
        self.longest_wait: dict[str, float] = {}
        self.procs = 0
        self.episodes = 0

    def did(self, operation: str) -> None:
        with self._lock:
            self.operations[operation] += 1

    def injected(self, fault: str) -> None:
        with self._lock:
            self.faults[fault] += 1

    def ended(self, ending: str, procs: int) -> None:
        with self._lock:
            self.endings[ending] += 1
            self.episodes += 1
            self.procs += procs

    def waited(self, kind: str, seconds: float) -> None:
        if seconds > self.longest_wait.get(kind, 0.0):
            with self._lock:
                self.longest_wait[kind] = max(seconds, self.longest_wait.get(kind, 0.0))

    @property
    def total(self) -> int:
        return sum(self.operations.values())

    def as_dict(self) -> dict[str, Any]:
        with self._lock:
            return {
                "episodes": self.episodes,
                "operations": sum(self.operations.values()),
                "by_operation": dict(self.operations.most_common()),
                "faults": dict(self.faults.most_common()),
                "endings": dict(self.endings.most_common()),
                "procs_spawned": self.procs,
                "longest_wait_seconds": {
                    kind: round(s, 3) for kind, s in sorted(self.longest_wait.items())
                },
            }
