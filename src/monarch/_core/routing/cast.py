"""One call to processes of many hosts: its tree, and what each gateway keeps of it.

The sender's gateway is the root. It splits the hosts into at most `fanout` runs of neighbours; the
first host of each run takes the call, and splits the rest in the same way. The tree is therefore a
function of the list of hosts alone: a slice has a tree of its own, and a host that knows the list
knows who stands below whom, which is what `Branch` says.

Cost, for `n` hosts: `n` messages down, at most `n` up (answers of a subtree are joined), in
``log(n) / log(fanout)`` hops.
"""

from __future__ import annotations

import itertools
import pickle
from array import array
from collections import deque
from collections.abc import Sequence
from functools import lru_cache
from struct import Struct

from ..._namedtuple import NamedTuple
from ..wire.address import ProcAddress
from ..wire.frame import (
    AGAIN,
    CALL,
    CAST,
    CLOSE,
    EXPLICIT,
    HEADER_SIZE,
    REPLY,
    STANDING,
    Frame,
    FrameError,
    encode,
)
from .route import RESENT

_HEADER = Struct("<QHHHII")
_START = Struct("<QB")  # of a frame: the size of the rest, and the kind
_ORDER = Struct("<Q")
_MOST_KEPT = 4096  # messages of a standing cast


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
    """The header before the meta of a cast.

    Attributes:
        id: Its number; with the host of `source` it names the cast everywhere.
        source: The process that calls.
        orders: The number that it has, for each host, among what `source` has sent there, see
            `order`.
        table: The hosts, as `pack_table` writes them.
        fanout: Most hosts that one hands it to; the same everywhere, as the root works out who
            stands below whom.
    """

    id: int
    source: ProcAddress
    orders: Sequence[int]
    table: bytes
    fanout: int = 1


def pack_table(entries: Sequence[Entry]) -> bytes:
    return pickle.dumps([tuple(entry) for entry in entries], protocol=5)


@lru_cache(256)  # casts of one mesh, or slice, all have the same table
def read_table(table: bytes) -> tuple[Entry, ...]:
    """The hosts of a cast. Only what comes from an authenticated peer is read."""
    return tuple(Entry(*entry) for entry in pickle.loads(table))


def split(entries: Sequence[Entry], start: int, end: int, fanout: int) -> list[Branch]:
    """Split hosts into at most `fanout` runs of about the same length."""
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
    head = _HEADER.pack(
        header.id, header.fanout, len(host), len(proc), len(header.table), len(orders)
    )
    return frame._replace(
        kind=CAST, meta=b"".join((head, host, proc, orders, header.table, frame.meta))
    )


def attaches(frame: Frame) -> bool:
    """Return whether the target host of a frame may have yet to start.

    A host named in any other way was up.
    """
    return frame.kind in (CALL, CAST) and frame.flags & (STANDING | AGAIN) == STANDING


def split_header(frame: Frame) -> tuple[Header, bytes]:
    """The header of a cast, and the call's own meta.

    Raises:
        FrameError: The frame has none.
    """
    meta = frame.meta
    try:
        number, fanout, host, proc, table, orders = _HEADER.unpack_from(meta)
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
    return Header(number, source, numbers, table, fanout), meta[ends[-1] :]


class Cast:
    """The state of a cast in a gateway, until the root has all answers.

    Args:
        header: As it came; kept by the root alone, which knows from it who stands below whom.
        call: Without header; what it carries is kept by the root alone, to send it again.
        own: The part of this host; None at the root.
        parent: Host that it came from; None at the root.
        standing: It is never over by itself: each host that has it watches over those below.
    """

    __slots__ = (
        "_kept", "_large", "_unsent", "again", "branches", "call", "gone", "header", "id", "lingers", "orphaned", "over", "own",
        "parent", "ranks", "source", "standing", "told", "waiting",
    )  # fmt: skip

    def __init__(
        self, header: Header, call: Frame, own: Entry | None, parent: str | None, standing: bool
    ) -> None:
        self.id = header.id
        self.source = header.source
        self.header = header if parent is None else None
        self.call: Frame | None = call
        self.own = own
        self.parent = parent
        self.standing = standing
        self.branches: dict[str, Branch] = {}  # whom it was handed to
        self.waiting: set[str] = set()  # those of them that have not said that they are done
        self.gone: set[str] = set()  # those that were lost; at the root
        # processes of this host that have not answered, with their ranks
        self.ranks: dict[str, int] = {}
        self.told = False  # the parent knows that all is done
        self.again = False  # some have been asked again, so answers may come twice; at the root
        self.lingers = False  # answers wait for others
        self.orphaned = False  # the parent is lost
        self.over = False
        # what this host has said
        self._kept: deque[bytes] = deque(maxlen=_MOST_KEPT if standing else None)
        self._large: list[Frame] = []  # answers of this host that went straight to the caller
        self._unsent: list[bytes] = []

    @property
    def key(self) -> tuple[str, int]:
        return self.source.host, self.id

    def names(self, name: str | None = None) -> bytes:
        """The caller, and the `name` by which this host was called: neighbours may use another."""
        assert self.own is not None
        return "\0".join((*self.source, name or self.own.host)).encode()

    @property
    def done(self) -> bool:
        """Everybody below has answered."""
        return not self.ranks and not self.waiting

    def expect(self) -> None:
        """The processes of this host will answer, if they were asked to, and in a way that can be
        counted.
        """
        call = self.call
        if self.own is not None and call is not None and call.request and not call.flags & EXPLICIT:
            self.ranks = dict(zip(self.own.procs, self.own.ranks, strict=True))

    def answered(self, reply: Frame) -> None:
        """A process of this host has answered, or something is to be said on its behalf."""
        data = b"".join((encode(reply)[0], *reply.buffers))
        self._kept.append(data)
        self._unsent.append(data)

    def answered_itself(self, reply: Frame) -> None:
        """An answer has gone straight to the caller."""
        self._large.append(reply)

    def combine(self, replies: bytes) -> None:
        """Answers from below."""
        self._unsent.append(replies)

    def take(self) -> bytes:
        """Take the bytes to send on."""
        data = b"".join(self._unsent)
        self._unsent.clear()
        return data

    def start_again(self, parent: str) -> list[Frame]:
        """Note that the root asked another way: answers may be lost, hosts below are its concern.

        Returns the answers that are to go straight to the caller once more.
        """
        self.parent = parent
        self.orphaned = self.told = False
        self.branches.clear()
        self.waiting.clear()
        self._unsent = list(self._kept)
        return self._large

    def below(self, host: str) -> list[Branch]:
        """The hosts below one that was handed the call, each by itself, that one first."""
        header = self.header
        assert header is not None
        entries = read_table(header.table)
        found = (below(entries, branch, header.fanout, host) for branch in self.branches.values())
        indices = {index for run in found if run is not None for index in range(run.start, run.end)}
        return [Branch(entries[index].host, index, index + 1) for index in sorted(indices)]


def close_frame(keys: list[tuple[str, int]], flags: int = 0) -> Frame:
    """The word that these casts are over."""
    return Frame(CLOSE, flags, 0, 0, 0, 0, b"", pickle.dumps(keys))


def resent(replies: bytes) -> bytes:
    """Combined answers, each of them marked as one that may have come before."""
    data, at = bytearray(replies), 0
    while at < len(data):
        size, kind = _START.unpack_from(data, at)
        if kind == REPLY:
            _ORDER.pack_into(data, at + HEADER_SIZE, RESENT)
        at += 8 + size
    return bytes(data)
