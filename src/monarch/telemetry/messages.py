"""The table of the messages that this process has sent and handled.

The engine calls `start` for each actor, and then the sampler that it got for each message. Sampled
messages are kept in rings of a bounded size; the tables are made from them when a query asks.
"""

from __future__ import annotations

import itertools
import os
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any
from weakref import WeakSet

from .. import config
from .._core.plane import SYSTEM, TRACE, ProcAddress, actors_of, begun_by, black_box
from .._guards.surroundings import read
from .._lazy import whole
from .history import History
from .ids import actor_id, mesh_id, message_id, proc_id
from .registry import Asked, produces
from .rows import shape_json, view_json
from .sampling import Sampling

Row = tuple[Any, ...]

KEPT = 3600 * 1_000_000_000
"""Nanoseconds for which messages are remembered."""

ON_A_HOST = 64 << 20
"""Bytes that all procs of a host remember, at most."""

_BYTES = 400  # of one record, roughly
_SENDERS = 1_000  # ids of senders that an actor keeps
_EXTENTS = "\0"
_numbers = itertools.count()


class _Handled:
    """One message that an actor has begun to handle; `end` is None until it has."""

    __slots__ = (
        "begin", "bytes", "call", "end", "failed", "meta", "number", "peer", "sender", "slot",
        "uid", "weight",
    )  # fmt: skip

    def __init__(self, peer: ProcAddress, frame: Any, weight: int) -> None:
        self.number = next(_numbers)
        self.peer = peer
        self.sender = frame.sender
        self.uid = frame.target
        self.meta = frame.meta if TRACE not in frame.meta else frame.meta.partition(TRACE)[0]
        self.call = frame.request
        self.bytes = len(frame.payload)
        if frame.buffers:
            self.bytes += sum(map(len, frame.buffers))
        self.weight = weight
        self.slot = 0  # in the black box
        self.failed = False
        self.begin = time.time_ns()
        self.end: int | None = None


class OutgoingSampler(Sampling):
    """Looks at some of the messages that a process sends, until telemetry is off.

    Args:
        hub: That of the process, which counts down.
        most: How many it remembers.

    Attributes:
        kept: Number, time, sender, target, ranks, meta, size, weight and request of each.
    """

    def __init__(self, hub: Any, most: int, adaptive: bool) -> None:
        super().__init__(time.monotonic, adaptive)
        self._hub = hub
        self.kept: deque[tuple[int, int, int, int, int, bytes, int, int, int]] = deque(maxlen=most)

    def sent(
        self,
        procs: Sequence[ProcAddress],
        target: int,
        meta: bytes,
        content: tuple[bytes, Sequence[Any]],
        request: int,
        sender: int,
    ) -> None:
        weight = self.looked()
        if config.value("telemetry") == "off":  # since then
            self._hub.outgoing = None
        if target != SYSTEM and meta[:1] != b"\0":  # none of the engine
            payload, buffers = content
            size = len(payload) + sum(map(len, buffers))
            to = target, len(procs), meta, size, weight, request
            self.kept.append((next(_numbers), time.time_ns(), sender, *to))


