"""Shards against shards, with arrays as the model: what is copied by runs is what numpy copies by
slices.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monarch.rdma.paths.chunking import batches
from monarch.rdma.paths.path import Piece
from monarch.rdma.paths.process_vm import _after, _vectors
from monarch.rdma.states.blocks import Block, Rows, cover, rows

np = pytest.importorskip("numpy", reason="arrays are the model; numpy is not installed")

WHOLE = (5, 4, 6)


@st.composite
def blocks(draw: st.DrawFn) -> Block:
    edges = [sorted(draw(st.sets(st.integers(0, size), min_size=2, max_size=2))) for size in WHOLE]
    return Block(tuple(start for start, _ in edges), tuple(end - start for start, end in edges))


def slices(block: Block) -> tuple[slice, ...]:
    return tuple(
        slice(start, start + size) for start, size in zip(block.start, block.shape, strict=True)
    )


def numbered() -> Any:
    return np.arange(np.prod(WHOLE)).reshape(WHOLE)


@given(blocks(), blocks())
def test_what_two_shards_have_in_common_is_copied_by_runs(source: Block, target: Block) -> None:
    part = source.common(target)
    expected = np.full(WHOLE, -1)
    have, want = numbered()[slices(source)].copy(), np.full(target.shape, -1)
    if part is not None:
        expected[slices(part)] = numbered()[slices(part)]
        for group in rows(part, source, target):
            for row in range(group.repeats):
                there, here = (
                    group.source + row * group.source_step,
                    group.target + row * group.target_step,
                )
                assert (want.reshape(-1)[here : here + group.length] == -1).all()
                want.reshape(-1)[here : here + group.length] = have.reshape(-1)[
                    there : there + group.length
                ]
    assert (want == expected[slices(target)]).all()


@given(blocks(), st.lists(blocks(), max_size=6))
def test_every_element_is_taken_once_or_known_to_be_missing(
    wanted: Block, offered: list[Block]
) -> None:
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


def test_a_row_is_as_long_as_it_can_be() -> None:
    whole, upper, right = Block((0, 0), (8, 16)), Block((4, 0), (4, 16)), Block((0, 8), (8, 8))
    assert list(rows(upper, whole, upper)) == [Rows(64, 0, 64, 1, 0, 0)]
    assert list(rows(right, whole, right)) == [Rows(8, 0, 8, 8, 16, 8)]
    assert list(rows(Block((), ()), Block((), ()), Block((), ()))) == [Rows(0, 0, 1, 1, 0, 0)]


@given(
    st.lists(
        st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(0, 5)), min_size=1, max_size=4
    ),
    st.integers(1, 40),
    st.integers(1, 6),
)
def test_pieces_of_rows_are_cut_without_a_byte_lost(
    shapes: list[tuple[int, int, int]], size: int, most_rows: int
) -> None:
    pieces, begin = [], 0
    for count, row, gap in shapes:
        pieces.append(piece(begin, row * count, count, row + gap))
        begin += 100
    found = [each for batch in batches(pieces, size, most_rows) for each in batch]
    assert all(each.rows <= most_rows for each in found)
    assert all(each.nbytes <= size for each in found)
    assert [byte for each in found for byte in bytes_of(each)] == [
        byte for each in pieces for byte in bytes_of(each)
    ]
    assert max(byte for byte, _ in bytes_of(pieces[-1])) + 1 == pieces[-1].end


def piece(offset: int, nbytes: int, rows: int, step: int) -> Piece:
    unused: Any = None
    return Piece(unused, unused, offset, unused, 0, nbytes, rows, step, nbytes // rows)


def bytes_of(piece: Piece) -> list[tuple[int, int]]:
    """Where each byte is, in the buffer and in local memory."""
    return [
        (piece.offset + row * piece.offset_step + byte, piece.start + row * piece.start_step + byte)
        for row in range(piece.rows)
        for byte in range(piece.row)
    ]


def test_what_the_kernel_has_not_copied_yet_begins_within_a_row() -> None:
    vectors = _vectors(1000, 10, 3, 100)
    assert list(vectors) == [1000, 10, 1100, 10, 1200, 10]
    assert list(_after(vectors, 0)) == list(vectors)
    assert list(_after(vectors, 10)) == [1100, 10, 1200, 10]
    assert list(_after(vectors, 27)) == [1207, 3]
