"""Which ranks start again, in which order, how often: decided without a process or a clock."""

from __future__ import annotations

import pickle
import random

import pytest

from helpers.each import for_each
from monarch._core.supervision.failure import EXCEPTION, HOST, KILLED, UNSTARTED, Failure, host_lost
from monarch._core.supervision.ownership import (
    Abandon,
    AskSupervisor,
    Instruction,
    OwnedMesh,
    Ownership,
    Restart,
)
from monarch._core.supervision.restart import (
    AllForOne,
    OneForOne,
    RestartGroup,
    RestartPlan,
    RestForOne,
    Strategy,
)

Owner = Ownership[OwnedMesh]


def family(strategy: Strategy) -> tuple[Owner, RestartGroup]:
    """Two procs, then trainers on both, then a logger on the second."""
    owner: Owner = Ownership()
    group = RestartGroup(strategy)
    owner.created(OwnedMesh("procs", "procs", ["p0", "p1"], True, str, group))
    owner.created(OwnedMesh(1, "trainers", ["p0", "p1"], False, str, group))
    owner.created(OwnedMesh(2, "loggers", ["p1"], False, str, group))
    return owner, group


def raised(uid: int, rank: int, incarnation: int = 0) -> Failure:
    return Failure(EXCEPTION, "it raised", mesh_uid=uid, rank=rank, incarnation=incarnation)


def killed(incarnation: int = 0) -> Failure:
    return Failure(KILLED, "killed", pid=100 + incarnation, incarnation=incarnation)


def planned(instructions: list[Instruction]) -> dict[int | str, list[int]]:
    (only,) = instructions
    assert isinstance(only, Restart)
    return only.plan.ranks


@pytest.mark.parametrize(
    ("strategy", "ranks"),
    [
        (OneForOne(), {1: [0]}),
        (AllForOne(), {"procs": [0, 1], 1: [0, 1], 2: [0]}),
        (RestForOne(), {1: [0], 2: [0]}),
    ],
)
def test_after_a_failed_actor_a_strategy_starts_what_it_says(
    strategy: Strategy, ranks: dict[int | str, list[int]]
) -> None:
    owner, _ = family(strategy)
    assert planned(owner.rank_failed(raised(1, 0), 0)) == ranks


@pytest.mark.parametrize(
    ("strategy", "ranks"),
    [
        (OneForOne(), {"procs": [1], 1: [1], 2: [0]}),
        (AllForOne(), {"procs": [0, 1], 1: [0, 1], 2: [0]}),
        (RestForOne(), {"procs": [1], 1: [0, 1], 2: [0]}),
    ],
)
def test_after_a_dead_process_its_actors_start_again_too(
    strategy: Strategy, ranks: dict[int | str, list[int]]
) -> None:
    owner, _ = family(strategy)
    instructions = owner.process_ended("p1", killed(), 0)
    assert planned(instructions) == ranks
    assert list(planned(instructions)) == [uid for uid in ("procs", 1, 2) if uid in ranks], (
        "in the order of creation"
    )


def test_a_dead_process_without_actors_starts_again() -> None:
    owner, _ = family(OneForOne())
    owner.stopped(1)
    assert planned(owner.process_ended("p0", killed(), 0)) == {"procs": [0]}


def test_what_started_again_may_fail_again_and_late_news_of_its_past_is_none() -> None:
    owner, group = family(OneForOne())
    (restart,) = owner.process_ended("p1", killed(), 0)
    assert isinstance(restart, Restart)
    assert owner.process_ended("p1", killed(), 0) == []
    assert owner.rank_failed(raised(1, 1), 0) == []
    assert owner.restarted(group, restart.plan, 0) == []
    assert owner.rank_failed(raised(1, 1), 0) == []
    assert planned(owner.rank_failed(raised(1, 1, incarnation=1), 1)) == {1: [1]}


def test_failures_during_a_restart_wait_for_its_end_and_count_as_one() -> None:
    owner, group = family(OneForOne(max_restarts=2))
    (first,) = owner.rank_failed(raised(1, 0), 0)
    assert isinstance(first, Restart)
    assert owner.rank_failed(raised(1, 1), 0) == []
    assert owner.rank_failed(raised(2, 0), 0) == []
    (second,) = owner.restarted(group, first.plan, 0)
    assert isinstance(second, Restart)
    assert second.plan.ranks == {1: [1], 2: [0]}
    assert second.plan.attempt == 2
    assert len(second.plan.failures) == 2


