"""One gateway whose host notes what it is to do; frames go in by hand."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence

from monarch._core.routing.gateway import Gateway
from monarch._core.routing.route import Route, read_route, with_route
from monarch._core.supervision.failure import Failure
from monarch._core.wire.address import ProcAddress
from monarch._core.wire.frame import GONE, Decoder, Frame, decode

PATIENCE = 6.0
EPOCH = 5 << 40  # numbers begin behind it


def frame(kind: int, flags: int = 0, request: int = 0) -> Frame:
    return Frame(kind, flags, 0, 7, 0, request, b"meta", b"payload")


class Noted:
    """A gateway whose host notes what it is to do."""

    def __init__(self, *names: str) -> None:
        self.sent: list[tuple[str, Frame]] = []
        self.got: list[tuple[ProcAddress, Frame]] = []
        self.answers: list[tuple[str, Frame]] = []
        self.given_up: list[str] = []
        self.told: list[tuple[str, ProcAddress, Failure]] = []
        self.gone_hosts: list[str] = []
        self.ended: dict[ProcAddress, Failure] = {}
        self._timers: list[tuple[float, Callable[[], None]]] = []
        self.gateway = Gateway(self, fanout=2, epoch=5, patience=PATIENCE, first_cast=1)
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

    def call_later(self, seconds: float, function: Callable[[], None]) -> None:
        self._timers.append((seconds, function))

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
