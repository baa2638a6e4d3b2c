"""The words of a verdict: its one sentence, and a line for each process in trouble.

`report` and `judge` ask for them once ranks have been looked at. Pure: stacks in, text out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from .._words import duration, ranges, since
from ..stacks.model import CLIENT, HAS_ENDED, ProcStacks
from ..stacks.report import Stacks
from .model import DEGRADED, FINE, FROZEN, RUNS, SILENT, STUCK, WAITS, Standing
from .nodes import frozen, full_mailboxes, has_ended, mesh_of

_SWAPS = 50  # pages read from a disk in a second
_FEW = 3  # ranks that are named, though most of the mesh is among them
_NAMED = 2  # of those who are to blame; the others are a number


class Trouble:
    """The faults of processes, one line each."""

    def __init__(self, first: Stacks, second: Stacks, seconds: float) -> None:
        before: dict[tuple[object, int, int], ProcStacks] = {
            (mesh_of(proc), proc.rank, proc.pid): proc for proc in first.procs
        }
        self.procs = second.procs
        ended = list(filter(has_ended, second.procs))
        alive = {(mesh_of(proc), proc.rank) for proc in second.procs if not has_ended(proc)}
        self.failures = tuple(f"{rank(proc)} {_end(proc)}" for proc in ended)
        self.lost = [proc for proc in ended if (mesh_of(proc), proc.rank) not in alive]
        self.full = tuple(
            f"{box.actor}[{proc.rank}]: {box.queued:,} messages wait, {_processes(len(box.paused))}"
            " paused"
            for proc, box in full_mailboxes(second.procs)
        )
        states = [
            (proc, frozen(before.get((mesh_of(proc), proc.rank, proc.pid)), proc))
            for proc in second.procs
        ]
        self.frozen = tuple(
            f"{rank(proc)} (process {proc.pid} on {proc.host}) {why}" for proc, why in states if why
        )
        self.swapping = tuple(
            f"{rank(proc)} (process {proc.pid} on {proc.host}) has {proc.kernel.swapped >> 20:,}"
            f" MiB in swap, and reads {faults / seconds:,.0f} pages a second"
            for proc in second.procs
            if proc.kernel is not None
            and (faults := _faults(before, proc)) >= _SWAPS * seconds
            and proc.kernel.swapped
        )


def sentence(
    status: str,
    seconds: float | None,
    classes: Sequence[Standing],
    held_up: Sequence[int],
    circles: Sequence[Sequence[str]],
    trouble: Trouble,
) -> str:
    """The verdict in one sentence.

    Args:
        status: Of the verdict.
        seconds: For how long it is stuck, or slow; None if that is not known.
        classes: Ranks by what they stand at.
        held_up: The classes of all ranks that wait for the culprits, one number for each of them.
        circles: Names of the actors in each circle of waits.
        trouble: What keeps the verdict from being complete.
    """
    if status == FINE:
        return _fine(classes, trouble)
    if status == DEGRADED:
        return f"Degraded: goes on without {_lost(trouble.lost)}."
    single = len({mesh_of(proc) for proc in trouble.procs if proc.mesh != CLIENT}) < 2
    blamed = [each for each in classes if each.blamed]
    culprits = [_culprit(each, single) for each in blamed if each.state != SILENT or not circles]
    waiting = ""
    if held_up:
        most = Counter(held_up).most_common()
        ranks = [each for each, _ in most if classes[each].mesh != CLIENT]
        waiting = _who_where(classes[ranks[0] if ranks else most[0][0]], single)
    if circles:
        names = [*circles[0][:8], *(["..."] if len(circles[0]) > 8 else [])]
        culprits = [f"{' → '.join((*names, circles[0][0]))} wait for each other"]
        waiting = ""
    named = "; ".join(culprits[:_NAMED])
    if len(culprits) > _NAMED:
        named += f"; and {sum(len(each.ranks) for each in blamed[_NAMED:])} ranks elsewhere"
    if trouble.lost:
        named += f"; without {_lost(trouble.lost)}"
    head = status.capitalize() + since(seconds)
    if status == STUCK:
        return f"{head}: {'; '.join(filter(None, (waiting, named)))}."
    return f"{head}: {f'{waiting} wait for ' if waiting else ''}{named}."


def _end(proc: ProcStacks) -> str:
    ago = f", {duration(proc.ago)} ago" if proc.ago is not None else ""
    return f"{proc.note.partition(chr(10))[0]}{ago}"


def _lost(procs: Sequence[ProcStacks]) -> str:
    first = f"{rank(procs[0])}: {_end(procs[0]).removeprefix(f'{HAS_ENDED}: ')}"
    return f"{first}; and {len(procs) - 1} more" if len(procs) > 1 else first


def rank(proc: ProcStacks) -> str:
    """``trainers[3]``; ``the client``."""
    return f"the {CLIENT}" if proc.mesh == CLIENT else f"{proc.mesh}[{proc.rank}]"


def who(each: Standing, single: bool = False) -> str:
    """``7 ranks``, ``7 ranks of trainers``, ``trainers[3,5]``, ``the client``."""
    if each.mesh == CLIENT:
        return f"the {CLIENT}"
    if each.state == SILENT:
        return each.mesh
    text = ranges(each.ranks)
    if len(each.ranks) > max(_FEW, each.size // 2) or len(text) > 24:
        return f"{len(each.ranks)} ranks{'' if single else f' of {each.mesh}'}"
    return f"{each.mesh}[{text}]"


def _who_where(each: Standing, single: bool) -> str:
    return f"{who(each, single)} in {each.place}" if each.place else who(each, single)


def _culprit(each: Standing, single: bool) -> str:
    where = (
        [f"host {each.hosts[0]}"]
        if len(each.hosts) == 1 and each.mesh != CLIENT and each.state != SILENT
        else []
    )
    point = [each.point] if each.point and len(each.ranks) == 1 else []
    process = [f"process {each.pids[0]}"] if len(each.pids) == 1 and each.state != SILENT else []
    inside = f" ({', '.join((*where, *point, *process))})" if where or point or process else ""
    place = f" in {each.place}" if each.place else ""
    if each.state == FROZEN or not place:
        return (
            f"{who(each, single)}{inside}"
            f" {_of_many(each.reason) if len(each.ranks) > 1 else each.reason}"
        )
    reason = "runs" if each.state == RUNS and not each.reason else each.reason
    return f"{who(each, single)}{inside}{place}{f': {reason}' if reason else ''}"


def _of_many(reason: str) -> str:
    for one, many in (("is ", "are "), ("does ", "do "), (": it waits", ": they wait")):
        reason = reason.replace(one, many, 1)
    return reason


def _fine(classes: Sequence[Standing], trouble: Trouble) -> str:
    busy = [each for each in classes if each.mesh != CLIENT]
    ranks = {(each.mesh, at) for each in busy for at in each.ranks}
    idle = sum(
        proc.mesh != CLIENT and bool(proc.pid) and (proc.mesh, proc.rank) not in ranks
        for proc in trouble.procs
    )
    program = next((each for each in classes if each.mesh == CLIENT), None)
    at = (
        f"the {CLIENT} {'runs' if program.state == RUNS else 'is'} in {program.place}"
        if program is not None
        else ""
    )
    if not busy:
        if program is not None and program.state == WAITS:  # for machines of a job, say
            at += f"{since(program.seconds)}: {program.reason}"
        waits = f"{_ranks(idle)} for a message" if idle else ""
        return f"Fine: nothing runs{f': {waits}' if waits else ''}{f'; {at}' if at else ''}."
    text = (
        f"{_ranks(len(ranks), 'work', 'works')}{f', {_ranks(idle)} for a message' if idle else ''}"
    )
    return f"Fine: {text}{f'; {at}' if at else ''}."


def _ranks(count: int, many: str = "wait", one: str = "waits") -> str:
    return f"1 rank {one}" if count == 1 else f"{count:,} ranks {many}"


def _processes(count: int) -> str:
    return "1 process is" if count == 1 else f"{count:,} processes are"


def _faults(before: dict[tuple[object, int, int], ProcStacks], proc: ProcStacks) -> int:
    first = before.get((mesh_of(proc), proc.rank, proc.pid))
    if first is None or first.kernel is None or proc.kernel is None:
        return 0
    return proc.kernel.faults - first.kernel.faults
