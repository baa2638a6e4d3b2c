"""The record of a simulation, for traces, graphs and reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from monarch.tensor_engine.controller.engine import living_streams
from monarch.tensor_engine.instructions import MAIN
from monarch.tensor_engine.tensors.streams import stream_of

from .cohorts import Span
from .tensor_events import BorrowInfo, SendTensorInfo, TensorEvents

if TYPE_CHECKING:
    from .cost import Work
    from .rank_memory import Held


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


class InstructionNode(NamedTuple):
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
    """Records what simulated ranks do.

    Attributes:
        timed: Whether events and changes are kept, until the next step.
        graphed: Whether nodes are kept, and what befalls tensors.
        tensors: What befalls them.
        streams: Names of streams that were used, by number.
        tag: Noted with each later event.
    """

    def __init__(self, timed: bool, graphed: bool) -> None:
        self.timed = timed
        self.graphed = graphed
        self.tag: Any = None
        self.events: list[Event] = []
        self.changes: list[Change] = []
        self.nodes: list[InstructionNode] = []
        self.tensors = TensorEvents()
        # of tensors: their ranks and stream
        self._places: dict[int, tuple[tuple[int, ...], str]] = {}
        self._sent: dict[int, tuple[Sequence[int], str]] = {}  # by ticket
        self.streams = {MAIN: stream_of(MAIN).name}

    def note(
        self, ranks: tuple[int, ...], stream: int, name: str, kind: str, span: Span, site: int
    ) -> None:
        """Keep an event; its attributes are those of `Event`."""
        if self.timed:
            self._name(stream)
            self.events.append(Event(ranks, stream, name, kind, *span, site, self.tag))

    def _name(self, stream: int) -> str:
        if stream not in self.streams:
            found = living_streams.get(stream)  # it may have gone
            self.streams[stream] = f"stream {stream}" if found is None else found.name
        return self.streams[stream]

    def add(
        self, ranks: tuple[int, ...], stream: int, name: str, kind: str, seconds: float, work: Work, inputs: Sequence[Held],
        outputs: Sequence[Held], site: int, exclusive: bool = False,
    ) -> None:  # fmt: skip
        """Keep a node.

        Args:
            ranks: The ranks that run it.
            stream: Number of the stream.
            name: Name of the operation.
            kind: Kind of the node.
            seconds: How long it takes.
            work: What it computes.
            inputs: Values that it reads.
            outputs: Values that it makes or writes.
            site: Where the program has issued it.
            exclusive: Whether what comes later on the memory of `inputs` comes after it.
        """
        if not self.graphed:
            return
        number, at = len(self.nodes), self._name(stream)
        reads = tuple(dict.fromkeys(held.storage.number for held in inputs))
        makes = (
            reads if exclusive else tuple(dict.fromkeys(held.storage.number for held in outputs))
        )
        self.nodes.append(
            InstructionNode(
                number, name, kind, ranks, stream, reads, makes, seconds, work.flops, work.bytes,
                site, self.tag,
            )
        )  # fmt: skip
        read, made = {held.number for held in inputs}, {held.number for held in outputs}
        for held in dict.fromkeys((*inputs, *outputs)):
            mutates = held.number in read & made and held.number in self._places
            self._places.setdefault(held.number, (ranks, at))
            self.tensors.update(
                held.storage.number, held.number, held.meta.dtype, tuple(held.meta.shape), ranks, at, number, mutates,
                size=held.storage.bytes,
            )  # fmt: skip

    def freed(self, value: int) -> None:
        """Note that the value with this number is freed."""
        if value in self._places:
            self.tensors.delete(value, *self._places.pop(value), len(self.nodes) - 1)

    def handed(self, ticket: int, name: str, ranks: Sequence[int], stream: int) -> None:
        """A stream lends, borrows, gives back or takes back; the last node says so."""
        if self.graphed:
            borrows, number, at = self.tensors.borrows, len(self.nodes) - 1, self._name(stream)
            borrow = borrows.setdefault(ticket, BorrowInfo(ticket, [*ranks], at, "", number))
            if name == "borrow":
                borrow.dst_stream_name, borrow.firstuse_id = at, number
            elif name == "give back":
                borrow.lastuse_id = number
            elif name == "take back":
                borrow.drop_id = number

    def sent(self, ticket: int, ranks: Sequence[int], stream: int) -> None:
        """These ranks send something."""
        if self.graphed:
            self._sent[ticket] = ranks, self._name(stream)

    def received(self, ticket: int, ranks: Sequence[int], stream: int, value: Held) -> None:
        """Record the arrival of a value that was sent."""
        if self.graphed:
            senders, source = self._sent.pop(ticket)
            self.tensors.sends.append(
                SendTensorInfo(
                    value.number, [*senders], source, [*ranks], self._name(stream),
                    tuple(value.meta.shape),
                )
            )  # fmt: skip

    def take(self) -> tuple[list[Event], list[Change]]:
        """Return, and forget, the events and changes since the last time."""
        events, self.events = self.events, []
        changes, self.changes = self.changes, []
        return events, changes
