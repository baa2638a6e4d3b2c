"""Reading a connection in place of the I/O thread, as a block."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from monarch._core.net.connection import Connection


@contextmanager
def borrowed(connection: Connection) -> Iterator[bool]:
    """Give whether the calling thread may read; what ends the block goes to `give_back`."""
    mine = connection.borrow()
    try:
        yield mine
    except BaseException as error:
        if mine:
            connection.give_back(error)
        raise
    if mine:
        connection.give_back()
