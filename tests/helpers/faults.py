"""Collects what reaches the client's fault hook, so that a fault in one test does not end the test
run.
"""

from __future__ import annotations

from helpers.waiting import PATIENCE, wait_until
from monarch.actor import MeshFailure


class Faults:
    """Stands in for `monarch.actor.unhandled_fault_hook`.

    Called on a thread of the engine, hence only appends.
    """

    def __init__(self) -> None:
        self.failures: list[MeshFailure] = []

    def __call__(self, failure: MeshFailure) -> None:
        self.failures.append(failure)

    def __len__(self) -> int:
        return len(self.failures)

    def wait_for(self, count: int, *, timeout: float = PATIENCE) -> list[MeshFailure]:
        wait_until(
            lambda: len(self.failures) >= count,
            what=f"{count} faults at the client's hook (so far: {self.reports()})",
            timeout=timeout,
        )
        return self.failures[:count]

    def reports(self) -> str:
        return "\n".join(failure.report() for failure in self.failures)
