"""The memory of simulated ranks: each storage, from the first value in it to the last free.

`interpreter` and `replays` tell it of each value that an instruction makes or frees.
"""

from __future__ import annotations

from collections.abc import Sequence

from monarch.tensor_engine.planning.fakes import Meta

from .cohorts import Cohort
from .machine import Machine
from .record import Change, Recorder


class Storage:
    """Memory that values share.

    Attributes:
        number: Its own.
        bytes: As the device counts.
        values: How many values are in it.
        live: Whether it has not been given back.
    """

    __slots__ = ("bytes", "live", "number", "values")

    def __init__(self, number: int, size: int) -> None:
        self.number = number
        self.bytes = size
        self.values = 0
        self.live = True


class Held:
    """A value: what it looks like, and where it is.

    Attributes:
        number: Its own. Ids are used again in replays.
    """

    __slots__ = ("meta", "number", "storage")

    def __init__(self, number: int, meta: Meta, storage: Storage) -> None:
        self.number = number
        self.meta = meta
        self.storage = storage


class RankMemory:
    """The values of all ranks, by id. What differs from rank to rank is only how many there are."""

    def __init__(self, machine: Machine, recorder: Recorder) -> None:
        self.values: dict[int, Held] = {}
        self._block = machine.block
        self._recorder = recorder
        self._count = 0
        self._put_so_far = 0

    def make(
        self,
        id: int,  # noqa: A002
        meta: Meta,
        size: int,
        cohorts: Sequence[Cohort],
        name: str,
        site: int,
    ) -> None:
        """A value in memory of its own, `size` bytes."""
        self._count += 1
        storage = Storage(self._count, -(-size // self._block) * self._block)
        self._put(id, meta, storage)
        for cohort in cohorts:
            cohort.allocate(storage.bytes)
        self._note(storage, storage.bytes, cohorts, name, site)

    def share(self, id: int, meta: Meta, other: Held) -> None:  # noqa: A002
        """A value in the memory of another one."""
        self._put(id, meta, other.storage)

    def _put(self, id: int, meta: Meta, storage: Storage) -> None:  # noqa: A002
        self._put_so_far += 1
        self.values[id] = Held(self._put_so_far, meta, storage)
        storage.values += 1

    def free(self, id: int, cohorts: Sequence[Cohort]) -> None:  # noqa: A002
        """Free an unused value. Unknown ids stand for values that are no tensors."""
        held = self.values.pop(id, None)
        if held is not None:
            self._recorder.freed(held.number)
            held.storage.values -= 1
            if not held.storage.values:
                self._release(held.storage, cohorts)

    def drop(self, id: int, cohorts: Sequence[Cohort]) -> None:  # noqa: A002
        """Drop the unused memory of a value."""
        self._release(self.values[id].storage, cohorts)

    def _release(self, storage: Storage, cohorts: Sequence[Cohort]) -> None:
        if storage.live:
            storage.live = False
            for cohort in cohorts:
                cohort.allocated -= storage.bytes
            self._note(storage, -storage.bytes, cohorts, "", -1)

    def borrow(self, size: int, cohorts: Sequence[Cohort]) -> None:
        """Memory that an operation needs while it runs."""
        for cohort in cohorts:
            cohort.peak = max(cohort.peak, cohort.allocated + size)

    def _note(
        self, storage: Storage, change: int, cohorts: Sequence[Cohort], name: str, site: int
    ) -> None:
        if self._recorder.timed and change:
            self._recorder.changes += [
                Change(cohort.ranks, cohort.end, storage.number, change, name, site)
                for cohort in cohorts
            ]