class _Recorder:
    """The recorder of a process.

    Args:
        hub: That of the process.
        most: Records, of each kind.
        history: Of the counts.
    """

    def __init__(self, hub: Any, most: int, sampled: bool, history: History) -> None:
        self.history = history
        self.handled: deque[_Handled] = deque(maxlen=most)
        self.sampled = self.adaptive = sampled
        self.outgoing = OutgoingSampler(hub, most, sampled)
        self.sent = self.outgoing.kept
        self.samplings: WeakSet[Sampling] = WeakSet((self.outgoing,))

    def adapt(self, adaptive: bool) -> None:
        self.adaptive = adaptive
        for sampling in list(self.samplings):
            sampling.adapt(adaptive)

    def look(self, hub: Any) -> None:
        """Once a second while actors are active, on the I/O thread."""
        cells = (
            (cell.uid, sum(begun_by(cell).values()), len(cell.queued())) for cell in actors_of(hub)
        )
        self.history.look(time.monotonic(), time.time_ns() // 1000, cells)
        self.outgoing.ease()
        for cell in actors_of(hub):
            if isinstance(cell.sampler, Sampling):  # None of one that was spawned without telemetry
                cell.sampler.ease()
        old = time.time_ns() - KEPT
        with suppress(IndexError):  # an actor's thread has just taken the place of the oldest one
            while self.handled and self.handled[0].begin < old:
                self.handled.popleft()
            while self.sent and self.sent[0][1] < old:
                self.sent.popleft()


_recorder: _Recorder | None = None


class Durations:
    """How long an endpoint takes, in nanoseconds: `counts[n]` for those of n bits.

    Exact where all messages are looked at.
    """

    __slots__ = ("counts", "least", "most", "total")

    def __init__(self) -> None:
        self.counts = [0] * 65
        self.total = 0
        self.least = 1 << 64
        self.most = 0

    def add(self, duration: int, weight: int) -> None:
        self.counts[duration.bit_length()] += weight
        self.total += duration * weight
        if duration < self.least:
            self.least = duration
        if duration > self.most:
            self.most = duration

    def join(self, other: Durations) -> None:
        """Add those of another one."""
        self.counts = [mine + its for mine, its in zip(self.counts, other.counts, strict=True)]
        self.total += other.total
        self.least, self.most = min(self.least, other.least), max(self.most, other.most)


class ActorSampler(Sampling):
    """Looks at some of the messages of one actor; see `Sampler`.

    What it looks at is in the black box meanwhile.
    """

    def __init__(self, recorder: _Recorder) -> None:
        super().__init__(time.monotonic, recorder.adaptive)
        recorder.samplings.add(self)
        self._handled = recorder.handled
        self._box = black_box()
        self._senders: dict[tuple[ProcAddress, int], int] = {}  # their ids in tables
        self._active: dict[int, _Handled] = {}  # by id of the frame
        # by meta, which says the extent that was called, too
        self._durations: dict[bytes, Durations] = {}
        self._busy = 0

    def busy(self, now: int) -> int:
        """About how many nanoseconds messages were handled, by the weights of those seen."""
        active = self._active.copy().values()
        return self._busy + sum(seen.weight * (now - seen.begin) for seen in active)

    @property
    def durations(self) -> dict[str, Durations]:
        """How long each endpoint has taken; those of the engine are none."""
        found: dict[str, Durations] = {}
        for meta, each in self._durations.copy().items():
            if meta[:1] != b"\0":
                found.setdefault(_endpoint(meta), Durations()).join(each)
        return found

    def begin(self, origin: Any, frame: Any) -> None:
        seen = _Handled(origin.peer, frame, self.looked())
        self._active[id(frame)] = seen
        self._handled.append(seen)
        if self._box is not None:
            who = origin.peer, frame.sender
            sender = self._senders.get(who) or self._sender(who)
            seen.slot = self._box.begin(
                seen.begin, seen.number, seen.uid, sender, seen.bytes, seen.meta
            )

    def _sender(self, who: tuple[ProcAddress, int]) -> int:
        if len(self._senders) == _SENDERS:
            self._senders.clear()
        self._senders[who] = number = actor_id(*who)
        return number

    def raised(self, frame: Any) -> None:
        seen = self._active.get(id(frame))
        if seen is not None:
            seen.failed = True

    def done(self, frame: Any) -> None:
        seen = self._active.pop(id(frame))
        seen.end = time.time_ns()
        if seen.slot and self._box is not None:
            self._box.end(seen.slot)
        durations = self._durations.get(seen.meta)
        if durations is None:
            durations = self._durations[seen.meta] = Durations()
        took = max(0, seen.end - seen.begin)
        self._busy += took * seen.weight
        durations.add(took, seen.weight)


def start(hub: Any, mode: str) -> ActorSampler:
    """A sampler for one more actor of a process.

    It looks at what the actor sends, too, as long as telemetry is on.

    Args:
        hub: That of the process.
        mode: ``"sampled"`` or ``"all"``; from now on of the whole process.
    """
    global _recorder
    sampled = mode == "sampled"
    if _recorder is None:
        room = min(config.value("telemetry_memory"), ON_A_HOST // _procs_here(hub))
        history = room // 4
        most = max(100, (room - history) // (2 * _BYTES))
        _recorder = _Recorder(hub, most, sampled, History(history))
        hub.pulse.hooks.append(partial(_recorder.look, hub))
        _adapt_to_profiles()
    elif _recorder.sampled != sampled:  # configured anew since
        _recorder.sampled = sampled
        _adapt_to_profiles()
    hub.outgoing = _recorder.outgoing
    return ActorSampler(_recorder)


def _adapt_to_profiles() -> None:
    watch = whole("monarch.telemetry.watch")  # which the first profile brings
    look_at_all(watch is not None and watch.profiled())


def look_at_all(wanted: bool) -> bool:
    """Look at each message, or as `telemetry` is configured.

    Returns whether this process looks at messages at all.
    """
    if _recorder is not None:
        _recorder.adapt(_recorder.sampled and not wanted)
    return _recorder is not None


def _procs_here(hub: Any) -> int:
    """How many procs share what a host may remember: all are children of one process."""
    if hub.address.is_client:
        return 1
    parent = os.getppid()
    # a kernel without that file tells of none
    return max(1, len(read(f"/proc/{parent}/task/{parent}/children").split()))


@produces("messages", own_thread=True)
def _messages(asked: Asked) -> Iterator[Row]:
    here = asked.service.hub.address
    for each in _kept():
        # truncate both ends, so that a span inside another one never ends after it
        ended = each.end // 1000 - each.begin // 1000 if each.end is not None else None
        yield (
            message_id(here, each.number), each.begin // 1000, actor_id(each.peer, each.sender), actor_id(here, each.uid),
            _endpoint(each.meta), None, each.bytes, ended, each.weight, each.call or None,
        )  # fmt: skip


@produces("message_status_events", own_thread=True)
def _status_events(asked: Asked) -> Iterator[Row]:
    here = asked.service.hub.address
    for each in _kept():
        message = message_id(here, each.number)
        yield message ^ 1, each.begin // 1000, message, "active", each.weight
        if each.end is not None:
            status = "failed" if each.failed else "complete"
            yield message ^ 2, each.end // 1000, message, status, each.weight


@produces("sent_messages", own_thread=True)
def _sent(asked: Asked) -> Iterator[Row]:
    here = asked.service.hub.address
    for number, at, sender, target, _, meta, size, weight, call in (
        list(_recorder.sent) if _recorder is not None else ()
    ):
        labels = meta.decode(errors="replace").split(_EXTENTS)[1:]
        extent = dict(zip(labels[::2], map(int, labels[1::2]), strict=True))
        yield (
            message_id(here, number), at // 1000, actor_id(here, sender), mesh_id(target), view_json(extent), shape_json(extent),
            _endpoint(meta), size, weight, call or None,
        )  # fmt: skip


def handled() -> Iterator[tuple[int, str, int, int]]:
    """Messages that are remembered and over: actor, endpoint, begin and end in microseconds."""
    for each in _kept():
        if each.end is not None:
            yield each.uid, _endpoint(each.meta), each.begin // 1000, each.end // 1000


@produces("history", own_thread=True)
def _history(asked: Asked) -> Iterator[Row]:
    here = asked.service.hub.address
    for each in _recorder.history.rows() if _recorder is not None else ():
        yield (
            each.at, actor_id(here, each.uid), proc_id(here), each.seconds, each.handled,
            each.queued,
        )  # fmt: skip


def _kept() -> list[_Handled]:
    """The messages of programs: a meta that begins with a zero is one of the engine."""
    if _recorder is None:
        return []
    old = time.time_ns() - KEPT  # nothing is forgotten while nothing happens
    return [
        each for each in list(_recorder.handled) if each.meta[:1] != b"\0" and each.begin >= old
    ]


def _endpoint(meta: bytes) -> str:
    return meta.decode(errors="replace").partition(_EXTENTS)[0]
