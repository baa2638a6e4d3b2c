"""The rules of ownership, one by one, then against a naive model for every short history, then as a
tree at random.
"""

from __future__ import annotations

import itertools
import random

import pytest

from helpers.each import for_each
from monarch._core.supervision.failure import EXCEPTION, KILLED, LINK, UNHANDLED, Failure
from monarch._core.supervision.ownership import (
    AskSupervisor,
    Fail,
    Instruction,
    OwnedMesh,
    Ownership,
)


def actors(uid: int, processes: list[str], name: str = "") -> OwnedMesh:
    return OwnedMesh(
        uid, name or f"actors{uid}", processes, False, lambda rank: f"<actors{uid}[{rank}]>"
    )


def procs(uid: str, processes: list[str]) -> OwnedMesh:
    return OwnedMesh(uid, uid, processes, True, lambda rank: f"{uid}[{rank}]")


def failed(uid: int, rank: int) -> Failure:
    return Failure(EXCEPTION, "it raised", mesh=f"actors{uid}", mesh_uid=uid, rank=rank)


KILL = Failure(KILLED, "killed", pid=7, signal=9, output=("last words",))


def told(instructions: list[Instruction]) -> list[tuple[int | str, int | None]]:
    return [
        (i.failure.mesh_uid, i.failure.rank) for i in instructions if isinstance(i, AskSupervisor)
    ]


def owning(*meshes: OwnedMesh) -> Ownership[OwnedMesh]:
    ownership: Ownership[OwnedMesh] = Ownership()
    for mesh in meshes:
        ownership.created(mesh)
    return ownership


def test_the_owner_judges_the_first_failure_of_each_rank() -> None:
    ownership = owning(actors(1, ["p0", "p1"]))
    asked = ownership.rank_failed(failed(1, 0), 0)
    assert asked == [AskSupervisor(failed(1, 0), ownership[1])]
    assert told(ownership.rank_failed(failed(1, 0), 0)) == []
    assert told(ownership.rank_failed(failed(1, 1), 0)) == [(1, 1)]


def test_failures_of_what_is_not_owned_or_no_longer_are_ignored() -> None:
    ownership = owning(actors(1, ["p0"]))
    assert ownership.rank_failed(failed(2, 0), 0) == []
    ownership.stopped(1)
    assert ownership.rank_failed(failed(1, 0), 0) == []
    assert ownership.process_ended("p0", KILL, 0) == []
    assert 1 not in ownership
    ownership.stopped(1)  # once more does no harm


def test_a_lost_process_is_told_by_the_actors_on_it() -> None:
    ownership = owning(
        procs("procs", ["p0", "p1"]),
        actors(1, ["p0", "p1"], "trainers"),
        actors(2, ["p1"], "loaders"),
    )
    instructions = ownership.process_ended("p1", KILL, 0)
    assert told(instructions) == [(1, 1), (2, 0)]
    first = instructions[0]
    assert isinstance(first, AskSupervisor)
    assert (first.failure.mesh, first.failure.signal, first.failure.output) == (
        "trainers",
        9,
        ("last words",),
    )
    assert "the process this actor was running on failed" in first.failure.reason
    assert (first.mesh, first.failure.actor) == (ownership[1], "<actors1[1]>")


def test_a_lost_process_without_actors_is_told_as_itself() -> None:
    ownership = owning(procs("procs", ["p0", "p1"]))
    instructions = ownership.process_ended("p1", KILL, 0)
    assert told(instructions) == [("procs", 1)]
    assert isinstance(instructions[0], AskSupervisor)
    assert (instructions[0].failure.proc, instructions[0].failure.mesh) == ("procs[1]", "procs")


def test_a_process_that_is_lost_after_its_only_actor_failed_is_told_as_itself() -> None:
    ownership = owning(procs("procs", ["p0"]), actors(1, ["p0"]))
    assert told(ownership.rank_failed(failed(1, 0), 0)) == [(1, 0)]
    assert told(ownership.process_ended("p0", KILL, 0)) == [("procs", 0)]


def test_the_end_of_a_process_may_be_heard_of_in_several_ways_and_counts_once() -> None:
    ownership = owning(procs("procs", ["p0"]), actors(1, ["p0"]))
    assert told(ownership.process_ended("p0", KILL, 0)) == [(1, 0)]
    assert ownership.process_ended("p0", KILL, 0) == []
    assert ownership.process_ended("p0", Failure(LINK, "the connection broke"), 0) == []


