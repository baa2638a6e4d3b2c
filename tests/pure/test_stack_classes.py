"""Classes of equal stacks, and the texts that stacks are read from. Made-up stacks; no process."""

from __future__ import annotations

import json

import pytest

from monarch._words import HOST_NAMES, ranges
from monarch.stacks import Frame, ProcStacks, Stacks, ThreadStack
from monarch.stacks.grouping import ENGINE, LIBRARY, NATIVE, STANDARD, USER, classes, kind_of
from monarch.stacks.model import DEBUGGED
from monarch.stacks.traces import parse_faulthandler, parse_py_spy

CORE = "/opt/venv/lib/python3.12/site-packages/monarch/_core/actors/sync_cell.py"
LIB = "/usr/lib/python3.12/threading.py"
TORCH = "/opt/venv/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py"

START = (
    Frame("_handle", CORE, 183),
    Frame("_serve", CORE, 144),
    Frame("run", LIB, 982),
    Frame("_bootstrap", LIB, 1002),
)
IDLE = (Frame("wait", "/x/monarch/_core/net/waiter.py", 34), Frame("_next", CORE, 150), *START[1:])
TRAIN = (Frame("all_reduce", TORCH, 2806), Frame("step", "/home/me/train.py", 88), *START)
DATA = (Frame("recv", "/home/me/data.py", 40), Frame("step", "/home/me/train.py", 80), *START)


def proc(rank: int, *stacks: tuple[Frame, ...]) -> ProcStacks:
    threads = tuple(ThreadStack("monarch-actor-trainer", frames) for frames in stacks)
    return ProcStacks("trainers", rank, 64, 1000 + rank, f"h{rank // 8}", "itself", "", threads)


def test_equal_stacks_are_one_class_and_those_elsewhere_come_last() -> None:
    odd = {17, 42, 63}
    procs = [proc(rank, DATA if rank in odd else TRAIN) for rank in range(64)]
    most, few = classes(procs)
    assert (len(most.ranks), most.headline, most.endpoint) == (
        61,
        "all_reduce at train.py:88",
        "step",
    )
    assert (few.ranks, few.headline, few.endpoint) == ((17, 42, 63), "recv at data.py:40", "step")
    shown = str(Stacks(procs, {}))
    assert "61 ranks [0-16,18-41,43-62]: step: all_reduce at train.py:88" in shown
    assert shown.index("61 ranks") < shown.index("3 ranks [17,42,63]: step: recv at data.py:40")


def test_a_class_is_the_same_however_its_stacks_were_had() -> None:
    by_signal = parse_faulthandler(
        "Thread 0x00007f01 (most recent call first):\n"
        + "".join(
            f'  File "{frame.file}", line {frame.line} in {frame.function}\n' for frame in TRAIN
        )
    )
    text = [
        {"name": f"Trainer.{each.function}", "filename": each.file, "line": each.line}
        for each in TRAIN
    ]
    by_py_spy = parse_py_spy(json.dumps([{"thread_name": "x", "frames": text}]))
    procs = [
        proc(0, TRAIN),
        proc(1)._replace(how="signal", threads=by_signal),
        proc(2)._replace(how="py-spy", threads=by_py_spy),
    ]
    [only] = classes(procs)
    assert only.ranks == (0, 1, 2) and only.how == ("itself", "py-spy", "signal")


def test_threads_that_wait_for_work_are_left_out_unless_all_are_asked_for() -> None:
    procs = [proc(0, IDLE, TRAIN), proc(1, IDLE)]
    busy, idle = classes(procs)
    assert busy.ranks == (0,) and [line.frame.function for line in busy.lines] == [
        "all_reduce",
        "step",
    ]
    assert idle.ranks == (1,) and idle.headline == "waits for a message" and idle.lines == ()
    everything = classes(procs, everything=True)
    assert [each.ranks for each in everything] == [(0, 1), (0,)]
    assert len(everything[0].lines) == len(IDLE)


def test_what_monarch_does_for_a_call_is_one_line_by_the_name_that_the_program_used() -> None:
    get = (
        Frame("wait", "/x/monarch/_core/calls/waiting.py", 9),
        Frame("get", "/x/monarch/_core/calls/future.py", 64),
    )
    [found] = classes([proc(0, (*get, Frame("step", "/home/me/train.py", 5), *START))])
    assert [(line.kind, line.frame.function) for line in found.lines] == [
        (ENGINE, "get"),
        (USER, "step"),
    ]
    assert found.headline == "get at train.py:5"


