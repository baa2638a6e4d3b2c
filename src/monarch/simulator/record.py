"""What happened in a simulation, for traces, graphs and reports."""

from __future__ import annotations

from typing import Any, NamedTuple

from monarch.tensor_engine.engine import living_streams
from monarch.tensor_engine.instructions import MAIN
from monarch.tensor_engine.streams import stream_of

from .cohorts import Span


class Event(NamedTuple):
    """Something that took time.

    Attributes:
        ranks: Where; empty for the controller.
        stream: The number of the stream.
        name: What.
        kind: ``"compute"``, ``"communication"``, ``"issue"`` or ``"wait"``.
        start: Seconds.
        end: Seconds.
        site: The number of the stack that issued it; -1 for none.
        tag: What `set_meta` said.
    """

    ranks: tuple[int, ...]
    stream: int
    name: str
    kind: str
    start: float
    end: float
    site: int
    tag: Any


class Change(NamedTuple):
    """Memory that was taken or given back.

    Attributes:
        ranks: Where.
        seconds: When.
        storage: Its number.
        bytes: How much; negative where it was given back.
        name: What took it.
        site: As in `Event`.
    """

    ranks: tuple[int, ...]
    seconds: float
    storage: int
    bytes: int
    name: str
    site: int


class Node(NamedTuple):
    """One instruction, as a node of the graph of the program.

    Attributes:
        id: Its number, in order of issue.
        name: What.
        kind: As in `Event`.
        ranks: Where.
        stream: The number of the stream.
        inputs: Storages that it reads, and
        outputs: storages that it makes or writes.
        seconds: How long it takes on the device, at most, where ranks differ.
        flops: Floating-point operations of matrix products.
        bytes: Read and written; for communication: what each rank has.
        site: As in `Event`.
        tag: What `set_meta` said.
    """

    id: int
    name: str
    kind: str
    ranks: tuple[int, ...]
    stream: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    seconds: float
    flops: float
    bytes: float
    site: int
    tag: Any


class Recorder:
    """Attributes:
    timed: Whether events and changes are kept, until the next step.
    graphed: Whether nodes are kept.
    streams: Names of streams that were used, by number.
    tag: What is noted with all that comes.
    """

    def __init__(self, timed: bool, graphed: bool) -> None:
        self.timed = timed
        self.graphed = graphed
        self.tag: Any = None
        self.events: list[Event] = []
        self.changes: list[Change] = []
        self.nodes: list[Node] = []
        self.streams = {MAIN: stream_of(MAIN).name}

    def note(self, ranks: tuple[int, ...], stream: int, name: str, kind: str, span: Span, site: int) -> None:
        """Keep an event; its attributes are those of `Event`."""
        if not self.timed:
            return
        if stream not in self.streams:
            found = living_streams.get(stream)  # nobody may have it any more
            self.streams[stream] = f"stream {stream}" if found is None else found.name
        self.events.append(Event(ranks, stream, name, kind, *span, site, self.tag))

    def take(self) -> tuple[list[Event], list[Change]]:
        """All since the last time."""
        events, self.events = self.events, []
        changes, self.changes = self.changes, []
        return events, changes
