"""Which waits count as a deadlock: the rules one by one, then random programs against an observer
who sees everything.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field

import pytest

from helpers.each import for_each
from monarch._core.supervision.deadlock import (
    EVERYTHING,
    NO_ACTIVITY,
    CallId,
    Chaser,
    Probe,
    Wait,
    WaitId,
    explain,
    keeper,
)

CALL = CallId("caller", 1)
OTHER = CallId("caller", 2)


def test_a_queued_call_is_kept_by_what_the_serving_code_waits_for() -> None:
    assert keeper(CALL, [OTHER, CALL], {"serve": OTHER}, ["serve"], "serve") == "serve"


def test_a_queued_call_is_not_kept_while_only_a_concurrent_call_waits() -> None:
    assert keeper(CALL, [CALL], {"task": OTHER}, ["task"], "serve") is NO_ACTIVITY


def test_a_call_in_progress_is_kept_by_its_own_wait_alone() -> None:
    handled = {"serve": OTHER, "task": CALL}
    assert keeper(CALL, [], handled, ["serve"], "serve") is NO_ACTIVITY
    assert keeper(CALL, [], handled, ["serve", "task"], "serve") == "task"


def test_a_stopped_thread_keeps_every_call() -> None:
    assert keeper(CALL, [CALL], {}, [EVERYTHING], "serve") is EVERYTHING
    assert keeper(CALL, [], {"task": CALL}, ["task", EVERYTHING], "serve") is EVERYTHING


def test_a_call_that_is_not_there_is_kept_by_no_actor() -> None:
    assert keeper(CALL, [OTHER], {EVERYTHING: OTHER}, [EVERYTHING]) is NO_ACTIVITY


def test_a_call_with_a_response_port_handed_out_is_kept_by_no_actor() -> None:
    assert keeper(CALL, [], {EVERYTHING: None}, [EVERYTHING]) is NO_ACTIVITY


def wait(began: float, process: str, *silent: str) -> Wait:
    return Wait(
        WaitId(began, CallId(process, 1)), tuple((name, 7) for name in silent), f"{process} waits"
    )


def chaser_that_knows(*waits: Wait) -> Chaser:
    chaser = Chaser()
    chaser.sweep([each.id for each in waits])
    return chaser


def test_a_wait_asks_when_it_was_seen_before_and_then_ever_less_often() -> None:
    chaser, mine = Chaser(), wait(1.0, "a", "b")
    rounds = [chaser.sweep([mine.id]) for _ in range(20)]
    assert [number for number, due in enumerate(rounds) if due] == [1, 2, 4, 8, 16]


def test_a_wait_that_ended_and_began_again_counts_anew() -> None:
    chaser, first, second = Chaser(), wait(1.0, "a", "b"), wait(2.0, "a", "b")
    chaser.sweep([first.id])
    assert chaser.sweep([second.id]) == []
    assert chaser.sweep([second.id]) == [(second.id, 1)]


def test_every_actor_that_owes_an_answer_is_asked() -> None:
    mine = wait(1.0, "a", "b", "c")
    probes = Chaser().ask(mine, 1)
    assert [(probe.process, probe.actor, probe.call) for probe in probes] == [
        ("b", 7, mine.id.call),
        ("c", 7, mine.id.call),
    ]


def test_a_probe_passes_older_waits_only_so_that_one_wait_of_a_cycle_hears_of_it() -> None:
    old, young = wait(1.0, "a", "b"), wait(2.0, "b", "a")
    (from_young,) = Chaser().ask(young, 1)
    (from_old,) = Chaser().ask(old, 1)
    (back,) = chaser_that_knows(old).pass_on(from_young, old)
    assert (back.initiator, back.call, back.chain) == (
        young.id,
        old.id.call,
        ("b waits", "a waits"),
    )
    assert chaser_that_knows(young).pass_on(from_old, young) == []


def test_a_probe_passes_a_wait_once_in_a_round() -> None:
    old, young = wait(1.0, "a", "b"), wait(2.0, "b", "a")
    chaser = chaser_that_knows(old)
    first, second = Chaser().ask(young, 1) + Chaser().ask(young, 2)
    assert len(chaser.pass_on(first, old)) == 1
    assert chaser.pass_on(first, old) == []
    (passed,) = chaser.pass_on(second, old)
    assert passed.round == 2


def test_a_probe_does_not_pass_a_wait_that_no_sweep_has_seen() -> None:
    old, young = wait(1.0, "a", "b"), wait(2.0, "b", "a")
    (probe,) = Chaser().ask(young, 1)
    assert Chaser().pass_on(probe, old) == []


def test_the_text_has_a_line_for_each_wait() -> None:
    lines = explain(("b waits for a", "a waits for b")).splitlines()
    assert [line for line in lines if line.startswith("  ")] == [
        "  b waits for a",
        "  a waits for b",
    ]


# random programs


@dataclass(eq=False)
class Activity:
    """What an actor does: serve (handling `call`, if any), or one concurrent call."""

    actor: Actor
    serving: bool
    call: tuple[CallId, str] | None = None  # with the actor that answers it
    explicit: bool = False
    waits_for: CallId | None = None
    noted: WaitId | None = None  # None for waits that something else may end, too


@dataclass(eq=False)
class Actor:
    name: str
    process: str
    inbox: deque[CallId] = field(default_factory=deque)
    serve: Activity = field(init=False)
    tasks: list[Activity] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.serve = Activity(self, serving=True)

    @property
    def activities(self) -> list[Activity]:
        return [self.serve, *self.tasks]


def text_of(activity: Activity) -> str:
    assert activity.waits_for is not None
    return f"{activity.actor.name}:{activity.waits_for.request}"


Cycle = frozenset[tuple[str, str]]
"""As steps from one wait to the one that keeps it."""


class World:
    """A program of several processes. Whatever is sent arrives later, in any order.

    Args:
        fan_out: How many actors one call may go to.
    """

    def __init__(self, seed: int, processes: int = 3, actors: int = 6, fan_out: int = 3) -> None:
        self.random = random.Random(seed)
        self.fan_out = fan_out
        self.clock = 0.0
        self.requests = 0
        self.processes = {f"p{number}": Chaser() for number in range(processes)}
        self.actors = {
            f"a{number}": Actor(f"a{number}", f"p{number % processes}") for number in range(actors)
        }
        self.silent: dict[CallId, set[str]] = {}
        self.in_flight: list[tuple[str, object]] = []
        self.reports = 0
        self.broken: set[Cycle] = set()  # that another report has broken
        self.busy = True  # whether activities still start calls

    # the program

    def step(self) -> None:
        self.clock += 1.0
        action = self.random.choices((self.deliver, self.act, self.sweep), (4, 4, 1))[0]
        action()

    def act(self) -> None:
        actor = self.random.choice(list(self.actors.values()))
        activity = self.random.choice(actor.activities)
        if activity.explicit and self.random.random() < 0.2:
            self.answer_by_port(activity)
        if activity.waits_for is not None:
            if not self.silent[activity.waits_for] or (
                activity.noted is None and self.random.random() < 0.2
            ):
                activity.waits_for = activity.noted = None  # answered, or out of time
            return
        if activity.serving and activity.call is None:
            self.take(actor)
        elif self.busy and self.random.random() < 0.6:
            self.start_wait(activity)
        else:
            self.answer(activity)

    def take(self, actor: Actor) -> None:
        if not actor.inbox:
            if self.busy and self.random.random() < 0.2:  # the client calls
                actor.serve.call = self.new_call(actor.process), ""
            return
        handler = actor.serve
        if self.random.random() < 0.3:
            handler = Activity(actor, serving=False)
            actor.tasks.append(handler)
        handler.call = actor.inbox.popleft(), actor.name
        handler.explicit = self.random.random() < 0.1

    def new_call(self, process: str) -> CallId:
        self.requests += 1
        call = CallId(process, self.requests)
        self.silent[call] = set()
        return call

    def start_wait(self, activity: Activity) -> None:
        call = self.new_call(activity.actor.process)
        targets = self.random.sample(
            sorted(self.actors), self.random.choice((1, 1, *range(1, self.fan_out + 1)))
        )
        self.silent[call] = set(targets)
        self.in_flight += [("call", (call, target)) for target in targets]
        activity.waits_for = call
        activity.noted = WaitId(self.clock, call) if self.random.random() < 0.8 else None

    def answer_by_port(self, activity: Activity) -> None:
        """Somebody else answers, whatever its handler does."""
        assert activity.call is not None
        call, name = activity.call
        if name:
            self.in_flight.append(("reply", (call, name)))
            activity.call = call, ""

    def answer(self, activity: Activity) -> None:
        assert activity.call is not None
        call, name = activity.call
        if name:
            self.in_flight.append(("reply", (call, name)))
        activity.call, activity.explicit = None, False
        if not activity.serving:
            activity.actor.tasks.remove(activity)

    def deliver(self) -> None:
        if not self.in_flight:
            return
        kind, content = self.in_flight.pop(self.random.randrange(len(self.in_flight)))
        if isinstance(content, Probe):
            self.receive(content)
            return
        assert isinstance(content, tuple)
        call, name = content
        if kind == "call":
            self.actors[name].inbox.append(call)
        else:
            self.silent[call].discard(name)

    # the detection, wired as the runtime wires it

    def sweep(self, name: str | None = None) -> None:
        process = name or self.random.choice(list(self.processes))
        chaser = self.processes[process]
        waits = {
            activity.noted: activity
            for actor in self.actors.values()
            if actor.process == process
            for activity in actor.activities
            if activity.noted is not None and self.silent[activity.noted.call]
        }
        for wait_id, round_ in chaser.sweep(waits):
            self.send(chaser.ask(self.describe(waits[wait_id]), round_))

    def receive(self, probe: Probe) -> None:
        actor = next(each for each in self.actors.values() if int(each.name[1:]) == probe.actor)
        activity = self.keeper(actor, probe.call)
        if activity is None:
            return
        wait = self.describe(activity)
        if wait.id == probe.initiator:
            self.reported(activity, probe)
        else:
            self.send(self.processes[probe.process].pass_on(probe, wait))

    def keeper(self, actor: Actor, call: CallId) -> Activity | None:
        handled = {
            number: None if activity.explicit or activity.call is None else activity.call[0]
            for number, activity in enumerate(actor.activities)
        }
        waiting = [
            number
            for number, activity in enumerate(actor.activities)
            if activity.noted is not None and self.silent[activity.noted.call]
        ]
        found = keeper(call, actor.inbox, handled, waiting, serving=0)
        return actor.activities[found] if isinstance(found, int) else None

    def describe(self, activity: Activity) -> Wait:
        assert activity.noted is not None
        silent = sorted(self.silent[activity.noted.call])
        targets = tuple((self.actors[name].process, int(name[1:])) for name in silent)
        return Wait(activity.noted, targets, text_of(activity))

    def send(self, probes: list[Probe]) -> None:
        self.in_flight += [("probe", probe) for probe in probes]

    # the observer

    def reported(self, victim: Activity, probe: Probe) -> None:
        waits = self.waits_by_text()
        cycle = frozenset(zip(probe.chain, [*probe.chain[1:], probe.chain[0]], strict=True))
        real = self.cycles_through(victim)
        assert cycle in real | self.broken, f"not a cycle: {probe.chain}"
        assert cycle in real or self.fan_out > 1
        assert victim.noted == probe.initiator
        assert cycle not in real or all(
            victim.noted >= (waits[text].noted or victim.noted) for text in probe.chain
        )
        self.reports += 1
        self.broken |= real
        victim.waits_for = victim.noted = None

    def waits_by_text(self) -> dict[str, Activity]:
        waiting = [
            each
            for actor in self.actors.values()
            for each in actor.activities
            if each.waits_for is not None
        ]
        return {text_of(activity): activity for activity in waiting}

    def kept_by(self, activity: Activity) -> list[Activity]:
        """The waits without whose end that one cannot end, by the whole state of the program."""
        call = activity.waits_for
        if call is None or activity.noted is None:
            return []
        answered = [content for kind, content in self.in_flight if kind == "reply"]
        keepers = []
        for name in self.silent[call]:
            actor = self.actors[name]
            handler = next((each for each in actor.activities if each.call == (call, name)), None)
            if handler is None and call in actor.inbox:
                handler = actor.serve
            elif handler is None or handler.explicit:
                continue
            if (call, name) not in answered and handler.noted is not None:
                keepers.append(handler)
        return keepers

    def cycles_through(self, start: Activity) -> set[Cycle]:
        found: set[Cycle] = set()
        paths = [[start]]
        while paths:
            path = paths.pop()
            for step in self.kept_by(path[-1]):
                if step is start:
                    texts = [text_of(each) for each in path]
                    found.add(frozenset(zip(texts, [*texts[1:], texts[0]], strict=True)))
                elif step not in path:
                    paths.append([*path, step])
        return found

    # the end

    def finish(self) -> None:
        """Nothing new begins; everything that can go on does, and every process sweeps now and
        then.
        """
        self.busy = False
        for _ in range(200):
            for _ in range(60):
                self.clock += 1.0
                self.deliver()
                self.act()
            for name in self.processes:
                self.sweep(name)
            if not self.waits_by_text() and not any(actor.inbox for actor in self.actors.values()):
                return
        raise AssertionError(f"still waiting: {sorted(self.waits_by_text())}")


def run_program(seed: int, fan_out: int) -> World:
    world = World(seed, fan_out=fan_out)
    for _ in range(2500):
        world.step()
    world.finish()
    return world


@for_each("seed", range(30))
def test_every_report_is_a_cycle_at_that_moment_and_no_cycle_stays(seed: int) -> None:
    """The observer in `World` sees everything; `finish` ends when nobody waits any more."""
    run_program(seed, fan_out=1)


@for_each("seed", range(30))
def test_reports_of_calls_to_meshes_are_cycles_until_one_is_broken(
    seed: int,
) -> None:
    """Cycles may share a wait here: giving that up breaks the other one while its probe is under
    way.
    """
    run_program(seed, fan_out=3)


@pytest.mark.parametrize("fan_out", [1, 3])
def test_the_random_programs_do_deadlock(fan_out: int) -> None:
    """Otherwise the tests before this one would not test much."""
    assert sum(run_program(seed, fan_out).reports for seed in range(10)) > 100


@pytest.mark.parametrize("size", [1, 2, 3, 50])
def test_a_ring_is_reported_once_by_the_wait_that_closed_it_in_its_second_sweep(size: int) -> None:
    world = World(0, processes=size, actors=size)
    for number, actor in enumerate(world.actors.values()):
        call = world.new_call(actor.process)
        callee = world.actors[f"a{(number + 1) % size}"]
        world.silent[call] = {callee.name}
        callee.inbox.append(call)
        actor.serve.waits_for, actor.serve.noted = call, WaitId(float(number), call)
    for _ in range(2):
        for name in world.processes:
            world.sweep(name)
    while world.in_flight:
        world.deliver()
    assert world.reports == 1
    assert [each.serve.noted is None for each in world.actors.values()] == [False] * (size - 1) + [
        True
    ]
