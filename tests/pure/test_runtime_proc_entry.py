"""A proc of a host as its agent knows it: no process, no socket, no clock."""

from __future__ import annotations

import random
import signal
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from helpers.each import for_each
from monarch._core.hub.spawn_requests import SpawnRequest, Start
from monarch._core.processes import proc_entry
from monarch._core.processes.black_boxes import BlackBoxes
from monarch._core.processes.host_procs import HostProcs
from monarch._core.processes.proc_entry import (
    ASKED,
    BOUND,
    CANCELLED,
    ENDED,
    EXITED,
    HALTED,
    HALTING,
    STARTING,
    STOPPING,
    TABLE,
    UP,
    ProcEntry,
    SpawnedMesh,
)
from monarch._core.supervision import failure as causes
from monarch._core.supervision.failure import Failure
from monarch._core.supervision.tombstones import Tombstones
from monarch._core.wire.address import ActorAddress, ProcAddress

STATES = (ASKED, BOUND, STARTING, UP, CANCELLED, HALTING, STOPPING, EXITED, HALTED, ENDED)
NOT_IN = {  # event -> states in which it cannot happen
    # said once, before there is a process
    "bound": {BOUND, STARTING, HALTING, EXITED, HALTED, ENDED},
    "forked": {ASKED, STARTING, HALTING, EXITED, HALTED, ENDED},  # said once, after "bound"
    "failed": {STARTING, HALTING, EXITED, HALTED, ENDED},  # said instead of "forked"
    "ready": {UP, STOPPING},  # said once
    "exited": {ASKED, BOUND, CANCELLED, EXITED, HALTED, ENDED},  # said once, after "forked"
    "silent": {ASKED, BOUND, STARTING, UP, CANCELLED, HALTING, STOPPING},  # follows "linger"
    "overdue": {ASKED, BOUND, STARTING, UP, CANCELLED, EXITED},  # follows "hurry"
    # follows a stop, if that has not worked
    "given_up": {ASKED, BOUND, STARTING, UP, EXITED, ENDED},
    "stop": {ENDED},
    "kill": {ENDED},
    "abandoned": set(STATES) - {ENDED},
}
PAIR = {"gpus": 2}
OWNER = ProcAddress("host", "owner")
SIGKILLED = signal.SIGKILL.value


def entry(restarts: bool = False, previous: Failure | None = None) -> ProcEntry:
    request = SpawnRequest(
        "uid",
        "trainers",
        PAIR,
        2,
        (),
        ActorAddress(OWNER, 1),
        OWNER,
        [],
        "/",
        None,
        (),
        {},
        restarts=restarts,
    )
    return ProcEntry(
        ProcAddress("host", "uid.1"),
        SpawnedMesh(request, "machine"),
        1,
        3,
        now=10.0,
        previous=previous,
    )


def up(restarts: bool = False) -> ProcEntry:
    made = entry(restarts)
    made.happen("bound", 11)
    made.forked(42, 12)
    made.happen("ready", 13)
    return made


def test_a_proc_does_not_start_again_before_the_one_of_its_name_has_ended() -> None:
    """What the spawner says names a proc by its rank: of two, it would be told of the wrong one."""
    given_up = entry(restarts=True)
    mesh = given_up.mesh
    mesh.procs[1] = given_up
    request = SpawnRequest(
        mesh.uid,
        mesh.name,
        PAIR,
        2,
        (Start(1, None, {}),),
        ActorAddress(OWNER, 1),
        OWNER,
        [],
        "/",
        None,
        (),
        {},
    )
    procs, agent = procs_without_processes()
    procs.meshes[mesh.uid] = mesh
    answers: list[Exception | None] = []
    procs.start(request, answers.append)
    assert [str(error) for error in answers] == [
        "trainers[1] can't start again: the process before has not ended"
    ]
    assert mesh.procs[1] is given_up
    assert agent.sent == [], "the spawner hears nothing of it"