def test_one_failure_too_many_goes_to_the_owner_and_says_so() -> None:
    owner, group = family(OneForOne(max_restarts=1, within=60))
    (first,) = owner.process_ended("p1", killed(), 100)
    assert isinstance(first, Restart)
    owner.restarted(group, first.plan, 100)
    abandon, *judged = owner.process_ended("p1", killed(1), 159.9)
    assert isinstance(abandon, Abandon)
    assert abandon.ranks == {"procs": [1], 1: [1], 2: [0]}
    assert [j.failure.mesh_uid for j in judged if isinstance(j, AskSupervisor)] == [1, 2]
    for judge in judged:
        assert isinstance(judge, AskSupervisor)
        assert "1 restarts within 60s" in judge.failure.reason
        assert not judge.failure.restarts


def test_old_restarts_are_forgiven() -> None:
    owner, group = family(OneForOne(max_restarts=1, within=60))
    for number in range(5):
        (restart,) = owner.rank_failed(raised(1, 0, number), 60.0 * number)
        assert isinstance(restart, Restart)
        assert restart.plan.attempt == 1
        owner.restarted(group, restart.plan, 60.0 * number)


def test_no_restarts_at_all_is_a_limit_too() -> None:
    owner, _ = family(OneForOne(max_restarts=0))
    abandon, judge = owner.rank_failed(raised(1, 0), 0)
    assert isinstance(abandon, Abandon)
    assert isinstance(judge, AskSupervisor)


def test_a_restart_that_could_not_be_done_counts_as_a_failure() -> None:
    owner, group = family(OneForOne(max_restarts=2))
    (plan,) = owner.rank_failed(raised(1, 0), 0)
    for attempt in (2, 3):
        assert isinstance(plan, Restart)
        instructions = owner.restarted(group, plan.plan, 0, error="OSError: no memory")
        if attempt == 2:
            (plan,) = instructions
        else:
            abandon, judge = instructions
            assert isinstance(abandon, Abandon)
            assert isinstance(judge, AskSupervisor)
            assert judge.failure.cause == UNSTARTED
            assert "no memory" in judge.failure.reason


def test_what_was_stopped_does_not_start_again() -> None:
    owner, group = family(AllForOne())
    owner.stopped(2)
    (restart,) = owner.rank_failed(raised(1, 0), 0)
    assert isinstance(restart, Restart)
    assert 2 not in restart.plan.ranks
    owner.rank_failed(raised(1, 1, 1), 0)
    owner.stopped(1)
    owner.stopped("procs")
    assert owner.restarted(group, restart.plan, 0) == []


def test_what_ran_on_stopped_procs_may_be_stopped_as_well() -> None:
    owner, group = family(AllForOne())
    for uid in ("procs", 1, 2):
        owner.stopped(uid)
    assert (owner.meshes(), group.members) == ([], {})


def test_an_owner_that_ends_restarts_nothing() -> None:
    owner, _ = family(AllForOne())
    owner.ended()
    assert owner.rank_failed(raised(1, 0), 0) == []


def test_an_actor_that_stopped_itself_stays_stopped() -> None:
    owner, _ = family(OneForOne())
    assert owner.rank_failed(raised(1, 0)._replace(cause="stopped"), 0) == []


@pytest.mark.parametrize(
    "arguments", [(-1, 60), (1.5, 60), ("3", 60), (3, 0), (3, -1), (3, None), (3, float("nan"))]
)
def test_a_strategy_refuses_senseless_limits(arguments: tuple[int, float]) -> None:
    with pytest.raises(ValueError, match="max_restarts|within"):
        OneForOne(*arguments)


def test_a_strategy_shows_its_limits_and_travels() -> None:
    again = pickle.loads(pickle.dumps(AllForOne(max_restarts=5, within=600)))
    assert repr(again) == "AllForOne(max_restarts=5, within=600)"


@for_each("seed", range(200))
def test_at_random_restarts_stay_within_the_limit_and_nothing_is_lost(seed: int) -> None:
    chance = random.Random(seed)
    strategy = chance.choice([OneForOne, AllForOne, RestForOne])(
        chance.randint(0, 4), chance.choice([1.0, 10.0])
    )
    owner, group = family(strategy)
    now, running, started = 0.0, None, []
    for _ in range(60):
        now += chance.random()
        if running is not None and chance.random() < 0.4:
            instructions = owner.restarted(
                group, running, now, chance.choice(["", "", "", "no memory"])
            )
            running = None
        elif chance.random() < 0.5:
            uid, rank = chance.choice([(1, 0), (1, 1), (2, 0)])
            instructions = owner.rank_failed(raised(uid, rank, owner[uid].incarnation(rank)), now)
        else:
            rank = chance.randint(0, 1)
            instructions = owner.process_ended(
                f"p{rank}", killed(owner["procs"].incarnation(rank)), now
            )
        for instruction in instructions:
            if isinstance(instruction, Restart):
                assert running is None, "one plan at a time"
                running = instruction.plan
                started.append(now)
            else:
                assert isinstance(instruction, (Abandon, AskSupervisor))
        recent = [time for time in started if now - time < strategy.within]
        assert len(recent) <= strategy.max_restarts
        if running is not None:
            processes = {owner["procs"].processes[rank] for rank in running.ranks.get("procs", [])}
            for uid in (1, 2):
                on_them = [
                    rank
                    for rank, process in enumerate(owner[uid].processes)
                    if process in processes
                ]
                assert set(on_them) <= set(running.ranks.get(uid, [])), (
                    "a process takes its actors along"
                )
        assert group.busy == (running is not None)


