"""What the workers of tensors keep, as the ranks themselves count it."""

from __future__ import annotations


def values_kept() -> int:
    """How many values the workers of this process keep; for `remote`."""
    from monarch.tensor_engine.worker.worker import workers

    return sum(worker.count for worker in workers().values())
