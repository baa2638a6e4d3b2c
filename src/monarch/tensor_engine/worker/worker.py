"""The worker: one actor per process of an engine.

It holds that rank's tensors and runs what the controller issues.

It reads messages and hands them to the `runner` of their stream. It answers only when it is asked
for a value.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from typing import Any

from ..._core.plane import current_hub
from ...actor import Actor, Port, SupervisionError, context, endpoint
from .. import devices
from ..groups.groups import Meeting
from ..groups.in_process import PerProc
from ..instructions import ALL, END, FORGET, MAIN, MOVE, SPREAD, Instruction, Poison
from . import engine_transfer, loans, torch_groups
from .runner import Runner, here
from .stream_state import Shared


class Worker(Actor):
    """The actor on each rank that executes instructions.

    Args:
        uid: The engine's id.
        ranks: How many ranks it has.
        local_ranks: How many of them are on one host.
    """

    def __init__(self, uid: str, ranks: int, local_ranks: int) -> None:
        self.rank = context().actor_instance.rank.rank
        self.uid = uid
        cell = context()._cell
        self._shared = Shared(self.rank, uid, lambda: cell.ending is not None)
        self._main = Runner(self._shared, MAIN)
        self._runners = {MAIN: self._main}
        self._ending = threading.Lock()
        # after a restart: what it had is lost, and the controller is about to hear of it
        self._lost = context().actor_instance.incarnation > 0
        self._failed: Callable[[BaseException], object] = cell._fail
        if not current_hub().in_process:  # the environment, and groups of torch, are the process's
            _set_environment(self.rank, ranks, self.rank % local_ranks, local_ranks)
            torch_groups.start(uid)
        workers()[uid] = self
        if self._lost:
            loans.refuse_loans(uid, Poison(-1, self.rank, "the tensor engine", str(self._loss())))

    def __cleanup__(self, error: Exception | None) -> None:
        workers().pop(self.uid, None)
        # before the runners: a stream that waits for another one would never come to the end of its
        # queue
        self._shared.rendezvous.close()
        for runner in list(self._runners.values()):
            runner.close()
        torch_groups.close(self.uid)
        if error is not None:
            self._shared.known.note_end(self.rank)
        engine_transfer.offers().end(self.uid)
        loans.end_loans(self.uid, Poison(-1, self.rank, "the tensor engine", "it has ended"))

    @endpoint
    def run(self, batches: list[tuple[int, list[Instruction]]]) -> None:
        """Run the instructions of a message, which is one-way."""
        if self._lost:
            self._note_lost(batches)
            return
        for stream, batch in batches:
            if stream == ALL:
                self._define(batch)
            else:
                runner = self._runner(stream)
                runner.do(functools.partial(runner.run, batch))

    def _note_lost(self, batches: list[tuple[int, list[Instruction]]]) -> None:
        """Tell peers that wait to meet the former incarnation of this rank that it has ended."""
        for _, batch in batches:
            for instruction in batch:
                if instruction[0] == MOVE:
                    for arg in instruction[3]:
                        if isinstance(arg, Meeting):
                            arg.note_end(self.rank)

    @endpoint
    def ask(self, stream: int, method: str, args: tuple[Any, ...]) -> Any:
        """Return the answer of a method of the runner."""
        if self._lost:
            raise self._loss()
        return getattr(self._main, method)(*args)

    @endpoint(explicit_response_port=True)
    def ask_stream(self, port: Port[Any], stream: int, method: str, args: tuple[Any, ...]) -> None:
        """Ask as `ask` does, where streams have threads.

        One of them answers, or with `ALL` the last of all.
        """
        if self._lost:
            port.exception(self._loss())
        elif stream == ALL:
            self._when_all_are_here(lambda: _answer(port, self._main, method, args))
        else:
            runner = self._runner(stream)
            runner.do(lambda: _answer(port, runner, method, args))

    def _loss(self) -> SupervisionError:
        return SupervisionError(
            f"rank {self.rank} was started again: the tensors that it had are lost"
        )

    def value(self, ref: int) -> Any:
        """Return the value with an id, of any stream."""
        return next(
            runner.slots[ref] for runner in list(self._runners.values()) if ref in runner.slots
        )

    @property
    def count(self) -> int:
        """How many values it keeps."""
        return sum(len(runner.slots) for runner in list(self._runners.values()))

    @property
    def runner(self) -> Runner:
        """The one that asks."""
        return here() or self._main

    def _runner(self, stream: int) -> Runner:
        found = self._runners.get(stream)
        if found is None:
            found = self._runners[stream] = Runner(self._shared, stream)
            found.start_thread(self._failed)
        return found

    def _define(self, batch: list[Instruction]) -> None:
        for instruction in batch:
            if instruction[0] == SPREAD:
                self._shared.spread()
                self._main.start_thread(self._failed)
            elif instruction[0] == END:
                self._end(instruction[1])
            elif instruction[0] == FORGET:
                self._when_all_are_here(functools.partial(self._main.control, instruction))
            else:
                self._main.control(instruction)

    def _when_all_are_here(self, then: Callable[[], object]) -> None:
        """Do something when all streams have done what came before; the last of them does it."""
        lock, missing = threading.Lock(), 0

        def arrive() -> None:
            nonlocal missing
            with lock:
                missing -= 1
                if missing:
                    return
            then()

        with self._ending:  # a stream takes part, or has ended before
            runners = list(self._runners.values())
            missing = len(runners)
            for runner in runners:
                runner.do(arrive)

    def _end(self, stream: int) -> None:
        runner = self._runners.get(stream)
        if runner is not None:
            runner.do(functools.partial(self._forget, runner, stream))

    def _forget(self, runner: Runner, stream: int) -> None:
        """Forget the worker on its own thread, which ends after this."""
        with self._ending:
            del self._runners[stream]
            runner.close()


workers: PerProc[dict[str, Worker]] = PerProc(dict)
"""The workers in this process, by the id of their engine."""


def _answer(port: Port[Any], runner: Runner, method: str, args: tuple[Any, ...]) -> None:
    try:
        port.send(getattr(runner, method)(*args))
    except Exception as error:
        port.exception(error)


def _set_environment(rank: int, ranks: int, local_rank: int, local_ranks: int) -> None:
    """Set the variables that libraries of torch expect."""
    os.environ.update(
        RANK=str(rank),
        WORLD_SIZE=str(ranks),
        LOCAL_RANK=str(local_rank),
        LOCAL_WORLD_SIZE=str(local_ranks),
    )
    # large tensors in large pages: with pages of 4 KiB, the faults of fresh memory cost more than
    # the computation
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    devices.place(local_rank, local_ranks)
