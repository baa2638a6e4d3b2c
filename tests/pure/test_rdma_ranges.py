"""Overlaps of ranges, against a model that marks every byte."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from monarch.rdma.buffers.ranges import Accesses, Intervals

RANGES = st.tuples(st.integers(0, 40), st.integers(1, 12)).map(
    lambda pair: (pair[0], pair[0] + pair[1])
)


@given(st.lists(RANGES), RANGES)
def test_an_overlap_is_found_exactly_where_a_byte_is_shared(
    added: list[tuple[int, int]], asked: tuple[int, int]
) -> None:
    intervals = Intervals()
    marked: set[int] = set()
    for start, end in added:
        intervals.add(start, end)
        marked.update(range(start, end))
    found = intervals.overlap(*asked)
    shared = marked & set(range(*asked))
    assert (found is not None) == bool(shared)
    if found is not None:
        assert set(range(*found)) <= marked
        assert set(range(*found)) & shared


@given(st.lists(st.tuples(RANGES, st.booleans())))
def test_only_reads_may_share_bytes(accesses: list[tuple[tuple[int, int], bool]]) -> None:
    known = Accesses()
    read: set[int] = set()
    written: set[int] = set()
    for (start, end), write in accesses:
        touched = set(range(start, end))
        conflict = known.conflict(start, end, write)
        assert (conflict is not None) == bool(touched & (written | (read if write else set())))
        if conflict is None:
            known.add(start, end, write)
            (written if write else read).update(touched)
