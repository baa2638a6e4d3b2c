"""The verdict on made-up looks at a program; no process.

What real ones give is in `faults/test_why.py`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

import pytest

from monarch._core.plane import ProcAddress
from monarch._words import HOST_NAMES
from monarch.stacks import Frame, ProcStacks, Stacks, ThreadStack
from monarch.stacks.model import CLIENT, Kernel, Mailbox, Wait
from monarch.why import DEGRADED, FINE, SLOW, STUCK, Verdict
from monarch.why.graph import chain, circles, those_who_wait
from monarch.why.judge import judge
from monarch.why.nodes import told_apart
from monarch.why.report import LATE, lines

CORE = "/x/monarch/_core/actors/sync_cell.py"
START = (
    Frame("_handle", CORE, 183),
    Frame("_serve", CORE, 144),
    Frame("run", "/usr/lib/python3.12/threading.py", 982),
)
GET = (
    Frame("wait", "/x/monarch/_core/calls/waiting.py", 9),
    Frame("get", "/x/monarch/_core/calls/future.py", 64),
)
C10D = "/opt/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py"
ALL_REDUCE = (
    Frame("all_reduce", C10D, 2806),
    Frame("wrapper", C10D, 83),
    Frame("step", "/me/dist.py", 900),
    *START,
)
READS = (Frame("recv", "/me/data.py", 31), Frame("step", "/me/dist.py", 800), *START)
COMPUTES = (Frame("forward", "/me/model.py", 7), Frame("step", "/me/dist.py", 850), *START)
UID = 77
ASLEEP, STOPPED = Kernel("S", 0, 0, 0), Kernel("T", 0, 0, 0)


def address(rank: int, host: str = "h") -> ProcAddress:
    return ProcAddress(host, f"p.{rank}")


def busy(frames: tuple[Frame, ...], ran: int = 5, call: str = "c", **more: object) -> ThreadStack:
    return ThreadStack(
        "monarch-actor-t", frames, "trainer", "step", "", UID, call, None, ran
    )._replace(**more)  # type: ignore[arg-type]


def waiting(
    *whom: ProcAddress, age: float | None = None, what: str = "trainer.step()"
) -> ThreadStack:
    frames = (*GET, Frame("step", "/me/dist.py", 5), *START)
    return busy(frames, waits_for=what, wait=Wait(age, UID, whom))


def proc(
    rank: int,
    *threads: ThreadStack,
    size: int = 4,
    queued: int = 0,
    mesh: str = "trainers",
    kernel: Kernel = ASLEEP,
) -> ProcStacks:
    box = Mailbox("trainer", UID, queued, ())
    coordinates = {"hosts": rank // 8, "gpus": rank % 8}
    return ProcStacks(
        mesh,
        rank,
        size,
        1000 + rank,
        f"h{rank // 8}",
        "itself",
        "",
        threads,
        address(rank),
        coordinates,
        (box,),
        kernel,
    )


def unseen(rank: int, note: str = "", kernel: Kernel = ASLEEP) -> ProcStacks:
    return proc(rank)._replace(how="", note=note, mailboxes=(), kernel=kernel)


def client(*frames: Frame, wait: Wait | None = None, ran: int = 5) -> ProcStacks:
    main = ThreadStack(
        "MainThread", (*frames, Frame("<module>", "/me/train.py", 9)), wait=wait, ran=ran
    )
    return ProcStacks(
        CLIENT, 0, 1, 99, "h0", "itself", "", (main,), ProcAddress("h", "client-x"), {}, (), ASLEEP
    )


def verdict(
    procs: Sequence[ProcStacks], later: Sequence[ProcStacks] | None = None, **silent: str
) -> Verdict:
    return judge(Stacks(procs, {}), Stacks(procs if later is None else later, silent), 1.0)


def blamed(found: Verdict) -> list[tuple[str, tuple[int, ...], str]]:
    return [(each.mesh, each.ranks, each.state) for each in found.blamed]


def test_the_one_rank_that_is_not_in_the_collective_is_named_among_a_thousand() -> None:
    procs = [proc(rank, busy(ALL_REDUCE), size=1000) for rank in range(1000)]
    procs[417] = proc(417, busy(READS, inside="read of socket:[5]"), size=1000)
    found = verdict([*procs, client(*GET, wait=Wait(43.2, UID, tuple(map(address, range(1000)))))])
    assert found.status == STUCK and found.exit_status == 4
    assert (
        found.sentence
        == "Stuck for 43 s: 999 ranks in all_reduce (dist.py:900); trainers[417] (host h52, gpu 1,"
        " process 1417) in recv (data.py:31): read of socket:[5]."
    )
    assert blamed(found) == [("trainers", (417,), "stands")]
    assert len(list(lines(found))) < 20
    json.dumps(found.to_json())


def test_a_thousand_ranks_at_a_thousand_places_are_shown_on_one_screen() -> None:
    places = [(Frame("recv", "/me/data.py", rank), *READS[1:]) for rank in range(1000)]
    procs = [proc(rank, busy(places[rank]), size=1000, queued=1) for rank in range(1000)]
    found = verdict(procs, hosts_9="gone")
    shown = list(lines(found))
    assert (
        found.status == STUCK
        and len(shown) <= 40
        and max(len(text) for _, text in shown[1:]) <= 150
    )
    assert any("ranks at 985 other places" in text for _, text in shown)


def test_a_rank_that_has_left_before_the_collective_is_blamed() -> None:
    found = verdict([proc(0, busy(ALL_REDUCE)), proc(1, busy(ALL_REDUCE)), proc(2)])
    assert found.status == STUCK and blamed(found) == [("trainers", (2,), "absent")]
    assert "is not in it: it waits for a message" in found.sentence


@pytest.mark.parametrize(
    ("thread", "process", "status"), [(0, 1, STUCK), (1, 1, SLOW), (0, 100_000_000, SLOW)]
)
def test_a_collective_that_all_are_in_is_stuck_only_if_no_thread_of_it_runs(
    thread: int, process: int, status: str
) -> None:
    later = [busy(ALL_REDUCE, ran=5 + thread), busy(ALL_REDUCE)]
    wait = client(*GET, wait=Wait(2, UID, (address(0), address(1))))
    found = verdict(
        [*(proc(rank, busy(ALL_REDUCE)) for rank in (0, 1)), wait],
        [*(proc(rank, later[rank], kernel=ASLEEP._replace(ran=process)) for rank in (0, 1)), wait],
    )
    assert found.status == status and blamed(found) == [("trainers", (0, 1), "collective")]
    assert (": runs: it gets on slowly, or spins." in found.sentence) == (status == SLOW)


def test_an_idle_rank_is_not_blamed_by_a_collective_that_runs() -> None:
    first = [*(proc(rank, busy(ALL_REDUCE)) for rank in (0, 1)), proc(2)]
    later = [*(proc(rank, busy(ALL_REDUCE, ran=9_000_000)) for rank in (0, 1)), proc(2)]
    found = verdict(first, later)
    assert found.status == SLOW and blamed(found) == [("trainers", (0, 1), "collective")]


def test_a_rank_that_stands_is_blamed_though_those_in_the_collective_spin() -> None:
    first = [*(proc(rank, busy(ALL_REDUCE)) for rank in (0, 1)), proc(2, busy(READS))]
    later = [
        *(proc(rank, busy(ALL_REDUCE, ran=900_000_000)) for rank in (0, 1)),
        proc(2, busy(READS)),
    ]
    found = verdict(first, later)
    assert found.status == STUCK and blamed(found) == [("trainers", (2,), "stands")]


def test_a_collective_of_a_part_of_the_mesh_does_not_blame_the_idle_part() -> None:
    found = verdict([proc(0, busy(ALL_REDUCE)), proc(1, busy(ALL_REDUCE)), proc(2), proc(3)])
    assert found.status == STUCK and blamed(found) == [("trainers", (0, 1), "collective")]


def test_ranks_in_the_collective_of_another_actor_do_not_blame_it() -> None:
    other = busy(READS, actor="loader", endpoint="feed", actor_id=5)
    found = verdict(
        [proc(0, busy(ALL_REDUCE)), proc(1, busy(ALL_REDUCE)), proc(2, other), proc(3, busy(READS))]
    )
    assert blamed(found) == [("trainers", (3,), "stands")]


def test_who_waits_is_not_blamed_and_who_is_waited_for_at_the_end_is() -> None:
    procs = [
        proc(0, waiting(address(1), age=12)),
        proc(1, waiting(address(2), age=50)),
        proc(2, busy(READS)),
    ]
    found = verdict(procs)
    assert blamed(found) == [("trainers", (2,), "stands")] and found.seconds == 50
    ranks = [(found.classes[a].ranks, found.classes[b].ranks) for a, b in found.waits]
    assert sorted(ranks) == [((0, 1), (0, 1)), ((0, 1), (2,))]


def test_actors_that_wait_for_each_other_are_a_circle_and_all_to_blame() -> None:
    procs = [proc(rank, waiting(address((rank + 1) % 3), age=9)) for rank in range(3)]
    found = verdict([*procs, proc(3, waiting(address(0)))])
    assert found.status == STUCK and found.circles == (("trainer[0]", "trainer[1]", "trainer[2]"),)
    assert (
        "Stuck for 9 s: trainer[0] → trainer[1] → trainer[2] → trainer[0] wait for each other"
        in found.sentence
    )
    assert {rank for _, ranks, _ in blamed(found) for rank in ranks} == {0, 1, 2}


def test_a_wait_leads_to_the_call_that_owes_the_answer_and_to_no_other() -> None:
    ours = waiting(address(1))._replace(call="client 1 0")  # run(), which waits for work()
    assert ours.wait is not None
    ours = ours._replace(wait=ours.wait._replace(call="p0 5"))
    # work(), which waits for config(), another call of the first
    theirs = waiting(address(0))._replace(call="p0 5 1")
    assert theirs.wait is not None
    theirs = theirs._replace(wait=theirs.wait._replace(call="p1 6"))
    config = busy(READS, call="p1 6 0", ran=0)
    there = proc(1, theirs)
    found = verdict([proc(0, ours, config), there], [proc(0, ours, config._replace(ran=9)), there])
    assert (found.status, found.circles) == (SLOW, ()) and blamed(found) == [
        ("trainers", (0,), "polls")
    ]
    # it has not begun: what the actor does may be before it
    found = verdict([proc(0, ours), there])
    assert found.status == STUCK and found.circles == (("trainer[0]", "trainer[1]"),)


def test_meshes_of_one_name_are_told_apart_by_their_ids() -> None:
    other = ProcAddress("h", "other.0")
    stands = proc(1, busy(READS))._replace(address=ProcAddress("h", "other.1"))
    idle = proc(0)._replace(address=other)
    inside = [proc(rank, busy(ALL_REDUCE)) for rank in (0, 2)]
    found = verdict([*inside, idle, stands])
    assert found.status == STUCK and blamed(found) == [("trainers", (0, 2), "collective")]
    first = (
        proc(0, waiting(address(1)))._replace(pid=7),
        proc(0, busy(READS))._replace(pid=7, address=other),
    )
    later = (
        proc(0, waiting(address(1)))._replace(pid=7),
        proc(0, busy(COMPUTES))._replace(pid=7, address=other),
    )
    assert [each.state for each in verdict(first, later).classes] == ["waits", "runs"]


def test_meshes_of_one_name_have_headings_of_their_own() -> None:
    other = proc(1, busy(READS))._replace(address=ProcAddress("h", "q.1"))
    procs = Stacks(
        [
            proc(0, waiting(address(1))),
            proc(1, busy(READS)),
            other,
            proc(0, busy(READS), mesh="alone"),
        ],
        {},
    )
    shown = [text for _, text in lines(judge(*told_apart(procs, procs), 1.0))]
    assert [text for text in shown if text.endswith("(4 ranks)")] == [
        "  trainers#p (4 ranks)", "  trainers#q (4 ranks)", "  alone (4 ranks)",
    ]  # fmt: skip
    assert (
        "  trainers#p[0] → trainers#p[1]  ◀ here" in shown and "trainers#p[1] (host h0" in shown[0]
    )
    assert shown[-1] == "  monarch stacks --mesh p --rank 1"
    alone, _ = told_apart(Stacks([proc(0), proc(1)], {}), Stacks([], {}))
    assert {each.mesh for each in alone.procs} == {"trainers"}


def test_ranks_that_wait_for_one_that_runs_make_it_slow() -> None:
    procs = [proc(rank, waiting(address(3), age=2)) for rank in range(3)]
    moved = [proc(3, busy(READS)), proc(3, busy(COMPUTES))]
    found = verdict([*procs, moved[0]], [*procs, moved[1]])
    assert (found.status, found.exit_status, found.seconds) == (SLOW, 3, 2)
    assert found.sentence.startswith(
        "Slow for 2 s: trainers[0-2] in get (dist.py:5) wait for trainers[3] (host h0"
    )


def test_a_program_that_waits_for_ranks_that_run_is_fine() -> None:
    first = [proc(rank, busy(READS)) for rank in range(3)]
    later = [proc(rank, busy(COMPUTES)) for rank in range(3)]
    wait = client(*GET, wait=Wait(None, UID, tuple(map(address, range(3)))))
    found = verdict([*first, wait], [*later, wait])
    assert (found.status, found.exit_status) == (FINE, 0)
    assert found.sentence == "Fine: 3 ranks work; the client is in get (train.py:9)."


@pytest.mark.parametrize(("ran", "status"), [(5, STUCK), (5_000_000, SLOW), (900_000_000, SLOW)])
def test_whether_the_thread_has_run_tells_a_hang_from_a_loop(ran: int, status: str) -> None:
    rest = [proc(0, waiting(address(1)))]
    found = verdict([*rest, proc(1, busy(READS))], [*rest, proc(1, busy(READS, ran=ran))])
    assert found.status == status


def test_another_call_at_the_same_place_is_progress() -> None:
    rest = [proc(0, waiting(address(1)))]
    found = verdict([*rest, proc(1, busy(READS))], [*rest, proc(1, busy(READS, call="another"))])
    assert found.status == SLOW and blamed(found) == [("trainers", (1,), "runs")]


def test_where_consumers_wait_for_items_the_service_that_has_most_calls_is_named() -> None:
    words = (
        "; consumers wait for items of replay, and verifier has most calls of services, 41 of 48."
    )
    for endpoint, held, says in (
        ("sample", [("verifier", 41), ("generator", 7)], True),
        ("add", [("verifier", 41), ("generator", 7)], False),  # a producer waits for room
        ("sample", [("verifier", 0)], False),
    ):
        done = Frame("done", "/x/monarch/queues/line.py", 48)
        frames = (done, Frame(endpoint, "/x/monarch/queues/replay.py", 9), *START)
        looks = Stacks([proc(0, busy(frames, actor="replay", endpoint=endpoint)), client(*GET)], {})
        assert judge(looks, looks, 1.0, (), held).sentence.endswith(words) == says


def test_an_idle_program_is_fine_and_it_is_said_that_nothing_runs() -> None:
    found = verdict(
        [proc(0), proc(1), client(Frame("wait", "/usr/lib/python3.12/threading.py", 3))]
    )
    assert found.status == FINE
    assert (
        found.sentence
        == "Fine: nothing runs: 2 ranks wait for a message; the client is in wait (train.py:9)."
    )
    assert verdict([]).sentence == "Fine: nothing runs."


def test_a_stopped_process_is_stuck_without_a_wait() -> None:
    found = verdict([proc(0), unseen(1, kernel=STOPPED)])
    assert found.status == STUCK and blamed(found) == [("trainers", (1,), "frozen")]
    assert "is stopped (SIGSTOP, or Ctrl-Z)" in found.sentence and len(found.frozen) == 1


def test_several_stopped_processes_are_spoken_of_as_several() -> None:
    found = verdict([proc(0), *(unseen(rank, kernel=STOPPED) for rank in (1, 2))])
    assert found.sentence == "Stuck: trainers[1-2] (host h0) are stopped (SIGSTOP, or Ctrl-Z)."


def test_a_process_that_answers_no_call_is_stuck_if_it_did_not_twice() -> None:
    assert verdict([unseen(0, "does not answer")]).status == STUCK
    assert verdict([proc(0)], [unseen(0, "does not answer")]).status == FINE


def test_c_code_that_holds_the_gil_is_blamed_by_those_who_wait() -> None:
    held = proc(1, ThreadStack("", READS))._replace(how="signal", mailboxes=())
    found = verdict([proc(0, waiting(address(1))), held])
    assert found.status == STUCK and blamed(found) == [("trainers", (1,), "holds the GIL")]
    assert verdict([held]).status == STUCK  # all that goes on stands still
    assert verdict([held, proc(0, busy(READS))], [held, proc(0, busy(COMPUTES))]).status == SLOW


def test_who_hangs_does_so_since_its_call_began_where_no_caller_waits() -> None:
    hangs = busy(READS)._replace(handles=21.0)
    found = verdict([proc(0, hangs, size=1)])
    assert (found.status, found.blamed[0].seconds) == (STUCK, 21.0)
    assert " for 21 s" in found.sentence


def test_a_host_that_is_silent_is_blamed_for_who_waits_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    far = ProcAddress("tcp://h3:1", "p9")
    silent = Stacks([proc(0, waiting(far, age=3))], {"tcp://h3:1": "not within 3s"})
    found = judge(Stacks([], {}), silent, 1.0)
    assert (
        found.sentence.endswith("host tcp://h3:1 does not answer (not within 3s).")
        and found.status == STUCK
    )
    monkeypatch.setitem(HOST_NAMES, "tcp://h3:1", "trainers[3]")
    found = judge(Stacks([], {}), silent, 1.0)
    assert found.sentence.endswith("host trainers[3] (tcp://h3:1) does not answer (not within 3s).")


def test_a_program_in_which_nothing_runs_says_what_it_waits_for() -> None:
    wait = Wait(52.0, 0, ())
    entry = Frame("state", "/site/monarch/job/trait.py", 234)
    asks = Frame("wait_for_workers", "/site/monarch/job/slurm/wait.py", 69)
    [main] = client(asks, entry, wait=wait).threads
    main = main._replace(waits_for="Slurm job 9: PENDING (Resources)")
    found = verdict([client()._replace(threads=(main,))])
    assert (found.status, found.exit_status) == (FINE, 0)
    assert found.sentence == (
        "Fine: nothing runs; the client is in state (train.py:9) for 52 s: waits for Slurm job 9:"
        " PENDING (Resources)."
    )


def test_what_stands_with_messages_behind_it_is_stuck_and_without_is_not() -> None:
    others = proc(1, busy(READS)), proc(1, busy(COMPUTES))
    assert (
        verdict([proc(0, busy(READS)), others[0]], [proc(0, busy(READS)), others[1]]).status == FINE
    )
    behind = proc(0, busy(READS), queued=3)
    assert verdict([behind, others[0]], [behind, others[1]]).status == STUCK


def test_who_sends_to_a_full_mailbox_waits_for_its_actor() -> None:
    program = client(Frame("broadcast", "/x/monarch/_core/actors/adverbs.py", 3))
    assert program.address is not None
    full = Mailbox("trainer", UID, 1001, (program.address,))
    found = verdict([proc(0, busy(READS))._replace(mailboxes=(full,)), program])
    assert found.full == ("trainer[0]: 1,001 messages wait, 1 process is paused",)
    assert found.sentence.startswith("Stuck: the client in broadcast (train.py:9); trainers[0] ")
    assert found.sentence.endswith(
        "in recv (data.py:31): its mailbox is full, 1,001 messages wait."
    )


def test_processes_that_read_pages_from_a_disk_are_said_to_swap() -> None:
    swaps = Kernel("S", 0, 300 << 20, 5), Kernel("S", 0, 300 << 20, 405)
    found = verdict([proc(0, kernel=swaps[0])], [proc(0, kernel=swaps[1])])
    assert found.swapping == (
        "trainers[0] (process 1000 on h0) has 300 MiB in swap, and reads 400 pages a second",
    )


def test_processes_that_have_failed_are_listed_and_hold_up_no_other() -> None:
    ended = [
        unseen(rank)._replace(note="has ended: killed by SIGKILL\nmore", pid=0, ago=240.0 * rank)
        for rank in (1, 2)
    ]
    found = verdict([proc(0), *ended])
    assert (found.status, found.exit_status, found.blamed) == (DEGRADED, 5, ())
    assert found.failures[0] == "trainers[1] has ended: killed by SIGKILL, 4 min ago"
    without = "without trainers[1]: killed by SIGKILL, 4 min ago; and 1 more."
    assert found.sentence == f"Degraded: goes on {without}"
    assert next(kind for kind, _ in lines(found)) == LATE
    # the hang is the news, and what may have led to it
    stuck = verdict([proc(0, waiting(address(3))), *ended, proc(3, busy(READS))])
    assert stuck.status == STUCK and stuck.sentence.endswith(f" in recv (data.py:31); {without}")


def test_ranks_that_have_failed_do_not_wait_and_those_in_their_place_make_it_whole() -> None:
    ended = unseen(1)._replace(note="has ended: killed by SIGKILL", pid=0)
    assert verdict([proc(0), ended]).sentence.startswith("Degraded: ")
    again = verdict([proc(0), ended, proc(1)])
    assert again.status == FINE and again.failures != ()
    assert again.sentence == "Fine: nothing runs: 2 ranks wait for a message."


def test_a_rank_has_stood_as_long_as_the_first_has_waited_for_it() -> None:
    held_up = [proc(0, waiting(address(3), age=52.0)), proc(1, waiting(address(3), age=7.0))]
    found = verdict([*held_up, proc(3, busy(READS))])
    assert (found.seconds, found.blamed[0].seconds) == (52.0, 52.0)
    shown = [text for _, text in lines(found)]
    assert shown[0].startswith("Stuck for 52 s: ")
    assert [text for text in shown if text.startswith("  > ")] == [
        "  > 1 rank [3], process 1003 on h0: step: recv (data.py:31); stands for 52 s"
    ]


def test_a_rank_that_marks_steps_has_stood_no_longer_than_since_its_last() -> None:
    trains = [proc(rank, busy(ALL_REDUCE)) for rank in range(3)] + [proc(3, busy(READS))]
    all_day = client(*GET, wait=Wait(36_000.0, UID, tuple(map(address, range(4)))))
    found = verdict([*(each._replace(stepped=52.0) for each in trains), all_day])
    assert found.seconds == 52.0 and found.sentence.startswith(
        "Stuck for 52 s: trainers[0-2] in all_"
    )


def test_a_rank_in_the_debugger_is_said_to_be_there() -> None:
    frames = (Frame("ask", "/x/monarch/debugger/debuggee.py", 5), *READS)
    found = verdict([proc(0, waiting(address(1))), proc(1, busy(frames))])
    assert found.status == STUCK and "is stopped in the debugger: monarch debug" in found.sentence


def test_circles_are_found_in_graphs_of_any_depth() -> None:
    line = {at: [at + 1] for at in range(50_000)}
    assert circles(line) == []
    assert [sorted(each) for each in circles({**line, 50_000: [49_998]})] == [
        [49_998, 49_999, 50_000]
    ]
    assert circles({1: [1]}) == [[1]]
    edges = {1: [2], 2: [3, 4], 3: [1], 4: [1]}
    assert chain(circles(edges)[0], edges) == [1, 2, 3]
    assert those_who_wait([3], edges) == {1, 2, 4}


def calls_of_a_verdict(ranks: int) -> int:
    """How many functions are called for one on so many ranks, on which another mesh waits, and
    which all run.
    """
    busies = [proc(at, busy(READS if at % 2 else COMPUTES), size=ranks) for at in range(ranks)]
    later = [proc(at, busy(COMPUTES if at % 2 else READS), size=ranks) for at in range(ranks)]
    waits = client(*GET, wait=Wait(1.0, UID, tuple(address(at) for at in range(ranks))))
    counted = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        found = verdict([waits, *busies], [waits, *later])
    finally:
        sys.setprofile(None)
    assert found.status == FINE and f"{ranks} ranks work" in found.sentence
    return counted


def test_ten_times_the_ranks_take_ten_times_the_work() -> None:
    assert calls_of_a_verdict(500) < 12 * calls_of_a_verdict(50)
