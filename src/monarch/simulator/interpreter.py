"""The effect of single instructions on simulated ranks.

It is when each begins and ends there, and what memory its results take.

`cost` gives the work of an operation, `collectives` how long data is on its way, `cohorts` where
each rank is in time, `memory` what it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from monarch.tensor_engine import no_mesh
from monarch.tensor_engine.controller.executor import Ranks
from monarch.tensor_engine.instructions import MAIN, Call
from monarch.tensor_engine.planning.fakes import Meta, contiguous
from monarch.tensor_engine.tensors.collectives import reduced_shape
from monarch.tensor_engine.worker.functions import name_of

from . import cost
from .cohorts import Cohort, Cohorts, Span
from .cost import Effect, OperationTemplate, Work
from .machine import Machine
from .moves import Moves, collective_of
from .rank_memory import Held, RankMemory
from .record import Recorder

Cost = float | Callable[..., float]


class Interpreter:
    """Instructions one by one.

    Args:
        size: How many ranks there are.
        per_host: How many of them are on each host.
        machine: What they can do.
        recorder: Where events go.

    Attributes:
        costs: What functions of the user cost on a rank, by name: seconds, or a function of the
            metadata of their tensors.
        now: Where the controller is in time.
    """

    def __init__(self, size: int, per_host: int, machine: Machine, recorder: Recorder) -> None:
        self.costs: dict[str, Cost] = {}
        self.now = 0.0
        self.cohorts = Cohorts(size)
        self.recorder = recorder
        self._machine = machine
        self._memory = RankMemory(machine, recorder)
        self._moves = Moves(self.cohorts, machine, per_host)
        self._templates: dict[int, OperationTemplate] = {}
        self._effects: dict[int, Effect] = {}
        self._offered: dict[int, Held] = {}  # what one stream lends to another, by ticket
        self._accepted: set[int] = set()
        self._arrival: float | None = None  # of the instruction that is being replayed

    def _of(self, ranks: Ranks) -> list[Cohort]:
        return self.cohorts.of(ranks.ranks, ranks.members)

    def _issue(self, name: str, site: int) -> float:
        """The controller issues an instruction; when it reaches the workers."""
        if self._arrival is not None:
            return self._arrival
        start, self.now = self.now, self.now + self._machine.issue
        if self.recorder.timed:
            self.recorder.note((), MAIN, name, "issue", Span(start, self.now), site)
        return self.now + self._machine.delay

    def _run_template(
        self,
        ranks: Ranks,
        stream: int,
        number: int,
        site: int,
        ids: Any,
        outputs: Any,
        numbers: Any,
    ) -> None:
        values = self._memory.values
        inputs = [values[ref] for ref in ids]
        effect = self._effects.get(number)
        template = self._templates[number]
        if effect is None:
            effect = cost.effect_of(template, [held.meta for held in inputs], numbers)
            self._effects[number] = effect
        name = template.name
        for ref, result in zip(
            (outputs,) if type(outputs) is int else outputs, effect.results, strict=False
        ):
            if ref and result is not None:
                self._make(ref, result.meta, result.bytes, result.shares, inputs, ranks, name, site)
        for index, meta in effect.changed:
            inputs[index].meta = meta
        self._compute(
            ranks, stream, name, site, effect.work, inputs, outputs, writes=template.writes
        )

    def _make(
        self, ref: int, meta: Meta, size: int, shares: int | None, inputs: Sequence[Held], ranks: Ranks, name: str, site: int
    ) -> None:  # fmt: skip
        if shares is not None:
            self._memory.share(ref, meta, inputs[shares])
        else:
            self._memory.make(ref, meta, size, self._of(ranks), name, site)

    def _compute(
        self, ranks: Ranks, stream: int, name: str, site: int, work: Work, inputs: Sequence[Held], outputs: Any,
        seconds: float | None = None, writes: Sequence[int] = (),
    ) -> None:  # fmt: skip
        arrival = self._issue(name, site)
        seconds = work.seconds(self._machine) if seconds is None else seconds
        for cohort in self._of(ranks):
            span = cohort.compute_on(stream, arrival, seconds, self._machine)
            if seconds or not self._machine.asynchronous:
                self.recorder.note(cohort.ranks, stream, name, "compute", span, site)
        written = [inputs[index] for index in writes]
        self.recorder.add(
            ranks.ranks, stream, name, "compute", seconds, work, inputs,
            self._held(outputs) + written, site,
        )  # fmt: skip

    def _held(self, outputs: Any) -> list[Held]:
        """Return the values that an instruction has made, by its outputs."""
        values = self._memory.values
        return [
            values[ref]
            for ref in ((outputs,) if type(outputs) is int else outputs)
            if ref in values
        ]

    def _put_constant(
        self, ranks: Ranks, stream: int, site: int, output: int, data: torch.Tensor
    ) -> None:
        with no_mesh.activate():
            size = data.numel() * data.element_size()
            looks = tuple(data.shape), data.dtype, data.device
        self._memory.make(output, contiguous(*looks), size, self._of(ranks), "constant", site)
        self.now += size / self._machine.fetch_bandwidth
        self._compute(ranks, stream, "constant", site, Work(bytes=size, pieces=1), (), output)

    def _run_call(self, ranks: Ranks, stream: int, site: int, call: Call) -> None:
        name = name_of(call.function)
        inputs = [self._memory.values[ref] for ref in call.inputs]
        made: list[Meta] = []
        for ref, expected in zip(call.outputs or (), call.expected, strict=False):
            if ref and expected is not None:
                device = inputs[0].meta.device if inputs else torch.device("cpu")
                meta = contiguous(expected.shape, expected.dtype, device)
                self._make(
                    ref, meta, cost.bytes_of(meta), expected.shares, inputs, ranks, name, site
                )
                made.append(meta)
        metas = [held.meta for held in inputs]
        seconds = self.costs.get(name, self.costs.get(name.rpartition(".")[2]))
        if callable(seconds):
            seconds = seconds(*metas)
        work, writes = cost.touching(metas, made), [call.inputs.index(ref) for ref in call.writes]
        self._compute(ranks, stream, name, site, work, inputs, call.outputs or (), seconds, writes)

    # moves: the counterparts of functions of `tensor_engine.worker.worker_collectives`

    def _move_define_groups(
        self, ranks: Ranks, stream: int, site: int, number: int, meeting: Any, groups: Any
    ) -> None:
        self._moves.groups[number] = groups

    def _move_define_routes(
        self, ranks: Ranks, stream: int, site: int, number: int, meeting: Any, routes: Any
    ) -> None:
        self._moves.routes[number] = routes

    def _move_make_groups(self, ranks: Ranks, stream: int, site: int, *args: Any) -> None:
        """Groups of `torch.distributed` are for functions of the user, which are not run."""

    def _move_seed(self, ranks: Ranks, stream: int, site: int, number: int) -> None:
        self._compute(ranks, stream, "manual_seed", site, Work(), (), ())

    def _move_random_state(
        self, ranks: Ranks, stream: int, site: int, output: int, device: Any
    ) -> None:
        with no_mesh.activate():
            size = torch.get_rng_state().numel()
        meta = contiguous((size,), torch.uint8, torch.device("cpu"))
        self._memory.make(output, meta, size, self._of(ranks), "random state", site)
        self._compute(ranks, stream, "random state", site, Work(bytes=size, pieces=1), (), output)

    def _move_set_random_state(
        self, ranks: Ranks, stream: int, site: int, state: int, device: Any
    ) -> None:
        self._compute(
            ranks, stream, "set random state", site, Work(), [self._memory.values[state]], ()
        )

    def _move_drop(self, ranks: Ranks, stream: int, site: int, value: int) -> None:
        self._memory.drop(value, self._of(ranks))

    def _move_per_rank(self, ranks: Ranks, stream: int, site: int, output: int, table: Any) -> None:
        meta = contiguous((), torch.int64, torch.device("cpu"))
        self._memory.make(output, meta, meta.dtype.itemsize, self._of(ranks), "rank", site)
        self._compute(ranks, stream, "rank", site, Work(pieces=1), (), output)

    def _move_lend(self, ranks: Ranks, stream: int, site: int, *args: Any) -> None:
        raise NotImplementedError(
            "a simulated mesh has no actors: tensors of it can't be arguments of their endpoints"
        )

    def _move_reduce(self, ranks: Ranks, stream: int, site: int, how: Any) -> None:
        values = self._memory.values
        given = values[how.input]
        n = len(self._moves.groups[how.groups][0])
        size = cost.bytes_of(contiguous(how.look.shape, how.look.dtype, how.look.device))
        shape = reduced_shape(how.look.shape, n, how.kind, how.scatter)
        meta = contiguous(shape, how.look.dtype, how.look.device)
        made = cost.bytes_of(meta)
        name = f"{collective_of(how.kind, how.scatter)} {how.kind}".removesuffix(" stack")
        keepers = self._of(ranks)
        if how.keepers is not None:
            keepers = self.cohorts.of(how.keepers, frozenset(how.keepers))
        if how.write:
            self._memory.borrow(made, keepers)
            self._memory.share(how.output, meta, values[how.write])
        else:
            self._memory.make(how.output, meta, made, keepers, name, site)
        local = Work(bytes=(2 + 2 * bool(how.write)) * made, pieces=1).seconds(self._machine)
        arrival = self._issue(name, site)
        spans = self._moves.reduce(
            how.groups, stream, arrival, size, collective_of(how.kind, how.scatter), local
        )
        self._communicated(ranks, stream, name, spans, site, size, given, how.output)

    def _move_transfer(
        self, ranks: Ranks, stream: int, site: int, source: int, output: int, look: Any, number: int
    ) -> None:
        given = self._memory.values[source]
        meta = contiguous(look.shape, look.dtype, look.device)
        size = cost.bytes_of(meta)
        receivers = sorted(
            {peer for peers in self._moves.routes[number].values() for peer in peers}
        )
        homes = self.cohorts.of(tuple(receivers), frozenset(receivers))
        self._memory.make(output, meta, size, homes, "to_mesh", site)
        arrival = self._issue("to_mesh", site)
        copy = Work(bytes=2 * size, pieces=1).seconds(self._machine)
        spans = self._moves.transfer(number, stream, arrival, size, copy)
        self._communicated(ranks, stream, "to_mesh", spans, site, size, given, output)
        self.recorder.sent(
            0, [rank for rank, peers in self._moves.routes[number].items() if peers], stream
        )
        self.recorder.received(0, receivers, stream, self._memory.values[output])

    def _move_send(
        self, ranks: Ranks, stream: int, site: int, source: int, look: Any, number: int, ticket: int, link: str
    ) -> None:  # fmt: skip
        given = self._memory.values[source]
        size = cost.bytes_of(contiguous(look.shape, look.dtype, look.device))
        spans = self._moves.send(number, stream, self._issue("send", site), size, ticket)
        self._communicated(ranks, stream, "send", spans, site, size, given, 0)
        self.recorder.sent(ticket, ranks.ranks, stream)

    def _move_receive(
        self, ranks: Ranks, stream: int, site: int, output: int, look: Any, number: int, ticket: int, link: str
    ) -> None:  # fmt: skip
        meta = contiguous(look.shape, look.dtype, look.device)
        size = cost.bytes_of(meta)
        self._memory.make(output, meta, size, self._of(ranks), "receive", site)
        spans = self._moves.receive(number, stream, self._issue("receive", site), ticket)
        self._communicated(
            ranks, stream, "receive", spans, site, size, self._memory.values[output], output
        )
        self.recorder.received(ticket, ranks.ranks, stream, self._memory.values[output])

    # borrows: see `tensor_engine.tensors.borrows`

    def _move_offer(self, ranks: Ranks, stream: int, site: int, ticket: int, value: int) -> None:
        self._offered[ticket] = self._memory.values[value]
        self._hand_over(ranks, stream, site, "lend", ticket)
        self._note_borrow(ranks, stream, site, "lend", ticket)

    def _move_accept(self, ranks: Ranks, stream: int, site: int, ticket: int, value: int) -> None:
        lent = self._offered[ticket]
        self._memory.share(value, lent.meta, lent)
        self._accepted.add(ticket)
        self._take_over(ranks, stream, site, "borrow", ticket)
        self._note_borrow(ranks, stream, site, "borrow", ticket, value)

    def _move_give_back(
        self, ranks: Ranks, stream: int, site: int, ticket: int, value: int
    ) -> None:
        self._memory.free(value, self._of(ranks))
        if ticket in self._accepted:  # the second time it does nothing
            self._accepted.remove(ticket)
            self._hand_over(ranks, stream, site, "give back", -ticket)
            self._note_borrow(ranks, stream, site, "give back", ticket)

    def _move_take_back(
        self, ranks: Ranks, stream: int, site: int, ticket: int, value: int, used: bool
    ) -> None:
        self._take_over(ranks, stream, site, "take back", -ticket if used else ticket)
        self._note_borrow(ranks, stream, site, "take back", ticket)
        del self._offered[ticket]

    def _hand_over(self, ranks: Ranks, stream: int, site: int, name: str, ticket: int) -> None:
        arrival = self._issue(name, site)
        for cohort in self._of(ranks):
            cohort.hand_over(stream, arrival, ticket)

    def _take_over(self, ranks: Ranks, stream: int, site: int, name: str, ticket: int) -> None:
        arrival = self._issue(name, site)
        for cohort in self._of(ranks):
            self.recorder.note(
                cohort.ranks, stream, name, "wait", cohort.take_over(stream, arrival, ticket), site
            )

    def _note_borrow(
        self, ranks: Ranks, stream: int, site: int, name: str, ticket: int, borrowed: int = 0
    ) -> None:
        lent = self._offered[ticket]
        kept = [lent] if lent in self._memory.values.values() else []
        self.recorder.add(
            ranks.ranks, stream, name, "wait", 0.0, Work(), kept, self._held(borrowed), site,
            exclusive=True,
        )  # fmt: skip
        self.recorder.handed(ticket, name, ranks.ranks, stream)

    def _communicated(
        self, ranks: Ranks, stream: int, name: str, spans: list[tuple[Cohort, Span]], site: int, size: int, given: Held,
        output: int,
    ) -> None:  # fmt: skip
        for cohort, span in spans:
            self.recorder.note(cohort.ranks, stream, name, "communication", span, site)
        seconds = max(span.end - span.start for _, span in spans)
        work = Work(bytes=size, pieces=1)
        self.recorder.add(
            ranks.ranks, stream, name, "communication", seconds, work, [given], self._held(output),
            site,
        )  # fmt: skip
