"""The interface between an engine and the execution of its instructions.

They are executed on workers, or in a simulation.

There are two executors: `workers.Workers` has them run on processes, `monarch.simulator` tells how
long that would take.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

from ..._core.plane import ProcAddress, Shape, Slice, completed, map_future
from ...actor import Future, ProcMesh, ValueMesh
from ..instructions import Instruction


class Ranks:
    """A stream of some ranks of an engine: where instructions go, and what waits to be freed there.

    Attributes:
        ranks: In row-major order.
        procs: Their processes.
        stream: The number of the stream, or `ALL`.
        freed: Ids of values that are not used any more, and instructions that may go at the next
            opportunity, each with where it goes. Finalizers put them in, on any thread and inside
            of any lock.
    """

    __slots__ = ("freed", "members", "procs", "ranks", "stream")

    def __init__(self, ranks: tuple[int, ...], procs: tuple[ProcAddress, ...], stream: int) -> None:
        self.ranks = ranks
        self.members = frozenset(ranks)
        self.procs = procs
        self.stream = stream
        self.freed: deque[int | tuple[Ranks, Instruction]] = deque()


Segment = tuple[Ranks, list[Instruction]]


class Executor(Protocol):
    """The execution of instructions.

    An engine calls it under its lock, so from one thread at a time.

    Attributes:
        uid: The engine's id.
        size: How many ranks it has.
        name: Of the mesh, for messages.
        target: The id of the actors that are its workers; 0 for none.
        spread: Whether each stream has a thread of its own; the engine sets it, see
            `Engine.spread`.
    """

    uid: str
    size: int
    name: str
    target: int
    spread: bool

    @property
    def procs(self) -> ProcMesh:
        """The processes of all ranks.

        Raises:
            RuntimeError: It has none.
        """

    @property
    def gone(self) -> Collection[int]:
        """The ranks that are known to be gone, for good; `run` looks for them."""

    @property
    def is_usable(self) -> bool:
        """False if all of it is gone, or all that an executor over the same processes would use."""

    def check(self, ranks: Ranks) -> None:
        """Refuse ranks that are known to be gone.

        Raises:
            SupervisionError: One of these ranks is known to be gone.
        """

    def address(self, rank: int) -> ProcAddress:
        """The address of a rank."""

    def run(self, segments: list[Segment]) -> None:
        """Have the ranks of each segment execute its instructions, in order.

        Ranks that are gone are skipped. It returns before they are executed.
        """

    def call(self, ranks: Ranks, method: str, args: tuple[Any, ...], what: str) -> Future[Any]:
        """Ask ranks something, after all that they were to run before.

        It returns a future of a `ValueMesh`, in their order.

        Args:
            ranks: The ranks that are asked.
            method: A method of `runner.Runner`.
            args: Its arguments.
            what: Description of the question, for error texts.
        """

    def stream(
        self, ranks: Ranks, method: str, args: tuple[Any, ...], what: str
    ) -> list[Future[Any]]:
        """As `call`; a future for each answer, in the order in which they will arrive."""

    def when_gone(self, tell: Callable[[int], object]) -> None:
        """Call `tell`, on a thread of its own, with each rank that loses its process."""

    def call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        """Call back some time later, on a thread that must not be held up.

        An engine sends that way what waits for more.
        """

    def let_go(self) -> bool:
        """End it, without a wait, if each rank has lost what it had; whether that is so."""

    def stop(self, timeout: float) -> None:
        """End it. Waits for its end, at most for `timeout` seconds."""


def answer(make: Callable[[], Any]) -> Future[Any]:
    """A future that is done; its value is made when it is first read, on the reader's thread."""
    return map_future(completed(), lambda _: make())


def answers(ranks: Ranks, values: Sequence[Any]) -> Any:
    """Wrap the answers of ranks in a `ValueMesh`, as `Executor.call` does."""
    shape = Shape(["rank"], Slice.new_row_major([len(ranks.ranks)]))
    return ValueMesh(shape, values)


def nowhere(name: str, rank: int) -> ProcAddress:
    """The address of a rank that is no process."""
    return ProcAddress(name, f"rank{rank}")
