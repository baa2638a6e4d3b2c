"""What a rank printed before it answered is shown before the program gets the answer."""

from __future__ import annotations

import asyncio
import io
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from helpers.printing import Asks, Prints, PrintsAsync, Stuck
from helpers.scripts import program, run_script
from helpers.waiting import PATIENCE, wait_until
from monarch.actor import Channel

if TYPE_CHECKING:
    from conftest import Spawn

pytestmark = pytest.mark.processes("output is read from pipes")

ROUNDS = 20  # without an order, an answer overtakes a line most of the times

Read = Callable[[], str]


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str]) -> Read:
    """What this program has written since the last time."""

    def read() -> str:
        captured = capsys.readouterr()
        return captured.out + captured.err

    return read


def test_a_line_is_shown_before_the_answer_that_follows_it(spawn: Spawn, shown: Read) -> None:
    prints = spawn().spawn("prints", Prints)
    for number in range(ROUNDS):
        prints.say.call_one(f"line {number}").get(timeout=PATIENCE)
        assert shown() == f"line {number}\n"


def test_the_lines_of_all_ranks_are_shown_before_the_answer_of_the_mesh(
    spawn: Spawn, shown: Read
) -> None:
    prints = spawn(4).spawn("prints", Prints)
    for number in range(ROUNDS):
        prints.say.call(f"line {number}").get(timeout=PATIENCE)
        assert shown().count(f"line {number}\n") == 4


@pytest.mark.parametrize("way", ["complain", "write_bytes", "warn"])
def test_the_way_in_which_python_prints_does_not_matter(
    spawn: Spawn, shown: Read, way: str
) -> None:
    prints = spawn().spawn("prints", Prints)
    for number in range(ROUNDS):
        getattr(prints, way).call_one(f"line {number}").get(timeout=PATIENCE)
        assert f"line {number}\n" in shown()


def test_text_without_a_newline_is_shown_before_the_answer(spawn: Spawn, shown: Read) -> None:
    prints = spawn().spawn("prints", Prints)
    prints.say.call_one("first").get(timeout=PATIENCE)
    shown()
    prints.say.call_one("50 %\r", end="").get(timeout=PATIENCE)
    # from now on the first text was written, not only said
    prints.complain.call_one("then a line").get(timeout=PATIENCE)
    assert "50 %\r" in shown()


def test_a_line_is_shown_before_the_error_that_follows_it(spawn: Spawn, shown: Read) -> None:
    prints = spawn(2).spawn("prints", Prints)
    for number in range(ROUNDS):
        answers = prints.fail.call(f"line {number}")
        with pytest.raises(ValueError, match="after having printed"):
            answers.get(timeout=PATIENCE)
        assert f"line {number}\n" in shown()


def test_a_line_is_shown_before_a_value_that_comes_through_a_port(
    spawn: Spawn, shown: Read
) -> None:
    prints = spawn().spawn("prints", Prints)
    for number in range(ROUNDS):
        port, receiver = Channel[int].open()
        prints.tell.broadcast(port, f"told {number}")
        receiver.recv().get(timeout=PATIENCE)
        assert f"told {number}\n" in shown()
        prints.answer_later.call_one(f"answered {number}").get(timeout=PATIENCE)
        assert f"answered {number}\n" in shown()


def test_a_line_is_shown_before_what_is_awaited(spawn: Spawn, shown: Read) -> None:
    prints = spawn(2).spawn("prints", PrintsAsync)

    async def ask() -> None:
        for number in range(ROUNDS):
            await prints.say.call(f"line {number}")
            assert shown().count(f"line {number}\n") == 2

    asyncio.run(ask())


def test_what_an_actor_has_caused_to_be_printed_is_shown_before_its_answer(
    spawn: Spawn, shown: Read
) -> None:
    prints = spawn(2).spawn("prints", Prints)
    asks = spawn().spawn("asks", Asks, prints)
    for number in range(ROUNDS):
        asks.ask.call_one(f"line {number}").get(timeout=PATIENCE)
        assert shown().count(f"line {number}\n") == 2