@pytest.mark.parametrize("strategy", [OneForOne(), AllForOne(), RestForOne()])
def test_what_ran_on_a_lost_host_is_judged_however_often_it_was_started_again(
    strategy: Strategy,
) -> None:
    owner, group = family(strategy)
    (restart,) = owner.process_ended("p1", killed(), 0)
    assert isinstance(restart, Restart)
    assert owner.restarted(group, restart.plan, 1) == []
    lost = owner.process_ended("p1", host_lost("agent", pid=7), 2)
    assert [(i.failure.mesh_uid, i.failure.rank, i.failure.cause) for i in lost if isinstance(i, AskSupervisor)] == [
        (1, 1, HOST), (2, 0, HOST),
    ]  # fmt: skip
    assert owner.process_ended("p1", host_lost("agent", pid=7), 3) == []


def test_a_plan_goes_around_what_ran_on_a_lost_host() -> None:
    owner, _ = family(AllForOne())
    owner.process_ended("p1", host_lost("agent"), 0)
    assert planned(owner.process_ended("p0", killed(), 1)) == {"procs": [0], 1: [0]}


def test_a_plan_that_a_lost_host_stops_is_not_tried_again() -> None:
    owner, group = family(OneForOne())
    (restart,) = owner.rank_failed(raised(1, 1), 0)
    assert isinstance(restart, Restart)
    assert owner.process_ended("p1", killed(), 1) == []  # waits for the plan in progress
    judged = owner.process_ended("p1", host_lost("agent"), 2)
    assert [
        (i.failure.mesh_uid, i.failure.rank) for i in judged if isinstance(i, AskSupervisor)
    ] == [(1, 1), (2, 0)]
    assert owner.restarted(group, restart.plan, 3, "its host is gone") == []
    assert not group.busy


def test_a_plan_does_not_start_actors_on_a_process_that_failed_meanwhile() -> None:
    owner, group = family(OneForOne())
    (restart,) = owner.rank_failed(raised(1, 1), 0)
    assert isinstance(restart, Restart)
    assert owner.startable(1, [0, 1]) == [0, 1]
    assert owner.process_ended("p1", killed(), 1) == []
    assert owner.startable(1, [0, 1]) == [0]
    assert planned(owner.restarted(group, restart.plan, 2)) == {"procs": [1], 1: [1], 2: [0]}
    assert owner.startable("procs", [1]) == [1]
    owner.stopped(1)
    assert owner.startable(1, [1]) == []


def test_failed_restarts_are_told_once_per_rank_by_its_actors_if_any() -> None:
    owner: Owner = Ownership()
    group = RestartGroup(AllForOne(max_restarts=1))
    owner.created(OwnedMesh("procs", "procs", ["p0", "p1"], True, str, group))
    owner.created(OwnedMesh(1, "trainers", ["p1"], False, str, group))
    (restart,) = owner.process_ended("p0", killed(), 0)
    assert isinstance(restart, Restart)
    given_up = owner.restarted(group, restart.plan, 1, "the bootstrap function raised")
    assert [
        (i.failure.mesh_uid, i.failure.rank) for i in given_up if isinstance(i, AskSupervisor)
    ] == [
        ("procs", 0),
        (1, 0),
    ]


def test_a_strategy_stands_for_one_group_while_anything_of_it_is_owned() -> None:
    strategy = AllForOne()
    owner, group = family(strategy)
    assert owner.group(strategy) is group
    assert owner.group(AllForOne()) is not group
    for uid in (2, 1, "procs"):
        owner.stopped(uid)
    assert owner.group(strategy) is not group


def test_what_was_spawned_during_a_restart_of_its_processes_starts_again_after_it() -> None:
    owner, group = family(OneForOne(max_restarts=1))
    (restart,) = owner.process_ended("p1", killed(), 0)
    assert isinstance(restart, Restart)
    owner.created(OwnedMesh(3, "late", ["p0", "p1"], False, str, group))
    owner.created(OwnedMesh(4, "stopped", ["p1"], False, str, group))
    owner.stopped(4)
    (again,) = owner.restarted(group, restart.plan, 1)
    assert isinstance(again, Restart)
    assert again.plan == RestartPlan({3: [1]}, failures=(), attempt=1), "it counts for nothing"
    assert owner.restarted(group, again.plan, 2) == []
    assert [owner[3].incarnation(rank) for rank in (0, 1)] == [0, 1]


