"""Cutting transfers into parts.

Their size is one at which a time limit is noticed and several threads have something to do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .path import Piece

PART = 8 << 20
"""Bytes.

The kernel copies these in about a millisecond; smaller parts cost more calls, larger ones leave
threads idle.
"""
LEAST = 4 << 20
"""Bytes: less is not worth to wake another thread for."""
MOST_ROWS = 512
"""Rows in one batch; the kernel takes 1024 (IOV_MAX)."""


def parts(pieces: Sequence[Piece], size: int, rows: int = 1) -> Iterator[Piece]:
    """Cut the pieces into such of at most `size` bytes and `rows` rows."""
    for piece in pieces:
        if piece.nbytes <= size and piece.rows <= rows:
            yield piece
        elif piece.rows > 1:
            count = max(1, min(rows, size // piece.row))
            yield from parts(
                [piece.some_rows(first, count) for first in range(0, piece.rows, count)], size, rows
            )
        else:
            for skip in range(0, piece.nbytes, size):
                yield piece.part(skip, min(size, piece.nbytes - skip))


def shares(pieces: Sequence[Piece], threads: int, rows: int = 1) -> list[list[Piece]]:
    """Group the pieces so that each of some threads has as much to do."""
    nbytes = sum(piece.nbytes for piece in pieces)
    return batches(pieces, min(PART, max(LEAST, -(-nbytes // threads))), rows)


def batches(pieces: Sequence[Piece], size: int, rows: int = 1) -> list[list[Piece]]:
    """Group the pieces into batches, after cutting those of more than `rows` rows.

    A batch has at most `size` bytes and `MOST_ROWS` rows.
    """
    found: list[list[Piece]] = []
    filled = counted = 0
    for piece in parts(pieces, size, rows):
        if not found or filled + piece.nbytes > size or counted + piece.rows > MOST_ROWS:
            found.append([])
            filled = counted = 0
        found[-1].append(piece)
        filled += piece.nbytes
        counted += piece.rows
    return found