class _Agent:
    """What the procs of a host ask of the rest of its agent, without a process."""

    def __init__(self) -> None:
        # nobody is connected
        self.address, self.peers = OWNER.agent, {}  # type: ignore[var-annotated]
        self.later: list[Callable[[], object]] = []
        self.sent: list[Any] = []
        self.poller = self

    def call_later(self, seconds: float, function: Callable[[], object]) -> None:
        self.later.append(function)

    def call_soon(self, function: Callable[[], object]) -> None:
        function()

    def send(self, request: object) -> None:
        self.sent.append(request)

    def local(self, address: ProcAddress) -> ProcAddress:
        return address

    def settle(self, name: str) -> None: ...

    def tell(self, *what: object) -> None: ...

    def end(self, pid: int, done: Callable[[], None]) -> None:
        done()


def procs_without_processes() -> tuple[HostProcs, Any]:
    procs: Any = object.__new__(HostProcs)
    agent = procs._hub = procs._poller = procs._spawner = procs.resolver = procs._leftovers = (
        _Agent()
    )
    procs.meshes, procs._procs, procs._starting, procs._awaiting_end, procs._running = (
        {},
        {},
        {},
        {},
        {},
    )
    procs._past, procs._machine, procs.boxes = Tombstones(), "machine", BlackBoxes()
    return procs, agent


def test_a_mesh_is_forgotten_though_a_proc_of_it_was_given_up_before_it_was_forked() -> None:
    """As the spawner was busy with an import until nobody waited for its end any more."""
    procs, agent = procs_without_processes()
    request = SpawnRequest(
        "uid", "trainers", {"gpus": 2}, 2, (Start(0, None, {}), Start(1, None, {})), ActorAddress(OWNER, 1), OWNER, [], "/", None,
        (), {}, host="host",
    )  # fmt: skip
    answers: list[object] = []
    procs.start(request, answers.append)
    stopped: list[bool] = []
    procs.stop_meshes([procs.meshes["uid"]], "enough", 1.0, lambda: stopped.append(True))
    assert not stopped
    agent.later[-1]()  # the time to end is over
    assert stopped == [True]
    procs._bound("uid", [0, 1])
    for entry in list(procs._procs.values()):
        assert "uid" in procs.meshes
        procs._follow(entry, entry.forked(42, 12.0))
        procs._follow(entry, entry.exited(SIGKILLED, "", 13.0))
    assert (procs.meshes, procs._procs, procs._awaiting_end, procs._starting) == ({}, {}, {}, {})
    assert len(answers) == 1 and "trainers" in str(answers[0])


@pytest.mark.parametrize("late", [False, True])
def test_who_is_overdue_is_killed_unless_what_waits_to_be_read_says_it_is_up(late: bool) -> None:
    procs, agent = procs_without_processes()
    soon: list[Callable[[], object]] = []
    killed: list[ProcEntry] = []
    agent.call_soon = soon.append
    vars(procs)["_kill"] = killed.append
    proc = entry()
    proc.happen("bound", 11)
    proc.stop("enough", 12)
    assert "hurry" in proc.forked(42, 13)
    procs._hurry(proc)
    agent.later.pop()()  # its time is over, also if this agent stood still meanwhile
    if late:
        assert proc.happen("ready", 14) == ("report", "ask_to_end")
    while soon:
        soon.pop(0)()
    assert killed == ([] if late else [proc])


