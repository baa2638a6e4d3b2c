"""The verdict, from two looks at a program. Pure.

*To blame* are those that hold up others and are held up by none: the ends of the ways along "waits
for". An answer is owed by known actors, so these waits are exact. A collective ends when all ranks
are in it, so those in it wait for the ranks of their mesh that are elsewhere. If none is, they
wait for each other, and it is the collective itself that stands, or runs. A circle has no end: all
of it is to blame.

*Stuck* is a program in which a wait leads, over any number of others, to a standstill: a process
that is stopped, C code that holds the GIL, a rank that has not run at all, a collective of which no
thread has run, a silent host, a circle. *Slow* is one in which ranks wait for one of their own mesh
that runs, or are in a collective that runs: it gets on, or hangs and spins, which looks the same;
or in which a rank waits for a service without any replica, which may get one; or in which the
steps of a rank take longer than those of the others (`steps`). *Degraded* is one that goes on
without ranks that have failed. All else is *fine*, an idle program as well; if all that goes on
stands still, it is stuck, even without a wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .._words import NO_REPLICA, host_named
from ..stacks.model import CLIENT, ProcStacks, ThreadStack
from ..stacks.report import Stacks
from . import graph, model, words
from .nodes import RankActivity, collective, full_mailboxes, mesh_of, nodes_of
from .steps import Straggler, untold

_STILL = set(model.STATES) - {model.RUNS, model.POLLS}
# Of the time, of the processes in a collective; those in which it hangs look for data for a quarter
# of that.
_TRANSFERS = 0.01
_TROUBLE = {model.FROZEN, model.MUTE, model.SILENT}  # also without a wait for it


def judge(
    first: Stacks,
    second: Stacks,
    seconds: float,
    late: Sequence[Straggler] = (),
    held: Sequence[tuple[str, int]] = (),
    unclear: str = "",
) -> model.Verdict:
    """Compare two looks.

    Args:
        first: The first look.
        second: The second look.
        seconds: Between them.
        late: Ranks with steps that take longer than the others', the slowest first: a program with
            some is slow, not fine.
        held: Names of services and their calls that are not answered, the largest number first.
            Where consumers wait for items of a queue, that is where most of them are.
        unclear: Why marked steps can't tell who is late, if so.
    """
    case = _Case(first, second, seconds)
    verdict = case.verdict()
    sentence = verdict.sentence
    if verdict.status in (model.FINE, model.DEGRADED):
        if late:
            more = f"; and {len(late) - 1} more" if len(late) > 1 else ""
            verdict, sentence = replace(verdict, status=model.SLOW), f"Slow: {late[0]}{more}."
        elif unclear := unclear or case.shared_steps():
            sentence = f"{sentence[:-1]}; {unclear}."
    empty = " and ".join(case.empty_queues())
    if empty and held and (most := held[0])[1]:
        has = f"{most[0]} has most calls of services, {most[1]} of {sum(each for _, each in held)}"
        sentence = f"{sentence[:-1]}; consumers wait for items of {empty}, and {has}."
    return replace(verdict, sentence=sentence, stragglers=tuple(late))


class _Case:
    def __init__(self, first: Stacks, second: Stacks, seconds: float) -> None:
        self._first = first
        self._second = second
        self._seconds = seconds
        self._nodes = list(nodes_of(first.procs, second.procs, seconds))
        self._hosts: dict[str, int] = {}
        for host, reason in second.silent.items():
            self._hosts[host] = len(self._nodes)
            proc = ProcStacks(f"host {host_named(host)}", 0, 1, 0, host, "", reason, ())
            self._nodes.append(
                RankActivity(proc, None, "", (), model.SILENT, f"does not answer ({reason})")
            )
        self._by_proc: dict[object, list[int]] = {}
        for number, node in enumerate(self._nodes):
            self._by_proc.setdefault(node.proc.address, []).append(number)
        self._edges: dict[int, list[int]] = {}
        # by whom all of a group wait for: one knot, not one edge for each pair
        self._meetings: dict[object, int] = {}
        self._knots = len(self._nodes) + 1_000_000
        self._find_waits()
        self._find_collectives()
        self._find_full_mailboxes()

    def empty_queues(self) -> list[str]:
        """The queues and replay buffers in which consumers wait for items."""
        return sorted({node.actor for node in self._nodes if node.is_for_items})

    def shared_steps(self) -> str:
        """Say that ranks which mark steps wait for each other within one, where that is seen."""
        for node in self._nodes:
            called = node.thread is not None and collective(node.thread.frames)
            if called and node.proc.stepped is not None and node.proc.size > 1:
                return untold(node.proc.mesh, f"within one, all wait for the last in {called}")
        return ""

    # the graph

    def _find_waits(self) -> None:
        by_actor: dict[tuple[object, int], list[int]] = {}
        by_call: dict[tuple[object, str], int] = {}
        for number, node in enumerate(self._nodes):
            if node.thread is not None and node.thread.call:
                by_call[node.proc.address, node.thread.call.rpartition(" ")[0]] = number
            by_actor.setdefault((node.proc.address, node.actor_id), []).append(number)
        for number, node in enumerate(self._nodes):
            wait = node.wait
            if wait is None:
                continue
            begun = {
                address: by_call[address, wait.call]
                for address in wait.silent
                if (address, wait.call) in by_call
            }
            if begun:
                self._edges.setdefault(number, []).extend(begun.values())
            # of the others any call may be before it
            others = tuple(address for address in wait.silent if address not in begun)
            knot = self._knot((wait.actor, others), number) if others else None
            if knot is None:
                continue
            for address in others:
                there = self._by_proc.get(address, [])
                # not asked: it could be any
                unseen = [each for each in there if self._nodes[each].actor_id == 0]
                found = by_actor.get((address, wait.actor)) or unseen
                if not there and address.host in self._hosts:
                    found = [self._hosts[address.host]]
                self._edges[knot].extend(found)

    def _knot(self, key: object, number: int) -> int | None:
        """Have this node wait for a knot; returns that if it is new."""
        known = self._meetings.get(key)
        if known is not None:
            self._edges.setdefault(number, []).append(known)
            return None
        self._knots += 1
        self._meetings[key] = self._knots
        self._edges.setdefault(number, []).append(self._knots)
        self._edges[self._knots] = []
        return self._knots

    def _find_collectives(self) -> None:
        groups: dict[tuple[object, str], list[int]] = {}
        for number, node in enumerate(self._nodes):
            if node.state == model.COLLECTIVE:
                groups.setdefault((node.mesh, node.actor or node.endpoint), []).append(number)
        for (mesh, actor), members in groups.items():
            inside = {self._nodes[each].proc.rank for each in members}
            elsewhere = [
                number
                for number, node in enumerate(self._nodes)
                if node.mesh == mesh
                and node.proc.rank not in inside
                and (not node.actor or actor in (node.actor, node.endpoint))
            ]
            runs = _gets_on([self._nodes[each] for each in members])
            if not elsewhere and not runs:
                elsewhere = self._absent(mesh, inside)
            if not elsewhere and runs:
                for each in members:
                    self._nodes[each].ran = True
                    self._nodes[each].reason = "runs: it gets on slowly, or spins"
            for member in members:
                knot = self._knot((mesh, actor), member)
                if knot is not None:
                    self._edges[knot].extend(elsewhere)

    def _absent(self, mesh: object, inside: set[int]) -> list[int]:
        """Idle ranks of a mesh in which others are in a collective.

        Many idle ones mean that the collective is one of a part of the mesh.
        """
        idle = [
            proc
            for proc in self._second.procs
            if mesh_of(proc) == mesh and proc.rank not in inside and proc.how
        ]
        if len(idle) >= len(inside):
            return []
        made = [
            RankActivity(proc, None, "", (), model.ABSENT, "is not in it: it waits for a message")
            for proc in idle
        ]
        self._nodes.extend(made)
        return list(range(len(self._nodes) - len(made), len(self._nodes)))

    def _find_full_mailboxes(self) -> None:
        for proc, mailbox in full_mailboxes(self._second.procs):
            there = self._by_proc.get(proc.address, ())
            handling = [each for each in there if self._nodes[each].actor_id == mailbox.actor_id]
            for each in handling:
                reason = f"its mailbox is full, {mailbox.queued:,} messages wait"
                self._nodes[each].reason = "; ".join(
                    filter(None, (self._nodes[each].reason, reason))
                )
            for address in mailbox.paused:
                for sender in self._by_proc.get(address, ()):
                    node = self._nodes[sender]
                    if node.state in (model.STANDS, model.WAITS) and sender not in self._edges:
                        node.state = model.WAITS
                        where = f"{mailbox.actor}[{proc.rank}]"
                        node.reason = f"waits for room in the mailbox of {where}"
                        self._edges[sender] = handling

    # the verdict

    def verdict(self) -> model.Verdict:
        nodes = self._nodes
        circles = [
            [each for each in group if each < len(nodes)] for group in graph.circles(self._edges)
        ]
        in_circles = {each for group in circles for each in group}
        waiting = {number for number in range(len(nodes)) if self._reached(number)}
        awaited = {each for number in waiting for each in self._reached(number)}
        ends = [number for number in range(len(nodes)) if number not in waiting]
        stuck = [number for number in ends if self._holds_up(number, awaited)]
        stuck += sorted(in_circles)
        if not stuck and ends and not any(map(_runs, nodes)):
            stuck = [each for each in ends if nodes[each].proc.mesh != CLIENT]
            stuck = [each for each in stuck if not nodes[each].reason.startswith("accept")]
        slow = [] if stuck else self._slow(ends)
        blamed = stuck or slow
        held_up = sorted(
            each for each in graph.those_who_wait(blamed, self._edges) if each < len(nodes)
        )
        self._date(blamed, waiting)
        seconds = max(
            (s for each in blamed if (s := nodes[each].seconds) is not None), default=None
        )
        classes, position = self._classes(set(blamed))
        trouble = words.Trouble(self._first, self._second, self._seconds)
        calm = model.DEGRADED if trouble.lost else model.FINE
        status = model.STUCK if stuck else model.SLOW if slow else calm
        chains = [graph.chain(group, self._edges) for group in graph.circles(self._edges)]
        named = tuple(
            tuple(nodes[each].name for each in path if each < len(nodes)) for path in chains
        )
        behind = [position[each] for each in held_up]
        sentence = words.sentence(status, seconds, classes, behind, named, trouble)
        edges = ((position[a], position[b]) for a in sorted(waiting) for b in self._reached(a))
        return model.Verdict(
            status, sentence, seconds, classes, tuple(dict.fromkeys(edges)), named, trouble.failures,
            trouble.full, trouble.frozen, trouble.swapping, self._second.silent,
        )  # fmt: skip

    def _date(self, blamed: Sequence[int], waiting: set[int]) -> None:
        """Note how long those who are to blame have stood: since the first has waited for them.

        No longer than since the last step that they have marked: their caller may wait all day.
        """
        ages: dict[int, float] = {}
        for number in waiting:
            for each in self._reached(number):
                ages[each] = max(ages.get(each, 0.0), self._nodes[number].seconds or 0.0)
        for number in blamed:
            node = self._nodes[number]
            waited = max(node.seconds or 0.0, ages.get(number, 0.0)) or None
            known = [age for age in (waited, node.proc.stepped) if age is not None]
            node.seconds = min(known, default=None)

    def _reached(self, number: int) -> list[int]:
        """The nodes that a node waits for."""
        found = []
        for target in self._edges.get(number, ()):
            found += [target] if target < len(self._nodes) else self._edges.get(target, [])
        return found

    def _holds_up(self, number: int, awaited: set[int]) -> bool:
        node = self._nodes[number]
        if node.state in _TROUBLE:
            return True
        if _runs(node):
            return False
        return number in awaited or node.queued > 0 or (node.state == model.COLLECTIVE)

    def _slow(self, ends: Sequence[int]) -> list[int]:
        """The ends of waits that are suspicious although they look busy.

        They run while ranks of their own mesh wait for them, are in a collective, or wait
        for a service without a replica.
        """
        # by whole meshes: one way through the graph for each of them, not for each end
        awaited: dict[object, set[int]] = {}
        found = []
        for number in ends:
            node = self._nodes[number]
            if node.state in (model.RUNS, model.POLLS) and node.mesh not in awaited:
                members = [
                    each for each, other in enumerate(self._nodes) if other.mesh == node.mesh
                ]
                awaited[node.mesh] = graph.those_waited_for(members, self._edges)
            no_replica = node.state == model.WAITS and node.reason.endswith(NO_REPLICA)
            if (
                no_replica
                or node.state in (model.HOLDS, model.COLLECTIVE)
                or (node.state in (model.RUNS, model.POLLS) and number in awaited[node.mesh])
            ):
                found.append(number)
        return found

    def _classes(self, blamed: set[int]) -> tuple[tuple[model.Standing, ...], dict[int, int]]:
        """The nodes as classes, and in which each is. Idle ranks are a class of each mesh."""
        groups: dict[tuple[object, ...], list[int]] = {}
        meshes: dict[object, None] = {}
        for number, node in enumerate(self._nodes):
            meshes.setdefault(node.mesh)
            key = (node.mesh, node.endpoint, node.lines, node.state, _kind(node), number in blamed)
            groups.setdefault(key, []).append(number)
        order = list(meshes)

        def place(group: list[int]) -> tuple[int, int, int]:
            first = self._nodes[group[0]]
            return order.index(first.mesh), -len(group), first.proc.rank

        members = sorted(groups.values(), key=place)
        position = {number: index for index, group in enumerate(members) for number in group}
        return tuple(self._standing(group, blamed) for group in members), position

    def _standing(self, group: Sequence[int], blamed: set[int]) -> model.Standing:
        nodes = sorted((self._nodes[each] for each in group), key=lambda node: node.proc.rank)
        by_rank = {node.proc.rank: node for node in nodes}
        node = nodes[0]
        proc = node.proc
        inner = (
            {name: at for name, at in proc.coordinates.items() if name != "hosts"}
            if len(proc.coordinates) > 1
            else {}
        )
        point = ", ".join(f"{name.removesuffix('s')} {at}" for name, at in inner.items())
        return model.Standing(
            proc.mesh, proc.size, tuple(by_rank), tuple(sorted({each.proc.host for each in nodes})),
            tuple(each.proc.pid for each in by_rank.values()), point, node.endpoint, node.place,
            node.state, node.reason,
            max((each.seconds for each in nodes if each.seconds is not None), default=None),
            group[0] in blamed, node.lines,
        )  # fmt: skip


def _gets_on(members: Sequence[RankActivity]) -> bool:
    """Return whether a collective makes progress.

    A thread in it has run, or threads of C that do its work have, while those of Python wait.
    """
    return any(node.ran for node in members) or sum(
        node.in_process for node in members
    ) >= _TRANSFERS * len(members)


def _runs(node: RankActivity) -> bool:
    return node.state not in _STILL or (node.state == model.COLLECTIVE and node.ran)


def _kind(node: RankActivity) -> object:
    """Return the key that sets nodes of one stack apart.

    It is what they wait for, or are in; not the file.
    """
    thread: ThreadStack | None = node.thread
    if thread is not None and thread.wait is not None:
        return thread.wait.actor
    return node.reason.partition(" of ")[0]