def test_what_is_spawned_looks_at_no_other_mesh_while_nothing_restarts() -> None:
    owner, group = family(OneForOne())
    for mesh in owner.meshes():
        del mesh.processes
    owner.created(OwnedMesh(3, "late", ["p0"], False, str, group))
    assert 3 in group.members


def test_what_was_spawned_once_its_new_process_is_to_start_is_left_alone() -> None:
    owner, group = family(OneForOne())
    for incarnation in (0, 1):
        (restart,) = owner.process_ended("p1", killed(incarnation), incarnation)
        assert isinstance(restart, Restart)
        owner.created(OwnedMesh(f"early {incarnation}", "early", ["p1"], False, str, group))
        group.replaced([("procs", 1)])
        owner.created(OwnedMesh(f"late {incarnation}", "late", ["p1"], False, str, group))
        (again,) = owner.restarted(group, restart.plan, 1)
        assert isinstance(again, Restart)
        assert again.plan.ranks == {f"early {incarnation}": [0]}
        assert owner.restarted(group, again.plan, 2) == []


def test_what_is_replaced_bit_by_bit_is_replaced() -> None:
    owner, group = family(AllForOne())
    (restart,) = owner.process_ended("p1", killed(), 0)
    assert isinstance(restart, Restart)
    group.replaced([("procs", 0)])
    group.replaced([("procs", 1)])
    owner.created(OwnedMesh(3, "late", ["p0", "p1"], False, str, group))
    assert owner.restarted(group, restart.plan, 1) == []


def test_an_instruction_names_the_group_and_the_mesh_that_it_is_about() -> None:
    owner, group = family(OneForOne(max_restarts=1))
    free = OwnedMesh(9, "free", ["p1"], False, str)
    owner.created(free)
    judge, restart = owner.process_ended("p1", killed(), 0)
    assert isinstance(judge, AskSupervisor) and isinstance(restart, Restart)
    assert (judge.mesh, judge.failure.restarts, restart.group) == (free, False, group)
    _, *judged = owner.restarted(group, restart.plan, 1, "no memory")
    assert [each.mesh for each in judged if isinstance(each, AskSupervisor)] == [owner[1], owner[2]]
    lost = owner.process_ended("p0", host_lost("agent"), 2)
    assert [each.mesh for each in lost if isinstance(each, AskSupervisor)] == [owner[1]]
    assert [owner[uid].has_failed(0) for uid in ("procs", 1)] == [True, True]


def test_a_failure_says_which_incarnation_has_ended_and_whether_another_follows() -> None:
    owner, group = family(OneForOne())
    for incarnation in (0, 1):
        (restart,) = owner.process_ended("p1", killed(incarnation), incarnation)
        assert isinstance(restart, Restart)
        said = [(failure.incarnation, failure.restarts) for failure in restart.plan.failures]
        assert said == [(incarnation, True)] * 2
        owner.restarted(group, restart.plan, incarnation)
    lost = owner.process_ended("p1", host_lost("agent"), 2)
    assert [
        (each.failure.incarnation, each.failure.restarts)
        for each in lost
        if isinstance(each, AskSupervisor)
    ] == [(2, False)] * 2


def test_a_process_that_could_not_be_started_is_started_once_more_in_its_group() -> None:
    owner: Owner = Ownership()
    group = RestartGroup(OneForOne())
    owner.created(OwnedMesh("procs", "procs", ["p0"], True, str, group))
    (restart,) = owner.process_ended("p0", killed(), 0)
    assert isinstance(restart, Restart)
    (again,) = owner.restarted(group, restart.plan, 1, "no memory")
    assert isinstance(again, Restart)
    assert (again.group, again.plan.ranks) == (group, {"procs": [0]})
    assert [(failure.cause, failure.restarts) for failure in again.plan.failures] == [
        (UNSTARTED, True)
    ]


def test_each_group_with_a_rank_on_a_dead_process_starts_its_own_again() -> None:
    owner: Owner = Ownership()
    for uid in (1, 2):
        group = RestartGroup(OneForOne())
        owner.created(OwnedMesh(uid, "actors", ["p0"], False, str, group))
    instructions = owner.process_ended("p0", killed(), 0)
    assert [planned([each]) for each in instructions] == [{1: [0]}, {2: [0]}]


def test_a_strategy_has_limits_of_its_own_and_the_group_that_it_is_given() -> None:
    strategy, owner = OneForOne(), Owner()
    assert repr(strategy) == "OneForOne(max_restarts=3, within=60)"
    assert owner.group(strategy).strategy is strategy