def test_an_owner_ignores_what_it_stopped_and_what_ran_on_stopped_procs() -> None:
    host, mesh, elsewhere = procs("procs", ["p0", "p1"]), actors(1, ["p0", "p1"]), actors(2, ["q0"])
    ownership = owning(host, mesh, elsewhere)
    assert all(ownership.cares_for(each) for each in (host, mesh, elsewhere))
    ownership.stopped("procs")
    assert not ownership.cares_for(host)
    assert not ownership.cares_for(mesh)
    assert ownership.cares_for(elsewhere)
    ownership.stopped(2)
    assert not ownership.cares_for(elsewhere)


def test_an_owner_tells_what_it_owns_where_that_runs_and_what_has_failed() -> None:
    host, mesh = procs("procs", ["p0", "p1"]), actors(1, ["p1", "q0"])
    ownership = owning(host, mesh)
    assert ownership.meshes() == [host, mesh], "the oldest first"
    assert (ownership.get(1), ownership.get(2)) == (mesh, None)
    assert ownership.processes() == {"p0", "p1", "q0"}
    ownership.rank_failed(failed(1, 1), 0)
    assert [mesh.has_failed(rank) for rank in (0, 1)] == [False, True]
    ownership.stopped("procs")
    assert (ownership.meshes(), ownership.processes()) == ([mesh], {"p1", "q0"})


def test_what_is_not_handled_is_the_owners_own_failure() -> None:
    ownership = owning(actors(1, ["p0"]))
    assert ownership.judged(failed(1, 0), handled=True) == []
    assert ownership.judged(failed(1, 0), handled=False) == [Fail(failed(1, 0))]


def test_an_owner_that_ends_stops_the_youngest_first_and_creates_nothing_more() -> None:
    meshes = [procs("procs", ["p0"]), actors(1, ["p0"]), actors(2, ["p0"])]
    ownership = owning(*meshes)
    assert ownership.ended() == meshes[::-1]
    with pytest.raises(RuntimeError, match="ending"):
        ownership.created(actors(3, ["p0"]))


def test_a_new_incarnation_may_fail_anew_and_the_old_one_has_no_say() -> None:
    mesh = actors(1, ["p0", "p1"])
    ownership = owning(mesh)
    assert told(ownership.rank_failed(failed(1, 0), 0)) == [(1, 0)]
    mesh.start_again([0])
    assert [mesh.incarnation(rank) for rank in (0, 1)] == [1, 0]
    assert ownership.rank_failed(failed(1, 0), 0) == []  # late news of the old one
    assert told(ownership.rank_failed(failed(1, 0)._replace(incarnation=1), 0)) == [(1, 0)]


EVENTS = [("actor", uid, rank) for uid in (1, 2) for rank in (0, 1)] + [
    ("process", 0, 0), ("process", 1, 0), ("stop", 1, 0), ("stop", 0, 0),
]  # fmt: skip


class NaiveModel:
    """What an owner of procs (0) and two actor meshes (1, 2) on both of them must hear, said in
    another way.
    """

    def __init__(self) -> None:
        self.owned = {0, 1, 2}
        self.down: set[tuple[int, int]] = set()

    def hears(self, what: str, which: int, rank: int) -> list[tuple[int, int]]:
        if what == "stop":
            self.owned.discard(which)
            return []
        if what == "actor":
            news: list[tuple[int, int]] = [(which, rank)]
        else:
            on_it: list[tuple[int, int]] = [
                (mesh, which)
                for mesh in (1, 2)
                if mesh in self.owned and (mesh, which) not in self.down
            ]
            news = on_it or [(0, which)]
            if on_it and 0 in self.owned:  # it is known now, whoever told
                self.down.add((0, which))
        news = [rank for rank in news if rank[0] in self.owned and rank not in self.down]
        self.down.update(news)
        return news


