"""One call to processes of many hosts: the tree that it travels down, and what each gateway keeps of it.

The sender's gateway is the root. It splits the hosts into at most `fanout` runs of neighbours; the first host of each run
takes the call, and splits the rest in the same way. The tree is therefore a function of the list of hosts alone: a slice
has a tree of its own, and whoever knows the list knows who stands below whom, which is what `Branch` says.

Cost, for `n` hosts: `n` messages down, at most `n` up (answers of a subtree are joined), in ``log(n) / log(fanout)`` hops.
"""

from __future__ import annotations

import itertools
import pickle
from array import array
from collections.abc import Iterator, Sequence
from functools import lru_cache
from struct import Struct
from typing import NamedTuple

from ..wire.address import ProcAddress
from ..wire.frame import CAST, EXPLICIT, Frame, FrameError, encode
from .route import RESENT, with_order

_HEADER = Struct("<QHHII")


class Entry(NamedTuple):
    """The part of a cast that one host takes.

    Attributes:
        host: Its name.
        procs: Names of the processes there.
        ranks: The rank that each has in the mesh that is called.
    """

    host: str
    procs: tuple[str, ...]
    ranks: Sequence[int]


class Branch(NamedTuple):
    """A run of a cast's hosts that is handed to the first of them."""

    host: str
    start: int
    end: int


class Header(NamedTuple):
    """What stands before the meta of a cast.

    Attributes:
        id: Its number; with the host of `source` it names the cast everywhere.
        source: The process that calls.
        orders: The number that it has, for each host, among what `source` has sent there, see `order`.
        table: The hosts, as `pack_table` writes them.
    """

    id: int
    source: ProcAddress
    orders: Sequence[int]
    table: bytes


def pack_table(entries: Sequence[Entry]) -> bytes:
    return pickle.dumps([tuple(entry) for entry in entries], protocol=5)


@lru_cache(256)  # casts of one mesh, or slice, all have the same table
def read_table(table: bytes) -> tuple[Entry, ...]:
    """The hosts of a cast. Only what comes from an authenticated peer is read."""
    return tuple(Entry(*entry) for entry in pickle.loads(table))


def split(entries: Sequence[Entry], start: int, end: int, fanout: int) -> list[Branch]:
    """At most `fanout` runs of about the same length."""
    count = end - start
    runs = min(fanout, count)
    bounds = [start + count * run // runs for run in range(runs + 1)] if runs else []
    return [Branch(entries[a].host, a, b) for a, b in itertools.pairwise(bounds)]


def below(entries: Sequence[Entry], branch: Branch, fanout: int, host: str) -> Branch | None:
    """The subtree of `host` within a branch; None if it is not in there."""
    while branch.host != host:
        inner = split(entries, branch.start + 1, branch.end, fanout)
        at = next((i for i in range(branch.start, branch.end) if entries[i].host == host), None)
        if at is None:
            return None
        branch = next(branch for branch in inner if branch.start <= at < branch.end)
    return branch


@lru_cache(1024)
def _part(table: bytes, start: int, end: int) -> bytes:
    return pack_table(read_table(table)[start:end])


def part(header: Header, start: int, end: int) -> Header:
    """The header as the host of a branch gets it."""
    return header._replace(table=_part(header.table, start, end), orders=header.orders[start:end])


def with_header(frame: Frame, header: Header) -> Frame:
    """The call `frame` as a cast."""
    host, proc = header.source.host.encode(), header.source.proc.encode()
    orders = array("Q", header.orders).tobytes()
    head = _HEADER.pack(header.id, len(host), len(proc), len(header.table), len(orders))
    return frame._replace(kind=CAST, meta=b"".join((head, host, proc, orders, header.table, frame.meta)))


def split_header(frame: Frame) -> tuple[Header, bytes]:
    """The header of a cast, and the call's own meta.

    Raises:
        FrameError: The frame has none.
    """
    meta = frame.meta
    try:
        number, host, proc, table, orders = _HEADER.unpack_from(meta)
        ends = [_HEADER.size]
        for size in (host, proc, orders, table):
            ends.append(ends[-1] + size)
        if ends[-1] > len(meta):
            raise ValueError
        host, proc, orders, table = (meta[a:b] for a, b in itertools.pairwise(ends))
        numbers = array("Q")
        numbers.frombytes(orders)
        source = ProcAddress(host.decode(), proc.decode())
    except Exception as error:
        raise FrameError("a cast whose header does not fit its frame") from error
    return Header(number, source, numbers, table), meta[ends[-1] :]


class Cast:
    """What a gateway keeps of a cast until the root has all answers.

    Args:
        id: Number that the root has given it.
        source: The process that calls; its host's gateway is the root.
        frame: The call, without header; what it carries is kept by the root alone, to send it again.
        parent: Host that it came from; None at the root.
        standing: It is never over by itself: who has it watches over those below.
    """

    __slots__ = (
        "_replies", "_unsent", "branches", "frame", "header", "id", "lingers", "parent", "ranks", "source", "standing", "told",
        "waiting",
    )  # fmt: skip

    def __init__(self, header: Header, frame: Frame, parent: str | None, standing: bool) -> None:
        self.id = header.id
        self.source = header.source
        self.header = header
        self.frame = frame
        self.parent = parent
        self.standing = standing
        self.branches: dict[str, Branch] = {}  # whom it was handed to
        self.waiting: set[str] = set()  # those of them that have not said that they are done
        self.ranks: dict[str, int] = {}  # processes of this host that have not answered, with their ranks
        self.told = False  # the parent knows that all is done
        self.lingers = False  # answers wait for others
        self._replies: list[Frame] = []  # all of this host, to be sent again should a host above get lost
        self._unsent: list[bytes] = []

    @property
    def done(self) -> bool:
        """Everybody below has answered."""
        return not self.ranks and not self.waiting

    def expect(self, entry: Entry) -> None:
        """The processes of this host will answer, if they were asked to, and in a way that can be counted."""
        if self.frame.request and not self.frame.flags & EXPLICIT:
            self.ranks = dict(zip(entry.procs, entry.ranks, strict=True))

    def answered(self, reply: Frame) -> None:
        """A process of this host has answered, or something is to be said on its behalf."""
        self._replies.append(reply)
        self._unsent.append(_encoded(reply))

    def combine(self, replies: bytes) -> None:
        """Answers from below."""
        self._unsent.append(replies)

    def take(self) -> bytes:
        """What is to be sent on."""
        data = b"".join(self._unsent)
        self._unsent.clear()
        return data

    def start_again(self, parent: str) -> None:
        """The root has asked by another way: what this host has said may be lost, those below are no longer its concern."""
        self.parent = parent
        self.branches.clear()
        self.waiting.clear()
        self.told = False
        self._unsent = [_encoded(with_order(reply, RESENT)) for reply in self._replies]

    @property
    def key(self) -> tuple[str, int]:
        return self.source.host, self.id

    def singles(self, branch: Branch) -> Iterator[Branch]:
        """Each host of a branch by itself."""
        entries = read_table(self.header.table)
        for index in range(branch.start, branch.end):
            yield Branch(entries[index].host, index, index + 1)


def _encoded(frame: Frame) -> bytes:
    return b"".join((encode(frame)[0], *frame.buffers))