def test_a_class_says_that_its_ranks_are_stopped_in_the_debugger() -> None:
    at = Frame("check_loss", "/home/me/train.py", 97)
    asks = Frame("ask", "/x/monarch/debugger/debuggee.py", 212)
    named = Frame("breakpoint", "/x/monarch/_core/actors/debugging.py", 46)
    procs = [proc(0, (asks, named, at, *START)), proc(1, (named, at, *START)), proc(2, IDLE)]
    told = Stacks(procs, {}).to_json()["classes"]
    assert {tuple(each["ranks"]): each["state"] for each in told} == {
        (0,): DEBUGGED, (1,): "", (2,): "",
    }  # fmt: skip
    # the first two look the same, as what Monarch does is one line
    assert told[0]["lines"] == told[1]["lines"]


def test_an_actor_that_reads_its_arguments_is_not_said_to_wait_for_work() -> None:
    thread = ThreadStack(
        "t", (Frame("loads", "/x/monarch/_core/wire/pickling.py", 7), *START), "trainer", "step"
    )
    [found] = classes([proc(0)._replace(threads=(thread,))])
    assert found.endpoint == "step" and found.headline == "loads at pickling.py:7"


def test_a_process_that_could_not_be_asked_is_a_class_by_its_reason() -> None:
    stopped = [proc(rank)._replace(how="", note="is stopped") for rank in (1, 2)]
    ended = proc(3)._replace(how="", note="has ended: killed")
    most, *others = classes([proc(0, TRAIN), *stopped, ended])
    assert (most.ranks, most.headline) == ((1, 2), "is stopped")
    assert {each.headline for each in others} == {"all_reduce at train.py:88", "has ended: killed"}


def test_what_a_stopped_process_ran_is_shown_with_its_state() -> None:
    [found] = classes([proc(0, TRAIN)._replace(note="is stopped")])
    assert found.headline == "is stopped; all_reduce at train.py:88"


def test_a_single_rank_is_shown_with_its_process_and_host() -> None:
    shown = str(Stacks([proc(rank, DATA if rank == 9 else TRAIN) for rank in range(16)], {}))
    assert "1 rank [9], process 1009 on h1: step: recv at data.py:40" in shown


def test_hosts_that_did_not_answer_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "host h7 did not answer: not within 5s" in str(Stacks([], {"h7": "not within 5s"}))
    monkeypatch.setitem(HOST_NAMES, "tcp://h7:1", "trainers[7]")
    assert str(Stacks([], {"tcp://h7:1": "lost"})) == (
        "host trainers[7] (tcp://h7:1) did not answer: lost"
    )
    assert str(Stacks([], {})) == "no process is of this mesh, and these ranks"


def test_classes_are_shown_as_json() -> None:
    told = json.loads(json.dumps(Stacks([proc(0, TRAIN)], {"h7": "gone"}).to_json()))
    assert told["silent"] == {"h7": "gone"}
    [only] = told["classes"]
    assert only["ranks"] == [0] and only["lines"][1] == {
        "kind": "user", "function": "step", "file": "/home/me/train.py", "line": 88,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("ranks", "text"), [((), ""), ((3,), "3"), ((0, 1, 2), "0-2"), ((0, 2, 3, 4, 9), "0,2-4,9")]
)
def test_ranks_are_written_as_a_compact_set(ranks: tuple[int, ...], text: str) -> None:
    assert ranges(ranks) == text


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        ("/home/me/train.py", USER),
        ("<stdin>", USER),
        (CORE, ENGINE),
        (TORCH, LIBRARY),
        (LIB, STANDARD),
        ("<frozen importlib._bootstrap>", STANDARD),
        ("/lib/x86_64-linux-gnu/libc.so.6", NATIVE),
        ("/home/me/monarch/train.py", USER),
        ("/x/monarch/job/slurm/wait.py", ENGINE),
    ],
)
def test_whose_code_a_frame_is_follows_from_its_file(file: str, kind: str) -> None:
    assert kind_of(Frame("f", file, 1)) == kind


def test_a_dump_of_faulthandler_is_read_and_what_is_no_part_of_it_skipped() -> None:
    text = """noise
Thread 0x00007f6d (most recent call first):
  File "/a b/x, line 3 in y.py", line 12 in <lambda>
  File "???", line ??? in ???
  ...

Current thread 0x00007f6e [MainThread] (most recent call first):
  <no Python frame>
"""
    first, second = parse_faulthandler(text)
    assert first.frames == (Frame("<lambda>", "/a b/x, line 3 in y.py", 12), Frame("???", "???", 0))
    assert second == ThreadStack("MainThread", ())


@pytest.mark.parametrize("text", ["", "{", "[1]", '[{"thread_name": "x"}]', "{}x"])
def test_what_is_no_report_of_py_spy_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_py_spy(text)
