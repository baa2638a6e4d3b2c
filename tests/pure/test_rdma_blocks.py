"""Shards against shards, with arrays as the model: what is copied by runs is what numpy copies by slices."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monarch.rdma.blocks import Block, cover, runs

np = pytest.importorskip("numpy", reason="arrays are the model; numpy is not installed")

WHOLE = (5, 4, 6)


@st.composite
def blocks(draw: st.DrawFn) -> Block:
    edges = [sorted(draw(st.sets(st.integers(0, size), min_size=2, max_size=2))) for size in WHOLE]
    return Block(tuple(start for start, _ in edges), tuple(end - start for start, end in edges))


def slices(block: Block) -> tuple[slice, ...]:
    return tuple(slice(start, start + size) for start, size in zip(block.start, block.shape, strict=True))


def numbered() -> Any:
    return np.arange(np.prod(WHOLE)).reshape(WHOLE)


@given(blocks(), blocks())
def test_what_two_shards_have_in_common_is_copied_by_runs(source: Block, target: Block) -> None:
    part = source.common(target)
    expected = np.full(WHOLE, -1)
    have, want = numbered()[slices(source)].copy(), np.full(target.shape, -1)
    if part is not None:
        expected[slices(part)] = numbered()[slices(part)]
        for there, here, length in runs(part, source, target):
            assert (want.reshape(-1)[here : here + length] == -1).all()
            want.reshape(-1)[here : here + length] = have.reshape(-1)[there : there + length]
    assert (want == expected[slices(target)]).all()


@given(blocks(), st.lists(blocks(), max_size=6))
def test_every_element_is_taken_once_or_known_to_be_missing(wanted: Block, offered: list[Block]) -> None:
    taken, missing = cover(wanted, offered)
    times = np.zeros(WHOLE, dtype=int)
    there = np.zeros(WHOLE, dtype=bool)
    for offer in offered:
        there[slices(offer)] = True
    for index, part in taken:
        assert part.common(offered[index]) == part
        times[slices(part)] += 1
    for part in missing:
        assert not there[slices(part)].any()
        times[slices(part)] += 1
    expected = np.zeros(WHOLE, dtype=int)
    expected[slices(wanted)] = 1
    assert (times == expected).all()


def test_a_run_is_as_long_as_it_can_be() -> None:
    whole, rows, columns = Block((0, 0), (8, 16)), Block((4, 0), (4, 16)), Block((0, 8), (8, 8))
    assert list(runs(rows, whole, rows)) == [(64, 0, 64)]
    assert len(list(runs(columns, whole, columns))) == 8
    assert list(runs(Block((), ()), Block((), ()), Block((), ()))) == [(0, 0, 1)]
