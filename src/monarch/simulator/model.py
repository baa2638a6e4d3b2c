"""The executor of the simulator, which executes nothing.

It tells of each instruction when it would begin and end, and what memory it would take.

It gets the instructions that workers would get, in the same order; `interpreter` has what each of
them does. Answers are made up: zeros of the right shape. Nothing here waits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch

from monarch.tensor_engine import instructions, no_mesh
from monarch.tensor_engine.controller.executor import Ranks, Segment, answer, answers, nowhere
from monarch.tensor_engine.worker.functions import name_of

from .cohorts import Span
from .cost import OperationTemplate
from .interpreter import Interpreter
from .machine import Machine
from .record import Recorder
from .replays import Replay, awaited, check_meeting


class Model(Interpreter):
    """See `tensor_engine.controller.executor.Executor`.

    Args:
        hosts: How many hosts there are.
        per_host: How many ranks are on each.
        machine: What they can do.
        recorder: Where events go.

    Attributes:
        uid: Of the engine.
    """

    def __init__(
        self, hosts: int, per_host: int, machine: Machine, recorder: Recorder, uid: str
    ) -> None:
        self.uid = uid
        self.size = hosts * per_host
        super().__init__(self.size, per_host, machine, recorder)
        self.name = f"simulated {machine.name}"
        self.target = 0
        self.spread = False
        self.is_usable = True
        self.gone: tuple[int, ...] = ()
        self._lock = threading.RLock()  # answers are read on any thread
        self._programs: dict[int, instructions.Program] = {}
        self._replays: list[Replay] = []
        self._stepped = 0.0

    @property
    def procs(self) -> NoReturn:
        raise RuntimeError(f"{self.name} has no processes: nothing runs there")

    def address(self, rank: int) -> Any:
        return nowhere(self.name, rank)

    def when_gone(self, tell: Callable[[int], object]) -> None:
        """Never: no rank is."""

    def call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        """Never call it: a reader asks, and gets all that is waiting first."""

    def let_go(self) -> bool:
        """True: there is nothing to end."""
        return True

    def stop(self, timeout: float) -> None:
        self.is_usable = False

    # one way

    def check(self, ranks: Ranks) -> None:
        """Nothing: no rank is ever gone."""

    def run(self, segments: list[Segment]) -> None:
        with self._lock:
            for ranks, batch in segments:
                for instruction in batch:
                    self._step(ranks, ranks.stream, instruction)

    def _step(self, ranks: Ranks, stream: int, instruction: instructions.Instruction) -> None:
        what = instruction[0]
        if what >= 0:
            self._run_template(ranks, stream, *instruction)
        elif what == instructions.FREE:
            cohorts = self._of(ranks)
            for ref in instruction[1]:
                self._memory.free(ref, cohorts)
        elif what == instructions.DEFINE:
            self._templates[instruction[1]] = OperationTemplate(*instruction[2])
        elif what == instructions.FORGET:
            kept = {each[0] for program in self._programs.values() for each in program.instructions}
            for number in [
                number
                for number in self._templates
                if number < instruction[1] and number not in kept
            ]:
                del self._templates[number]
                self._effects.pop(number, None)
        elif what == instructions.CONSTANT:
            self._put_constant(ranks, stream, *instruction[1:])
        elif what == instructions.CALL:
            self._run_call(ranks, stream, *instruction[1:])
        elif what == instructions.MOVE:
            _, site, name, args = instruction
            move = getattr(self, f"_move_{name}", None)
            if move is None:
                raise NotImplementedError(f"{name} can't be simulated")
            move(ranks, stream, site, *args)
        elif what == instructions.PROGRAM:
            self._define_program(*instruction[1:])
        elif what == instructions.REPLAY:
            self._replay(ranks, *instruction[1:])
        elif what not in (instructions.SPREAD, instructions.END):
            raise NotImplementedError(f"instruction {what} can't be simulated")

    # recorded programs

    def _define_program(self, number: int, program: instructions.Program | None) -> None:
        if program is None:
            self._programs.pop(number, None)
        else:
            self._programs[number] = program

    def _replay(
        self, ranks: Ranks, site: int, number: int, formals: Sequence[int], results: Sequence[int]
    ) -> None:
        """One message for all of it: the program is done with it at once."""
        arrival = self._issue("replay", site)
        given = [self._memory.values[ref] for ref in formals]
        self._replays.append(Replay(ranks, number, self._programs[number], given, results))
        self._arrival = arrival
        try:
            while any(self._go_on(replay) for replay in self._replays if not replay.done):
                pass
            self._replays = [replay for replay in self._replays if not replay.done]
        except Exception:
            self._replays.clear()
            raise
        finally:
            self._arrival = None

    def _go_on(self, replay: Replay) -> bool:
        ranks = replay.ranks

        def run(instruction: instructions.Instruction) -> None:
            self._step(ranks, ranks.stream, instruction)

        def may_run(instruction: instructions.Instruction) -> bool:
            check_meeting(instruction, ranks, self._moves)
            ticket = awaited(instruction)
            return ticket is None or any(ticket in cohort.handed for cohort in self.cohorts.all)

        return replay.go_on(
            self._memory, run, may_run, lambda ref: self._memory.free(ref, self._of(ranks))
        )

    # questions

    def call(self, ranks: Ranks, method: str, args: tuple[Any, ...], what: str) -> Any:
        with self._lock:
            given = self._answers(ranks, method, args)
            ready = self._answered(ranks, given)

        def read() -> Any:
            self._wait_until(ready, what)
            return answers(ranks, given)

        return answer(read)

    def stream(self, ranks: Ranks, method: str, args: tuple[Any, ...], what: str) -> list[Any]:
        with self._lock:
            given = self._answers(ranks, method, args)
            ready = self._answered(ranks, given)

        def reader(value: Any) -> Callable[[], Any]:
            def read() -> Any:
                self._wait_until(ready, what)
                return value

            return read

        return [answer(reader(value)) for value in given]

    def _answers(self, ranks: Ranks, method: str, args: tuple[Any, ...]) -> list[Any]:
        """Return the answer of each rank."""
        if method == "fetch":
            ids, wanted = args
            with no_mesh.activate():
                metas = [self._memory.values[ref].meta for ref in ids]
                values = [torch.zeros(meta.shape, dtype=meta.dtype) for meta in metas]
            return [values if rank == wanted else None for rank in ranks.ranks]
        if method == "invoke":
            site, call = args
            self._run_call(ranks, ranks.stream, site, call)
            return [(None, None)] * len(ranks.ranks)
        if method == "run_and_tell":
            raise NotImplementedError(
                "a simulated mesh runs no functions, so it can't find out what they return: "
                f"give {name_of(args[1].function)} a rule, remote(..., propagate=rule)"
            )
        return [None] * len(ranks.ranks)

    def _answered(self, ranks: Ranks, given: list[Any]) -> float:
        """The time at which the answers of some ranks are there."""
        cohorts, stream = self._of(ranks), ranks.stream
        ends = [
            cohort.end if stream == instructions.ALL else cohort.clock(stream).end
            for cohort in cohorts
        ]
        fetched = [value for values in given if type(values) is list for value in values]
        size: int = sum(value.numel() * value.element_size() for value in fetched)
        machine = self._machine
        return (
            max(self.now + machine.delay, *ends)
            + machine.answer
            - machine.delay
            + size / machine.fetch_bandwidth
        )

    def _wait_until(self, ready: float, what: str) -> None:
        """The program reads an answer: it does nothing until then."""
        with self._lock:
            if ready > self.now:
                self.recorder.note((), instructions.MAIN, what, "wait", Span(self.now, ready), -1)
                self.now = ready

    # steps

    def step(self) -> tuple[float, list[tuple[tuple[int, ...], int]]]:
        """End a step and return its seconds since the last one ended, until all is done.

        It also returns the most bytes that ranks had.
        """
        with self._lock:
            end = max(max(cohort.end for cohort in self.cohorts.all), self.now)
            seconds, self._stepped = end - self._stepped, end
            peaks = [(cohort.ranks, cohort.peak) for cohort in self.cohorts.all]
            for cohort in self.cohorts.all:
                cohort.start_peak()
                cohort.compute.forget(self.now)
            return seconds, peaks
