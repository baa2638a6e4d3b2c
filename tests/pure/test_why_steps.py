"""Which ranks are called stragglers, on made-up times of steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random

import pytest

from monarch._core.plane import ProcAddress
from monarch.stacks import Frame, ProcStacks, Stacks, ThreadStack
from monarch.stacks.model import CLIENT, Mailbox
from monarch.why import FINE, SLOW
from monarch.why.judge import judge
from monarch.why.pace import Pace
from monarch.why.steps import Straggler, stragglers

UID = 7


def found(
    times: Sequence[Sequence[float]], endpoint: str = "", ago: float = 0.0
) -> tuple[Straggler, ...]:
    """Of ranks that have taken so many seconds for each of their last steps."""
    return looked_at(times, endpoint, ago)[0]


def looked_at(
    times: Sequence[Sequence[float]], endpoint: str = "", ago: float = 0.0
) -> tuple[tuple[Straggler, ...], str]:
    procs = [_proc(rank, len(times)) for rank in range(len(times))]
    paces = {
        _address(rank): [
            Pace(
                UID,
                endpoint,
                tuple(int(1e6 * each) for each in took),
                int(1e6 * ago),
                int(1e6 * max(took)),
            )
        ]
        for rank, took in enumerate(times)
    }
    return stragglers(procs, paces)


def _address(rank: int) -> ProcAddress:
    return ProcAddress("h", f"p.{rank}")


def _proc(rank: int, size: int) -> ProcStacks:
    return ProcStacks("trainers", rank, size, 1000 + rank, "h1", "itself", "", (), _address(rank))


def test_a_rank_that_takes_longer_at_each_step_is_one_and_the_text_says_by_how_much() -> None:
    [late] = found([[1.0] * 12] * 3 + [[1.4] * 12] + [[1.0] * 12] * 4)
    assert (
        str(late)
        == "trainers[3] (host h1, process 1003) is slower than the others by 40 %: 1.4 s a step"
        " where the median is 1.0 s, in the last 12 steps, for 17 s"
    )
    procs = Stacks([_proc(rank, 8) for rank in range(8)], {})
    verdict = judge(procs, procs, 1.0, [late])
    assert (verdict.status, verdict.exit_status) == (
        SLOW,
        3,
    ) and verdict.sentence == f"Slow: {late}."
    assert verdict.to_json()["stragglers"] == [late._asdict()]


def test_calls_count_where_no_steps_are_marked_and_only_there() -> None:
    [late] = found([[0.05] * 20, [0.05] * 20, [0.2] * 20], "forward")
    assert (
        "0.20 s a call of forward where the median is 50 ms, in the last 20 calls, for 4 s"
        in str(late)
    )
    procs = [_proc(rank, 3) for rank in range(3)]
    equal = {_address(rank): [Pace(UID, "", (50_000,) * 20, 0, 50_000)] for rank in range(3)}
    equal[_address(2)] = [*equal[_address(2)], Pace(UID, "forward", (200_000,) * 20, 0, 200_000)]
    assert stragglers(procs, equal) == ((), "")


@pytest.mark.parametrize(
    ("times", "why"),
    [
        ([[1.0] * 12, [1.4] * 12], "of two"),
        ([[1.0] * 12] * 3 + [[1.15] * 12], "by a little"),
        ([[1.0] * 11] * 3 + [[2.0] * 11], "in few steps"),
        ([[1.0] * 12] * 3 + [[1.0] * 8 + [5.0] * 4], "now and then"),
        ([[0.001] * 20] * 3 + [[0.002] * 20], "in very short steps"),
        ([[1.0] * 12] * 2 + [[1.4] * 12] * 2, "as half of the others"),
        ([[1.0, 2.0] * 8] * 4 + [[1.5, 2.0] * 8], "as all vary as much"),
    ],
)
def test_a_rank_is_none_that_is_slower(times: list[list[float]], why: str) -> None:
    assert found(times) == (), why


def test_a_program_that_does_not_go_on_has_none() -> None:
    assert looked_at([[1.0] * 12] * 3 + [[1.4] * 12], ago=20) == ((), "")


UNTOLD = "slow ranks of trainers can't be told from marked steps: "


@pytest.mark.parametrize(
    ("times", "why"),
    [
        ([[1.0] * 12] * 4, ""),
        ([[1.0] * 12] * 2, ""),
        ([[1.0] * 3], ""),
        ([[1.0] * 12] * 3 + [[1.15] * 12], ""),
        ([[1.0] * 12, [1.4] * 12], "one half of the 2 ranks is slower than the other"),
        ([[1.0] * 12] * 2 + [[1.4] * 12] * 2, "one half of the 4 ranks is slower than the other"),
        ([[1.0] * 11] * 3 + [[2.0] * 11], "of all ranks fewer than 12 are known"),
        ([[1.0] * 12] * 3 + [[2.0] * 5], "of 1 of 4 ranks fewer than 12 are known"),
        ([[0.001] * 20] * 3 + [[0.002] * 20], "they are shorter than 10 ms"),
        ([[1.0, 2.0] * 8] * 4 + [[1.2, 2.8] * 8], "their times vary too much"),
    ],
)
def test_a_verdict_says_why_marked_steps_can_not_tell_slow_ranks(
    times: list[list[float]], why: str
) -> None:
    late, unclear = looked_at(times)
    assert (late, unclear) == ((), UNTOLD + why if why else "")
    procs = Stacks([_proc(rank, len(times)) for rank in range(len(times))], {})
    verdict = judge(procs, procs, 1.0, late, (), unclear)
    assert verdict.status == FINE
    assert verdict.sentence.endswith(f"; {UNTOLD}{why}." if why else " for a message."), verdict


def test_that_few_ranks_mark_steps_or_the_program_alone_is_said() -> None:
    pace = Pace(UID, "", (1_000_000,) * 20, 0, 1_000_000)
    has_actor = (Mailbox("trainer", UID, 0, ()),)
    procs = [_proc(rank, 4)._replace(mailboxes=has_actor) for rank in range(4)]

    def why(paces: Mapping[ProcAddress, Sequence[Pace]]) -> str:
        return stragglers([*procs, client], paces)[1]

    client = _proc(0, 1)._replace(mesh=CLIENT, address=ProcAddress("h", "client"))
    assert why({_address(0): [pace]}) == f"{UNTOLD}1 of 4 ranks marks them"
    assert why({_address(rank): [pace] for rank in range(3)}) == f"{UNTOLD}3 of 4 ranks mark them"
    assert why({_address(rank): [pace] for rank in range(4)}) == ""
    alone = {ProcAddress("h", "client"): [pace]}
    by_client = "slow ranks can't be told from marked steps: the program itself marks them"
    assert why(alone) == f"{by_client}, for all ranks"
    others = {_address(rank): [pace._replace(actor_id=8)] for rank in range(4)}
    assert why({**alone, **others}) == ""


def test_that_ranks_share_the_time_of_a_step_is_said_where_one_waits_in_a_collective() -> None:
    all_reduce = Frame("all_reduce", "/x/torch/distributed/distributed_c10d.py", 7)
    step = Frame("step", "/me/train.py", 5)
    waits, runs = (
        _proc(rank, 2)._replace(
            threads=(ThreadStack("a", frames, "trainer", "step", "", UID, f"c{rank}", ran=rank),)
        )
        for rank, frames in enumerate([(all_reduce, step), (step,)])
    )
    first = Stacks([waits._replace(threads=()), runs], {})
    verdict = judge(first, Stacks([waits._replace(stepped=0.5), runs], {}), 1.0)
    assert verdict.sentence == (
        f"Fine: 2 ranks work; {UNTOLD}within one, all wait for the last in all_reduce."
    )
    assert judge(first, Stacks([waits, runs], {}), 1.0).sentence == "Fine: 2 ranks work."


@pytest.mark.parametrize("ranks", [3, 8, 64, 500])
def test_equal_ranks_give_no_alarm_however_their_steps_vary(ranks: int) -> None:
    random = Random(ranks)
    kinds: list[Callable[[], float]] = [
        lambda: random.lognormvariate(-2, 0.1),
        lambda: random.lognormvariate(-2, 1.0),
        lambda: 0.1 + random.expovariate(20),
        lambda: 0.1 if random.random() < 0.9 else 3.0,
        lambda: random.choice((0.1, 0.2)),
    ]
    programs = max(10, 2_000 // ranks)
    alarms = sum(
        bool(found([[kind() for _ in range(random.choice((12, 20, 32)))] for _ in range(ranks)]))
        for kind in kinds
        for _ in range(programs)
    )
    assert alarms <= 0.01 * len(kinds) * programs


def test_one_late_rank_is_found_among_many_that_vary() -> None:
    random = Random(1)
    times = [[random.lognormvariate(0, 0.15) for _ in range(32)] for _ in range(1000)]
    times[417] = [1.6 * each for each in times[417]]
    assert [late.rank for late in found(times)] == [417]
