"""One gateway whose host notes what it is to do; frames go in by hand."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence

from monarch._core.routing.cast import (
    Entry,
    Header,
    pack_table,
    read_table,
    split_header,
    with_header,
)
from monarch._core.routing.gateway import Gateway
from monarch._core.routing.route import Route, read_route, with_route
from monarch._core.supervision.failure import EXITED, Failure
from monarch._core.wire.address import ProcAddress
from monarch._core.wire.frame import (
    CAST,
    CLOSE,
    GONE,
    REPLIES,
    REPLY,
    ROUTED,
    VALUE,
    Decoder,
    Frame,
    decode,
    encode,
)

RECONNECT = 4.0
PATIENCE = RECONNECT + 2.0
EPOCH = 5 << 40  # numbers begin behind it


def frame(kind: int, flags: int = 0, request: int = 0) -> Frame:
    return Frame(kind, flags, 0, 7, 0, request, b"meta", b"payload")


class Noted:
    """A gateway whose host notes what it is to do."""

    def __init__(self, *names: str, epoch: int = EPOCH >> 40, first_cast: int | None = 1) -> None:
        self.sent: list[tuple[str, Frame]] = []
        self.got: list[tuple[ProcAddress, Frame]] = []
        self.answers: list[tuple[str, Frame]] = []
        self.given_up: list[str] = []
        self.told: list[tuple[str, ProcAddress, Failure]] = []
        self.gone_hosts: list[str] = []
        self.losses: list[Failure] = []  # why each of them is gone
        self.ended: dict[ProcAddress, Failure] = {}
        self._timers: list[tuple[float, Callable[[], None]]] = []
        self.gateway = Gateway(self, 2, epoch, RECONNECT, 10.0, first_cast)
        self.gateway.names = set(names)

    def to_host(self, host: str, frame: Frame) -> None:
        self.sent.append((host, frame))

    def give_up(self, host: str, reason: str) -> None:
        assert reason
        self.given_up.append(host)

    def to_procs(
        self, frames: Sequence[tuple[ProcAddress, Frame]]
    ) -> list[tuple[ProcAddress, Failure]]:
        self.got += [each for each in frames if each[0] not in self.ended]
        return [(to, self.ended[to]) for to, _ in frames if to in self.ended]

    def answer(self, proc: str, frame: Frame) -> None:
        self.answers.append((proc, frame))

    def answer_all(self, proc: str, frames: bytes) -> None:
        for data in Decoder(1 << 30).feed(memoryview(frames)):
            answer = decode(data)
            if answer.kind == GONE:
                self.gone(ProcAddress("", proc), answer)
            else:
                self.answers.append((proc, answer))

    def gone(self, proc: ProcAddress, frame: Frame) -> None:
        self.told.append((proc.proc, read_route(frame)[0].source, pickle.loads(frame.payload)))

    def host_gone(self, host: str, failure: Failure) -> None:
        assert failure.explain()
        self.gone_hosts.append(host)
        self.losses.append(failure)

    def call_later(self, seconds: float, function: Callable[[], None]) -> None:
        self._timers.append((seconds, function))

    @property
    def timers(self) -> int:
        """How many functions are to be called later."""
        return len(self._timers)

    def pass_time(self, seconds: float) -> None:
        """What was to be called within so many seconds is called, what follows from it is not."""
        due = [function for after, function in self._timers if after <= seconds]
        self._timers = [each for each in self._timers if each[0] > seconds]
        for function in due:
            function()

    def sends(self, frame: Frame, source: ProcAddress, to: ProcAddress) -> int:
        """Have a process send a frame; the number that it has when it leaves."""
        self.gateway.from_proc(with_route(frame, Route(to, source)))
        return read_route(self.sent[-1][1])[0].order

    def hears(self, frame: Frame, source: ProcAddress, to: ProcAddress, order: int = 0) -> None:
        self.gateway.from_host(source.host, with_route(frame, Route(to, source, order)))

    def ends_told(self) -> list[tuple[str, ProcAddress]]:
        return [(proc, who) for proc, who, _ in self.told]

    def told_elsewhere(self) -> list[tuple[ProcAddress, ProcAddress]]:
        """Who of other hosts was told whose end."""
        routes = [read_route(frame)[0] for _, frame in self.sent if frame.kind == GONE]
        return [(route.to, route.source) for route in routes]


# casts to two processes of each host

CLIENT = ProcAddress("client", "p0")
SELF = "tcp://w0"
WORKERS = [f"tcp://w{number}" for number in range(6)]
CLOSING = 0.05
AT_ONCE = 0.8 + 0.004  # for one host
AVOIDED = 60.0
ENDED = Failure(EXITED, "it has ended")


def cast(
    hosts: list[str],
    flags: int = 0,
    *,
    request: int = 1,
    number: int = 9,
    order: int = 1,
    fanout: int = 2,
) -> Frame:
    """A call to p0 and p1 of each host, whose ranks are 0, 1, 2, ..."""
    ranks = [(2 * index, 2 * index + 1) for index in range(len(hosts))]
    table = pack_table(
        [Entry(host, ("p0", "p1"), two) for host, two in zip(hosts, ranks, strict=True)]
    )
    header = Header(number, CLIENT, [EPOCH + order] * len(hosts), table, fanout)
    return with_header(frame(CAST, flags | ROUTED, request), header)


def handed_down(node: Noted) -> list[tuple[str, list[str], int]]:
    """To whom a cast was handed, with the hosts for which it is theirs, and the flags."""
    casts = [(to, sent) for to, sent in node.sent if sent.kind == CAST]
    return [
        (
            to,
            [entry.host for entry in read_table(split_header(sent)[0].table)],
            sent.flags & ~ROUTED,
        )
        for to, sent in casts
    ]


def closed(node: Noted) -> list[tuple[str, int, object]]:
    closing = [(to, sent) for to, sent in node.sent if sent.kind == CLOSE]
    for _, sent in closing:
        assert sent == Frame(CLOSE, sent.flags, 0, 0, 0, 0, b"", sent.payload)
    return [(to, sent.flags, pickle.loads(sent.payload)) for to, sent in closing]


def reply(rank: int, flags: int = VALUE, payload: bytes = b"", order: int = 0) -> Frame:
    route = Route(CLIENT, ProcAddress(SELF, f"p{rank % 2}"), order, 9)
    return with_route(Frame(REPLY, flags, rank, 0, 0, 1, b"", payload), route)


def replies(host: str, *answers: Frame, flags: int = 0, number: int = 9) -> Frame:
    """What a host below says."""
    payload = b"".join(encode(answer)[0] for answer in answers)
    meta = "\0".join((*CLIENT, host)).encode()
    return Frame(REPLIES, flags, 0, 0, 0, number, meta, payload)