@pytest.mark.parametrize("length", range(1, 6))
def test_every_short_history_tells_what_a_naive_model_tells(length: int) -> None:
    for history in itertools.product(EVENTS, repeat=length):
        ownership = owning(
            procs("0", ["p0", "p1"]), actors(1, ["p0", "p1"]), actors(2, ["p0", "p1"])
        )
        model = NaiveModel()
        for what, which, rank in history:
            if what == "actor":
                heard = ownership.rank_failed(failed(which, rank), 0)
            elif what == "process":
                heard = ownership.process_ended(f"p{which}", KILL, 0)
            else:
                ownership.stopped("0" if which == 0 else which)
                heard = []
            assert [(int(uid), rank) for uid, rank in told(heard)] == model.hears(
                what, which, rank
            ), history


# the tree: owners that tell their owners, over a network that delays and doubles


class Node:
    """An actor of the simulated tree."""

    def __init__(self, uid: int, owner: Node | None, handles: bool) -> None:
        self.uid = uid
        self.owner = owner
        self.handles = handles
        self.alive = True
        self.ownership: Ownership[OwnedMesh] = Ownership()
        self.children: list[Node] = []
        self.heard: list[int] = []


class Tree:
    """A root that handles nothing, and actors below it; `inbox` holds failures on their way to
    owners.
    """

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.root = Node(0, None, handles=False)
        self.nodes = [self.root]
        self.inbox: list[tuple[Node, Failure]] = []
        self.faults: list[int] = []
        self.reasons: dict[int, str] = {}
        for uid in range(1, chance.randint(3, 25)):
            owner = chance.choice(self.nodes)
            node = Node(uid, owner, handles=chance.random() < 0.4)
            owner.ownership.created(actors(uid, [f"process{uid}"]))
            owner.children.append(node)
            self.nodes.append(node)

    def end(self, node: Node, cause: str) -> None:
        """It ends, for whatever reason, and everything below it."""
        if not node.alive:
            return
        node.alive = False
        self.reasons[node.uid] = cause
        for mesh in node.ownership.ended():
            assert isinstance(mesh.uid, int)
            child = next(child for child in node.children if child.uid == mesh.uid)
            node.ownership.stopped(mesh.uid)
            self.end(child, "stopped")

    def fail(self, node: Node, cause: str) -> None:
        if node.alive and node.owner is not None:
            failure = Failure(cause, "x", mesh_uid=node.uid, rank=0)
            copies = self.chance.choice((1, 1, 2))
            self.inbox += [(node.owner, failure)] * copies
        self.end(node, cause)

    def deliver(self) -> None:
        owner, failure = self.inbox.pop(self.chance.randrange(len(self.inbox)))
        if not owner.alive:
            return
        for instruction in owner.ownership.rank_failed(failure, 0):
            assert isinstance(instruction, AskSupervisor)
            assert isinstance(instruction.failure.mesh_uid, int)
            owner.heard.append(instruction.failure.mesh_uid)
            if owner is self.root:
                self.faults.append(instruction.failure.mesh_uid)
                continue
            for outcome in owner.ownership.judged(instruction.failure, owner.handles):
                assert isinstance(outcome, Fail)
                self.fail(owner, UNHANDLED)


@for_each("seed", range(300))
def test_a_failure_climbs_until_it_is_handled_in_any_order(seed: int) -> None:
    tree = Tree(random.Random(seed))
    victims = tree.chance.sample(tree.nodes[1:], tree.chance.randint(1, len(tree.nodes) - 1))
    for victim in victims:
        tree.fail(victim, EXCEPTION)
        while tree.inbox and tree.chance.random() < 0.5:
            tree.deliver()
    while tree.inbox:
        tree.deliver()

    for node in tree.nodes:
        assert len(node.heard) == len(set(node.heard)), "nobody hears of a failure twice"
        if not node.alive:
            assert not any(child.alive for child in node.children), "nothing outlives its owner"
    for node in tree.nodes[1:]:
        assert node.owner is not None
        reason = tree.reasons.get(node.uid)
        if reason in (EXCEPTION, UNHANDLED) and node.owner.alive:
            assert node.uid in node.owner.heard, "an owner that lives has heard of it"
        if reason == UNHANDLED:
            assert not node.handles
            assert node.heard, "who fails for what it owns has heard of that"
        if node.alive and node.heard:
            assert node.handles, "who heard of a failure and lives has handled it"
        if reason == "stopped":
            assert not node.owner.alive, "only its owner's end stops an actor here"
    assert tree.faults == tree.root.heard, "what nobody below handles reaches the root"