def test_lines_of_other_hosts_are_shown_before_their_answers(spawn_far: Spawn, shown: Read) -> None:
    prints = spawn_far(2).spawn("prints", Prints)
    for number in range(ROUNDS):
        prints.say.call(f"line {number}").get(timeout=PATIENCE)
        assert shown().count(f"line {number}\n") == 6


def test_an_answer_that_was_there_before_it_is_read_waits_for_its_line(
    spawn: Spawn, shown: Read
) -> None:
    prints = spawn().spawn("prints", Prints)
    for number in range(ROUNDS):
        answer = prints.say.call_one(f"line {number}")
        wait_until(answer.done, what="the answer")
        answer.get(timeout=PATIENCE)
        assert f"line {number}\n" in shown()


def test_who_waits_for_an_answer_does_not_wait_for_a_reader_that_stands_still(
    spawn: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    prints = spawn().spawn("prints", Prints)
    stuck = Stuck()
    monkeypatch.setattr(sys, "stdout", stuck)
    try:
        # the first waits for a while, to see that nothing moves; the others do not
        for number in range(ROUNDS):
            assert prints.say.call_one(f"line {number}").get(timeout=PATIENCE) == 0
        assert stuck.begun.is_set()
    finally:
        stuck.reads.set()
    prints.say.call_one("the last").get(timeout=PATIENCE)
    wait_until(lambda: "the last" in stuck.getvalue(), what="the last line")
    prints.say.call_one("in order again").get(timeout=PATIENCE)
    said = stuck.getvalue().splitlines()
    assert said == [*(f"line {number}" for number in range(ROUNDS)), "the last", "in order again"]


def test_lines_come_in_order_again_when_a_host_is_lost_that_held_some_back() -> None:
    source = program("""
        import sys
        import monarch.actor
        from helpers.faults import Faults
        from helpers.printing import Prints, Stuck
        from helpers.waiting import wait_until
        from helpers.workers import workers
        from monarch._core.calls import future
        from monarch.actor import attach_to_workers, this_host

        monarch.actor.unhandled_fault_hook = faults = Faults()
        near = this_host().spawn_procs(name="near").spawn("near", Prints)
        with workers(1) as others:
            far = attach_to_workers(workers=others.addresses).spawn_procs(name="far").spawn("far", Prints)
            far.say_quietly.call_one("nobody sees this").get()
            stdout, stuck = sys.stdout, Stuck()
            sys.stdout = stuck
            far.say_lines.call_one((1 << 20) // 1000 + 40, "x" * 980).get()  # what is not shown yet fits into its pipe
            others.kill_agent(0)
            faults.wait_for(1)
        stuck.reads.set()
        near.say.call_one("a line").get()  # nobody waits for it, if nothing was seen to move yet
        wait_until(lambda: future.pending_output is None, what="all to be shown that will be")
        for number in range(20):
            near.say.call_one(f"line {number}").get()
            assert stuck.getvalue().endswith(f"line {number}\\n")
        sys.stdout = stdout
        print("in order")
        """)
    result = run_script(source)
    assert result.stdout == "in order\n", result


def test_output_that_is_not_read_is_bounded_and_what_is_left_out_is_counted(
    spawn: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("monarch._core.processes.output._LIMIT", 100_000)
    prints = spawn().spawn("prints", Prints)
    stuck = Stuck()
    monkeypatch.setattr(sys, "stdout", stuck)
    errors = io.StringIO()
    monkeypatch.setattr(sys, "stderr", errors)
    try:
        prints.say_lines.call_one(5000, "x" * 100).get(timeout=PATIENCE)
    finally:
        stuck.reads.set()
    wait_until(lambda: "were left out" in errors.getvalue(), what="the count of what was left out")
    counted = re.search(r"monarch: (\d+) lines", errors.getvalue())
    assert counted is not None
    prints.say.call_one("the last").get(timeout=PATIENCE)
    *lines, last = stuck.getvalue().splitlines()
    assert last == "the last"
    assert all(line.endswith("x>") for line in lines)
    assert len(lines) + int(counted[1]) == 5000
    assert len(lines) < 2000  # the limit, and what was being written


def test_what_a_child_process_has_written_is_shown_before_a_line_printed_after_it(
    spawn: Spawn, shown: Read
) -> None:
    prints = spawn().spawn("prints", Prints)
    for number in range(ROUNDS):
        prints.have_a_child_write.call_one(f"child {number}", f"line {number}").get(
            timeout=PATIENCE
        )
        assert shown() == f"child {number}\nline {number}\n"


def test_a_program_whose_ranks_print_nothing_asks_for_no_marks(spawn: Spawn) -> None:
    from monarch._core.calls import future
    from monarch._core.client.client import client

    prints = spawn().spawn("prints", Prints)
    prints.say_quietly.call_one("nobody sees this").get(timeout=PATIENCE)
    before = client().pending_output._numbers
    for _ in range(ROUNDS):
        prints.say_quietly.call_one("nor this").get(timeout=PATIENCE)
        assert future.pending_output is None
    assert client().pending_output._numbers == before


def test_lines_are_whole_where_the_environment_asks_for_unbuffered_output() -> None:
    source = program("""
        from monarch.actor import this_host
        from helpers.printing import Prints

        procs = this_host().spawn_procs(per_host={"gpus": 2})
        meshes = [procs.spawn(f"prints_{number}", Prints) for number in range(4)]  # four threads in each process
        answers = [mesh.say_lines.call(100, "x" * 100) for mesh in meshes]
        for number in range(800):
            print("<rank of the client", f"line {number}", "x>")
        for answer in answers:
            answer.get()
        print("all have answered")
        """)
    result = run_script(source, env={"PYTHONUNBUFFERED": "1"})
    *lines, last = result.stdout.splitlines()
    assert last == "all have answered", str(result)
    assert len(lines) == 1600
    torn = [line for line in lines if line.count("<rank") != 1 or not line.endswith("x>")]
    assert not torn, torn[:5]


def test_unbuffered_output_reaches_its_reader_in_whole_lines() -> None:
    source = program("""
        import os, sys, threading
        from monarch.actor import this_host
        from helpers.printing import Prints

        reader, writer = os.pipe2(os.O_DIRECT)  # gives what each write has brought
        written = []

        def read():
            while (data := os.read(reader, 4096)) != b"the end":
                written.append(data)

        thread = threading.Thread(target=read)
        thread.start()
        before, stdout = os.dup(1), sys.stdout
        os.dup2(writer, 1)
        prints = this_host().spawn_procs(per_host={"gpus": 2}).spawn("prints", Prints)
        answer = prints.say_lines.call(10, "x")
        print("the client", "prints", "as well")
        answer.get()
        print("no end of a line", end="")
        if not (child := os.fork()):
            sys.stdout.flush()
            os._exit(0)
        os.waitpid(child, 0)
        sys.stdout.flush()
        os.write(1, b"the end")
        os.dup2(before, 1)
        thread.join()
        assert written.pop() == b"no end of a line", written
        assert b"".join(written).count(b"\\n") == 21 and all(data.endswith(b"\\n") for data in written), written
        assert sys.stdout is stdout
        """)
    result = run_script(source, env={"PYTHONUNBUFFERED": "1"})
    assert result.exit_code == 0, str(result)


def test_lines_that_the_output_cannot_encode_are_shown_all_the_same() -> None:
    source = program("""
        from monarch.actor import this_host
        from helpers.printing import Prints

        prints = this_host().spawn_procs().spawn("prints", Prints)
        prints.say.call_one("readable\\na \\N{SNOWMAN}\\nreadable, too").get()
        """)
    result = run_script(source, env={"PYTHONIOENCODING": "ascii"})
    assert result.exit_code == 0, str(result)
    assert "readable\n" in result.stdout
    assert "readable, too\n" in result.stdout
    assert "\\u2603" in result.stdout, str(result)
