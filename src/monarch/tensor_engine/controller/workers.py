"""The executor of real programs.

It has one `Worker` actor on each process of a mesh, to which batches of instructions are sent.

Ranks that get the same instructions get the same message. Nothing here waits but `stop`, and
`wait_until_there` for workers that start; see `worker` for the other end.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from ..._core import plane
from ...actor import Extent, Future, ProcMesh, context
from ..instructions import Instruction
from ..worker.worker import Worker
from .executor import Ranks, Segment

Batch = tuple[int, list[Instruction]]
"""What a stream is to run."""

_RUN = plane.encode_meta("run", Extent([], []))


class Workers:
    """See `Executor`.

    Args:
        procs: The whole mesh.

    Attributes:
        target: The id of the actors.
    """

    def __init__(self, procs: ProcMesh) -> None:
        self._cell: plane.Owner = context()._cell
        self.procs = procs
        self.uid = f"{plane.random_uid():x}"
        self.size = len(procs)
        self.name = procs.name
        self._workers: Any = procs.spawn(
            "tensor_engine", Worker, self.uid, self.size, min(procs._procs.per_host, self.size)
        )
        self.target: int = self._workers._uid
        self.spread = False
        self.gone: dict[int, plane.Failure] = {}
        self._noting = threading.Lock()
        self._addresses = [self.address(rank) for rank in range(self.size)]
        self._tell_gone: list[Callable[[int], object]] = []
        self._cell.hub.peer_lost_hooks.append(self._lost)

    def wait_until_there(self) -> None:
        """Wait until every rank has a worker.

        The wait is bounded as the start of processes is (``host_spawn_ready_timeout``).
        """
        self._workers.initialized.get()

    def address(self, rank: int) -> plane.ProcAddress:
        return self.procs._procs.address(rank)

    @property
    def is_usable(self) -> bool:
        self._look_who_is_gone()
        if any(failure.restarts for failure in self.gone.values()):
            return False  # another engine can have these ranks, too
        hub = self._cell.hub
        living = [address for address in self._addresses if not hub.process_fate(address)]
        return bool(living) and not any(hub.fate(address, self.target) for address in living)

    def check(self, ranks: Ranks) -> None:
        for rank, failure in self.gone.items():
            if rank in ranks.members:
                raise plane.supervision_error(failure, f"the tensor engine, on rank {rank},")

    def run(self, segments: list[Segment]) -> None:
        hub, uid = self._cell.hub, self._cell.uid
        self._look_who_is_gone()
        for ranks, procs, batches in self._merged(segments):
            content = plane.pickling.dumps(((batches,), {}))
            self._cell.note_unsettled(self.target, procs)
            hub.cast(procs, self.target, _RUN, content, None, uid, 0, ranks)

    def _look_who_is_gone(self) -> None:
        for rank, address in enumerate(self._addresses):
            if rank in self.gone:
                continue
            failure = self._cell.hub.fate(address, self.target)
            # no end is told of one that came while its process was being replaced
            if failure is None and self._workers._owned.incarnation(rank):
                failure = plane.Failure(
                    plane.STOPPED, "it was started again", rank=rank, restarts=True
                )
            if failure is not None:
                self._note_gone(rank, failure)

    def _note_gone(self, rank: int, failure: plane.Failure) -> None:
        """Also of one that starts again: what it had of this engine is lost."""
        with self._noting:
            known = rank in self.gone
            self.gone = {rank: failure, **self.gone}  # others may be reading it
        for tell in () if known else self._tell_gone:
            with suppress(RuntimeError):  # the system has no thread to give
                self._cell.hub.thread(target=tell, args=(rank,), name="monarch-rank-gone").start()

    def _merged(
        self, segments: list[Segment]
    ) -> list[tuple[Sequence[int], Sequence[plane.ProcAddress], list[Batch]]]:
        """One message for each set of ranks that get the same instructions."""
        first = segments[0][0]
        if not self.gone and all(ranks.ranks == first.ranks for ranks, _ in segments):
            return [(first.ranks, first.procs, _by_stream(segments))]
        by_parts: dict[tuple[int, ...], list[int]] = {}
        for rank in range(self.size):
            if rank in self.gone:
                continue
            parts = tuple(
                index for index, (ranks, _) in enumerate(segments) if rank in ranks.members
            )
            by_parts.setdefault(parts, []).append(rank)
        return [
            (
                ranks,
                [self._addresses[rank] for rank in ranks],
                _by_stream([segments[part] for part in parts]),
            )
            for parts, ranks in by_parts.items()
            if parts
        ]

    def call(self, ranks: Ranks, method: str, args: tuple[Any, ...], what: str) -> Future[Any]:
        extent = _extent(ranks)
        request = plane.Gather(what, self.target, ranks.procs, extent)
        self._ask(ranks, method, args, request, extent)
        return request.future

    def stream(
        self, ranks: Ranks, method: str, args: tuple[Any, ...], what: str
    ) -> list[Future[Any]]:
        extent = _extent(ranks)
        request = plane.StreamCall(what, self.target, ranks.procs, extent)
        futures: list[Future[Any]] = list(request.futures)
        self._ask(ranks, method, args, request, extent)
        return futures

    def _ask(
        self, ranks: Ranks, method: str, args: tuple[Any, ...], request: Any, extent: Extent
    ) -> None:
        cell, content = self._cell, plane.pickling.dumps(((ranks.stream, method, args), {}))
        endpoint, flags = ("ask_stream", plane.EXPLICIT) if self.spread else ("ask", 0)
        cell.hub.cast(
            ranks.procs, self.target, plane.encode_meta(endpoint, extent), content, request, cell.uid,
            flags,
        )  # fmt: skip

    def when_gone(self, tell: Callable[[int], object]) -> None:
        self._tell_gone.append(tell)

    def _lost(self, address: plane.ProcAddress, failure: plane.Failure) -> None:
        """Tell of a loss; on the poller's thread, or any other that has heard of it."""
        if address in self._addresses:
            self._note_gone(self._addresses.index(address), failure)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        self._cell.hub.poller.call_later(seconds, callback)

    def let_go(self) -> bool:
        fate = self._cell.hub.process_fate
        if any(rank not in self.gone and not fate(at) for rank, at in enumerate(self._addresses)):
            return False
        self._forget_hook()
        self._workers.stop("the tensor engine has lost all of its ranks")
        return True

    def stop(self, timeout: float) -> None:
        self._forget_hook()
        self._workers.stop("the tensor engine exited").get(timeout=timeout)

    def _forget_hook(self) -> None:
        with suppress(ValueError):  # it was, before
            self._cell.hub.peer_lost_hooks.remove(self._lost)


def _extent(ranks: Ranks) -> Extent:
    return Extent(["rank"], [len(ranks.ranks)])


def _by_stream(segments: list[Segment]) -> list[Batch]:
    return [
        (stream, list(itertools.chain.from_iterable(batch for _, batch in parts)))
        for stream, parts in itertools.groupby(segments, key=lambda segment: segment[0].stream)
    ]