class World:
    """A spawner, a process, and an agent, that do at random what they can."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.entry = entry()
        self.stage = "asked"
        self.said = False
        self.given = Counter[str]()
        self.told = Counter[str]()
        self.asked_to_stop = 0
        self.was_up = False
        self.now = 11.0

    def steps(self) -> list[Callable[[], tuple[str, ...]]]:
        proc, now = self.entry, self.now
        can: list[Callable[[], tuple[str, ...]]] = []
        if self.stage == "asked":
            can += [lambda: self.moves("bound", proc.happen("bound", now))]
        if self.stage == "bound":
            can += [lambda: self.moves("child", ())]
        if self.stage == "child" or (self.stage in ("asked", "bound") and not self.said):
            can += [lambda: self.moves("failed", proc.failed("no memory", now))]
        if self.stage == "child":
            can += [lambda: self.moves("running", proc.forked(42, now))] * 2
        if self.stage == "running":
            can += [lambda: self.moves("exited", proc.exited(SIGKILLED, "", now))]
        # even before the agent reads the "bound" that was written before
        if not self.said and self.stage != "failed":
            can += [self.says_that_it_is_up]
        if self.told["linger"] > self.given["silent"]:
            can += [lambda: self.gives("silent")]
        if self.told["hurry"] > self.given["overdue"]:
            can += [lambda: self.gives("overdue")]
        if proc.end is None:
            can += [self.stops, lambda: proc.kill(causes.KILLED, "because", now)]
            if self.asked_to_stop > self.given["given_up"]:
                can += [lambda: self.gives("given_up")]
        elif not self.given["abandoned"]:
            can += [lambda: self.gives("abandoned")]
        return can

    def moves(self, stage: str, instructions: tuple[str, ...]) -> tuple[str, ...]:
        self.stage = stage
        return instructions

    def gives(self, event: str) -> tuple[str, ...]:
        self.given[event] += 1
        return self.entry.happen(event, self.now)

    def says_that_it_is_up(self) -> tuple[str, ...]:
        self.said = True
        return self.entry.happen("ready", self.now)

    def stops(self) -> tuple[str, ...]:
        self.asked_to_stop += 1
        return self.entry.stop("enough", self.now)

    def run(self) -> None:
        for _ in range(60):
            can = self.steps()
            if not can:
                return
            self.now += 1
            self.told.update(self.random.choice(can)())
            self.was_up |= self.entry.state in (UP, STOPPING)
        raise AssertionError(f"{self.entry} still goes on")


class Recorded(dict[tuple[str, str], tuple[str, tuple[str, ...]]]):
    def __init__(self) -> None:
        super().__init__(TABLE)
        self.visited: set[tuple[str, str]] = set()

    def __getitem__(self, key: tuple[str, str]) -> tuple[str, tuple[str, ...]]:
        self.visited.add(key)
        return super().__getitem__(key)


@for_each("state", STATES)
@for_each("event", NOT_IN)
def test_each_event_has_a_row_for_each_state_in_which_it_can_happen(state: str, event: str) -> None:
    assert ((state, event) in TABLE) == (state not in NOT_IN[event])


def test_the_table_knows_no_other_events_and_no_other_states() -> None:
    assert {event for _, event in TABLE} == set(NOT_IN)
    assert {state for state, _ in TABLE} | {after for after, _ in TABLE.values()} == set(STATES)


def test_in_any_order_of_events_each_proc_ends_once_and_all_are_told_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = Recorded()
    monkeypatch.setattr(proc_entry, "TABLE", table)
    for seed in range(4000):
        world = World(seed)
        world.run()
        told, end = world.told, world.entry.end
        assert end is not None and world.entry.state == ENDED, seed
        assert [told[each] for each in ("release", "announce", "clear")] == [1, 1, 1], seed
        assert told["report"] + told["refuse"] == 1, seed
        started = told["report"] == 1 or world.stage == "exited"
        assert told["tell_owner"] == (started and not world.asked_to_stop), seed
        assert end.is_stop <= bool(world.asked_to_stop), seed
        assert told["ask_to_end"] <= 1 and told["hurry"] <= 1, seed
    assert table.visited == set(TABLE), "each row is of use"


def test_what_is_killed_before_there_is_a_process_is_killed_once_there_is_one() -> None:
    proc = entry()
    proc.happen("bound", 11)
    assert "kill" not in proc.kill(causes.KILLED, "because", 12)
    assert "kill" in proc.forked(42, 13)


def test_what_is_stopped_before_there_is_a_process_is_asked_to_end_once_there_is() -> None:
    """The client may have used it: what the agent hears of it comes by other ways than the stop."""
    proc = entry()
    proc.happen("bound", 11)
    assert proc.stop("enough", 12) == ()
    assert proc.forked(42, 13) == ("hurry",)
    assert proc.happen("ready", 14) == ("report", "ask_to_end")
    assert proc.happen("overdue", 15) == ()


def test_what_is_stopped_before_it_is_up_is_asked_to_end_when_it_is_up() -> None:
    proc = entry()
    proc.happen("bound", 11)
    assert proc.stop("enough", 12) == ()
    assert proc.happen("ready", 13) == ("settle", "report", "ask_to_end")
    assert proc.forked(42, 14) == ()
    assert proc.happen("given_up", 15) == ("kill",)


def test_what_is_given_up_before_there_is_a_process_is_killed_once_there_is_one() -> None:
    proc = entry()
    proc.happen("bound", 11)
    proc.stop("enough", 12)
    assert proc.happen("given_up", 13) == ("end_waits",)
    assert "kill" in proc.forked(42, 14)


def test_who_ignores_a_stop_is_killed_though_the_spawner_says_its_pid_late() -> None:
    proc = entry()
    proc.happen("bound", 11)
    proc.happen("ready", 12)
    assert proc.stop("enough", 13) == ("ask_to_end",)
    proc.happen("given_up", 14)
    assert proc.forked(42, 15) == ("kill",)


@pytest.mark.parametrize(
    ("status", "cause", "reason"),
    [
        (SIGKILLED, causes.KILLED, "SIGKILL; the machine had run out of memory"),
        (signal.SIGSEGV.value, causes.KILLED, "SIGSEGV"),
        (3 << 8, causes.EXITED, "the process exited with non-zero code 3"),
    ],
)
def test_the_end_of_a_proc_says_how_its_process_ended(status: int, cause: str, reason: str) -> None:
    proc = up()
    proc.tail.extend(["last", "words"])
    suspicion = "the machine had run out of memory" if proc.unexplained_kill(status) else ""
    assert proc.exited(status, suspicion, 20.0) == (
        "release",
        "announce",
        "settle",
        "tell_owner",
        "clear",
    )
    end = proc.end
    assert end is not None
    assert (end.cause, end.proc, end.rank, end.pid, end.host) == (
        cause,
        "trainers[1]",
        1,
        42,
        "machine",
    )
    assert end.reason.endswith(reason)
    assert (end.output, end.incarnation, end.known) == (("last", "words"), 3, 20.0)


def test_a_proc_that_was_to_be_killed_says_so_but_only_if_that_is_what_ended_it() -> None:
    killed, fell = up(), up()
    for proc in (killed, fell):
        assert proc.kill(causes.FROZEN, "the process was frozen", 20) == ("kill",)
        proc.kill(causes.KILLED, "the process was killed: too late to matter", 21)
        assert not proc.unexplained_kill(SIGKILLED)
    killed.exited(SIGKILLED, "", 22)
    fell.exited(signal.SIGTERM.value, "", 22)
    assert killed.end is not None and (killed.end.cause, killed.end.reason) == (
        causes.FROZEN,
        "the process was frozen",
    )
    assert fell.end is not None and fell.end.cause == causes.KILLED and "SIGTERM" in fell.end.reason


def test_a_proc_whose_host_is_shut_down_under_its_owner_has_failed() -> None:
    proc = up()
    proc.take(causes.host_lost("host", "it was shut down"))
    assert proc.stop("enough", 20) == ("ask_to_end",)
    assert proc.stopped(20).cause == causes.HOST
    proc.exited(0, "", 21)
    assert (
        proc.end is not None
        and proc.end.cause == causes.HOST
        and "it was shut down" in proc.end.reason
    )


def test_a_proc_that_ends_before_it_is_up_was_never_started() -> None:
    proc = entry()
    proc.happen("bound", 11)
    proc.forked(42, 12)
    assert proc.exited(3 << 8, "", 13) == ("linger",)
    assert proc.end is None
    assert proc.happen("silent", 14) == (
        "refuse",
        "release",
        "announce",
        "settle",
        "tell_owner",
        "clear",
    )
    assert proc.end is not None and proc.end.cause == causes.UNSTARTED
    assert proc.why_unstarted().startswith(
        "error creating proc (host rank 0) trainers[1]: exit_code: 3, "
    )


@pytest.mark.parametrize("status", [SIGKILLED, 3 << 8])  # it may have ended by itself just then
def test_a_proc_that_was_killed_before_it_was_up_is_a_failure_to_its_owner(status: int) -> None:
    proc = entry()
    proc.happen("bound", 11)
    proc.forked(42, 12)
    assert proc.kill(causes.KILLED, "because", 13) == ("kill",)
    proc.exited(status, "", 14)
    assert {"refuse", "tell_owner"} < set(proc.happen("silent", 15))
    assert proc.end is not None and proc.end.cause in (causes.KILLED, causes.EXITED)


def test_a_proc_that_lets_no_peer_in_for_a_second_is_ended() -> None:
    proc = up()
    assert proc.unreached(20.0) == ()
    proc.reached()
    assert proc.unreached(20.9) == () == proc.unreached(21.5)
    assert proc.unreached(22.0) == ("kill",)
    proc.exited(SIGKILLED, "", 23)
    assert proc.end is not None and proc.end.cause == causes.DEAF


# what those are told who ask what became of it


def test_who_looks_for_a_proc_is_told_as_soon_as_it_listens() -> None:
    proc = entry()
    assert proc.outcome(0, 10) == (False, None)
    assert "settle" in proc.happen("bound", 11)
    assert proc.outcome(0, 11) == (True, None)


def test_who_has_lost_the_connection_to_a_proc_that_runs_is_told_when_it_ends() -> None:
    proc = up()
    assert proc.outcome(15, 20) == (False, None)
    assert "settle" in proc.exited(SIGKILLED, "", 21)
    assert proc.outcome(15, 21, waited=True) == (True, proc.end)


def test_a_question_about_a_proc_waits_until_its_restart_is_given_up() -> None:
    proc = up(restarts=True)
    proc.exited(SIGKILLED, "", 20)
    assert proc.outcome(0, 21)[0] is False
    assert proc.outcome(0, 21, waited=True)[0] is True, "it was there, and then it ended"
    assert proc.outcome(15, 21) == (
        True,
        proc.end,
    ), "as its connection was to the one that has ended"
    assert proc.happen("abandoned", 22) == ("settle",)
    assert proc.end is not None and not proc.end.restarts
    assert proc.outcome(0, 22) == (True, proc.end)


@pytest.mark.parametrize("restarts", [False, True])
def test_who_asks_for_a_proc_that_is_being_stopped_is_told_unless_it_starts_again(
    restarts: bool,
) -> None:
    proc = up(restarts)
    proc.stop("enough", 20)
    lost = proc.outcome(15, 21)
    assert lost == (True, proc.stopped(21)) and proc.stopped(21).is_stop
    assert proc.outcome(0, 21)[0] is not restarts
    proc.exited(0, "", 22)
    assert proc.outcome(0, 23, waited=True)[0] is not restarts


def test_a_lost_connection_to_an_earlier_incarnation_is_explained() -> None:
    before = Failure(causes.EXITED, "the process exited with code 3")
    proc = entry(restarts=True, previous=before)
    assert proc.outcome(5, 11) == (True, before)
    assert proc.outcome(0, 11) == (False, None)
