"""Stragglers: ranks with steps that take longer than the others'. Pure.

A rank is called one if all of this holds, for the last steps of each rank:

* its median is a fifth above that of the others, at least, and a step takes long enough to be
  measured;
* the quickest quarter of its steps is slower than three quarters of those of the others: so not now
  and then, and not because all vary as much;
* that as many of its steps are above the median of the others would come by chance in one of a
  hundred programs of equal ranks: a sign test, with as many attempts as there are ranks. It assumes
  nothing of how times are distributed.

Of a step the time counts in which the rank handled something: it is not the rank's own where the
program calls all ranks for each step. Ranks that wait for each other within a step, in collectives,
take equally long. Late ranks are seen by where they stand then, which is not found here.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import median, median_low
from typing import TypeAlias

from .._core.plane import ProcAddress
from .._namedtuple import NamedTuple
from .._words import duration
from ..stacks.model import CLIENT, ProcStacks
from .pace import Pace

_FEWEST = 12  # steps
_SLOWER = 1.2
_SHORTEST = 0.01  # seconds: differences in shorter steps have more to do with the machine
_CHANCE = 0.01
_STALE = 10  # steps' time without a step: it does not go on, which is another verdict

_Rank: TypeAlias = "tuple[ProcStacks, Sequence[int]]"  # with the times of its steps


class Straggler(NamedTuple):
    """A rank that is slower than the others.

    Attributes:
        mesh: Name of its mesh.
        rank: Which.
        host: Name of its machine.
        pid: Its process.
        endpoint: What it is slower at; empty for steps.
        seconds: Its median.
        usual: That of the others.
        steps: How many were looked at.
    """

    mesh: str
    rank: int
    host: str
    pid: int
    endpoint: str
    seconds: float
    usual: float
    steps: int

    def __str__(self) -> str:
        what = f"a call of {self.endpoint}" if self.endpoint else "a step"
        many = "calls" if self.endpoint else "steps"
        slower = 100 * (self.seconds / self.usual - 1)
        lasted = duration(self.steps * self.seconds)
        return (
            f"{self.mesh}[{self.rank}] (host {self.host}, process {self.pid}) is slower than the"
            f" others by {slower:,.0f} %: {_time(self.seconds)} {what} where the median is"
            f" {_time(self.usual)}, in the last {self.steps} {many}, for {lasted}"
        )


def stragglers(
    procs: Sequence[ProcStacks], paces: Mapping[ProcAddress, Sequence[Pace]]
) -> tuple[tuple[Straggler, ...], str]:
    """Return the stragglers, the slowest first, and why marked steps can't tell them.

    The second is empty where they can, and where none are marked. An actor that marks steps is
    looked at by these, and by its calls otherwise.

    Args:
        procs: Stacks of the processes.
        paces: By address of the process.
    """
    marked = {pace.actor_id for each in paces.values() for pace in each if not pace.endpoint}
    groups: defaultdict[tuple[int, str], list[_Rank]] = defaultdict(list)
    for proc in procs:
        for pace in paces.get(proc.address, ()) if proc.address is not None else ():
            if pace.endpoint and pace.actor_id in marked:
                continue
            if pace.ago <= _STALE * pace.longest:
                groups[pace.actor_id, pace.endpoint].append((proc, pace.took))
    found, unclear = list[Straggler](), ""
    for (uid, endpoint), ranks in groups.items():
        late, why = _of_group(endpoint, [each for each in ranks if len(each[1]) >= _FEWEST])
        found += late
        why = "" if late or endpoint else _too_few(procs, uid, ranks) or why
        if why and (ranks[0][0].mesh != CLIENT or len(marked) == 1):
            unclear = untold(ranks[0][0].mesh, why)
    return tuple(sorted(found, key=lambda each: each.usual / each.seconds)), unclear


def untold(mesh: str, why: str) -> str:
    """Say that marked steps can't tell the slow ranks of a mesh."""
    of = "" if mesh == CLIENT else f" of {mesh}"
    return f"slow ranks{of} can't be told from marked steps: {why}"


def _too_few(procs: Sequence[ProcStacks], actor_id: int, ranks: Sequence[_Rank]) -> str:
    """Say that too few ranks of an actor mark steps, or have marked too few, if so."""
    if ranks[0][0].mesh == CLIENT:
        return "the program itself marks them, for all ranks" if len(procs) > 2 else ""
    of = sum(any(box.actor_id == actor_id for box in proc.mailboxes) for proc in procs)
    if len(ranks) < of:
        return f"{len(ranks)} of {of} ranks {'marks' if len(ranks) == 1 else 'mark'} them"
    short = sum(len(took) < _FEWEST for _, took in ranks)
    if not short or len(ranks) == 1:
        return ""
    which = "all" if short == len(ranks) else f"{short} of {len(ranks)}"
    return f"of {which} ranks fewer than {_FEWEST} are known"


def _of_group(endpoint: str, ranks: Sequence[_Rank]) -> tuple[list[Straggler], str]:
    """Return the stragglers of a group, else why these times can't tell which rank is slow."""
    if not ranks:
        return [], ""
    medians = [median(took) for _, took in ranks]
    usual = median_low(medians)
    slower = {at for at, middle in enumerate(medians) if middle >= _SLOWER * usual}
    candidates = {at for at in slower if medians[at] >= 1e6 * _SHORTEST}
    if not candidates:
        return [], f"they are shorter than {_time(_SHORTEST)}" if slower else ""
    # of two, neither is known to be the odd one
    if 2 * len(candidates) >= len(ranks):
        return [], f"one half of the {len(ranks)} ranks is slower than the other"
    others = sorted(
        each for at, (_, took) in enumerate(ranks) if at not in candidates for each in took
    )
    middle, upper = median(others), others[3 * len(others) // 4]
    found = []
    for at in candidates:
        proc, took = ranks[at]
        above = sum(each > middle for each in took)
        if (
            sorted(took)[len(took) // 4] > upper
            and len(ranks) * _by_chance(above, len(took)) <= _CHANCE
        ):
            seconds = medians[at] / 1e6
            who = proc.mesh, proc.rank, proc.host, proc.pid
            found.append(Straggler(*who, endpoint, seconds, middle / 1e6, len(took)))
    return found, "" if found else "their times vary too much"


def _by_chance(heads: int, throws: int) -> float:
    """How likely at least so many heads are."""
    return math.ldexp(sum(math.comb(throws, each) for each in range(heads, throws + 1)), -throws)


def _time(seconds: float) -> str:
    if seconds < 0.1:
        return f"{1000 * seconds:.0f} ms"
    if 0.95 <= seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds:.2f} s" if seconds < 1 else f"{seconds:,.0f} s"
