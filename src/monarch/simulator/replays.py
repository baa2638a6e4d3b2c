"""Recorded programs: instructions, and each replay's values under the recording's ids.

A recording has a program for each stream of each set of ranks, and all are replayed together: one
stream may wait for what another hands over in the middle of its program. So each goes on as far as
it can, in turn, until all are done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from monarch.tensor_engine.controller.executor import Ranks
from monarch.tensor_engine.instructions import CALL, MOVE, Instruction, Program

from .moves import Moves
from .rank_memory import Held, RankMemory


class Replay:
    """A program that is being replayed.

    Attributes:
        ranks: Where.
        number: Of the program.
        done: Whether all of it was run.
    """

    def __init__(
        self,
        ranks: Ranks,
        number: int,
        program: Program,
        given: Sequence[Held],
        results: Sequence[int],
    ) -> None:
        self.ranks = ranks
        self.number = number
        self.done = False
        self._program = program
        self._given = dict(zip(program.formals, given, strict=True))
        self._values: dict[int, Held] = dict(self._given)
        self._results = dict(zip(program.results, results, strict=True))
        self._next = 0

    def go_on(
        self,
        memory: RankMemory,
        run: Callable[[Instruction], None],
        may_run: Callable[[Instruction], bool],
        free: Callable[[int], None],
    ) -> bool:
        """Run it until its end, or until it must wait; whether it got any further."""
        before, outer, memory.values = self._next, memory.values, self._values
        try:
            while self._next < len(self._program.instructions):
                instruction = self._program.instructions[self._next]
                if not may_run(instruction):
                    return self._next > before
                run(self._as_now(instruction))
                self._next += 1
            self.done = True
            for ref in [
                ref for ref in self._values if ref not in self._results and ref not in self._given
            ]:
                free(ref)
        finally:
            memory.values = outer
        outer.update({now: self._values[then] for then, now in self._results.items()})
        return True

    def _as_now(self, instruction: Instruction) -> Instruction:
        if instruction[0] != CALL:
            return instruction
        what, site, call = instruction
        inputs, writes = (
            tuple(self._program.references.get(ref, ref) for ref in some)
            for some in (call.inputs, call.writes)
        )
        return what, site, call._replace(inputs=inputs, writes=writes)


def awaited(instruction: Instruction) -> int | None:
    """The ticket that an instruction waits for, if it does."""
    if instruction[0] != MOVE:
        return None
    _, _, name, args = instruction
    if name == "accept":
        return int(args[0])
    if name == "take_back":
        ticket, _, used = args
        return -ticket if used else int(ticket)
    return int(args[3]) if name == "receive" else None


def check_meeting(instruction: Instruction, ranks: Ranks, moves: Moves) -> None:
    """Raise where an instruction needs ranks that this program lacks.

    They are at another one meanwhile.

    Raises:
        NotImplementedError: It does.
    """
    if instruction[0] != MOVE or instruction[2] not in ("reduce", "transfer"):
        return
    _, _, name, args = instruction
    routes = moves.routes[args[3]] if name == "transfer" else {}
    groups = (
        moves.groups[args[0].groups] if name == "reduce" else [(*routes, *sum(routes.values(), ()))]
    )
    if not all(ranks.members.issuperset(members) for members in groups):
        raise NotImplementedError(
            f"a recorded function in which ranks that do different things meet, in {name}, can't be"
            " simulated; call the function itself"
        )
