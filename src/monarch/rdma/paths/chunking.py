"""Cutting transfers into parts: of a size at which a time limit is noticed and several threads have something to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .path import Piece

PART = 8 << 20
"""Bytes. The kernel copies these in about a millisecond; smaller parts cost more calls, larger ones leave threads idle."""
LEAST = 4 << 20
"""Bytes: less is not worth to wake another thread for."""
MOST_PIECES = 512
"""Pieces in one batch; the kernel takes 1024 (IOV_MAX)."""


def parts(pieces: Sequence[Piece], size: int) -> Iterator[Piece]:
    """The pieces, none larger than `size` bytes."""
    for piece in pieces:
        if piece.nbytes <= size:
            yield piece
            continue
        for skip in range(0, piece.nbytes, size):
            yield piece.part(skip, min(size, piece.nbytes - skip))


def shares(pieces: Sequence[Piece], threads: int) -> list[list[Piece]]:
    """The pieces in groups that give each of some threads as much to do."""
    nbytes = sum(piece.nbytes for piece in pieces)
    return batches(pieces, min(PART, max(LEAST, -(-nbytes // threads))))


def batches(pieces: Sequence[Piece], size: int) -> list[list[Piece]]:
    """The pieces in groups of at most `size` bytes and `MOST_PIECES` pieces."""
    found: list[list[Piece]] = []
    filled = size
    for piece in parts(pieces, size):
        if filled + piece.nbytes > size or len(found[-1]) >= MOST_PIECES:
            found.append([])
            filled = 0
        found[-1].append(piece)
        filled += piece.nbytes
    return found
