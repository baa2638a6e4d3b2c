"""`breakpoint()` in actors, and the prompt of the debugger."""

from __future__ import annotations

import functools
import threading
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from helpers import stopping
from helpers.debugging import person
from helpers.scripts import run_script
from helpers.stopping import AsyncStopping, Stopping
from helpers.waiting import PATIENCE, wait_until
from monarch._core.plane import current_hub, send_record
from monarch.actor import Actor, ActorError, Future, endpoint, this_host
from monarch.config import configured
from monarch.debugger import sources
from monarch.debugger.console import Terminal, _Attached
from monarch.debugger.notices import Notices
from monarch.debugger.protocol import OUTPUT, PROMPT, RUNNING, Drive, Send
from monarch.programs import ask

if TYPE_CHECKING:
    from conftest import Spawn
    from helpers.faults import Faults

pytestmark = pytest.mark.processes("terminals that debug other processes")

FILE = Path(stopping.__file__)


def line_of(mark: str) -> int:
    lines = FILE.read_text().splitlines()
    (number,) = [number for number, line in enumerate(lines, 1) if line.endswith(mark)]
    return number


def test_a_breakpoint_stops_one_rank_and_the_others_answer(spawn: Spawn) -> None:
    actors = spawn(3).spawn("s", Stopping)
    with person() as user:
        answers = actors.step.call(2, 1)
        (row,) = user.wait_stopped()
        assert actors.slice(gpus=0).say.call_one("hello").get() == "hello"
        assert (row.who.name, row.who.rank, row.who.coordinates) == ("s", 1, {"gpus": 1})
        assert (row.place.line.function, row.place.line.file) == ("step", str(FILE))
        user.type("attach s 1")
        user.expect("Attached to debug session for s 1")
        user.expect("(Pdb) ")
        user.type("p doubled", "n", "n", "p tripled", "continue")
        assert user.expect("-> tripled = doubled + number").startswith("4\n")
        assert "6\n" in user.expect(
            "Detached from debug session for s 1: the endpoint has returned"
        )
        assert answers.get().values() == [6, 6, 6]
        assert user.rows() == []


def test_list_is_a_table_sorted_by_name_and_rank(spawn: Spawn) -> None:
    procs = spawn(2)
    late, early = procs.spawn("z", Stopping), procs.spawn("a", Stopping)
    with person() as user:
        answers = [late.step.call(1), early.step.call(1)]
        user.wait_stopped(4)
        user.type("l")
        user.expect("| Actor Name | Rank | Coords | Hostname")
        shown = user.expect("monarch_dbg> ").splitlines()
        assert [row.split()[1:4:2] for row in shown if row.startswith("| ")] == [
            ["a", "0"], ["a", "1"], ["z", "0"], ["z", "1"],
        ]  # fmt: skip
        user.type("c")
        assert [answer.get().values() for answer in answers] == [[3, 3], [3, 3]]


def test_an_async_endpoint_is_stepped_through_over_its_awaits(spawn: Spawn) -> None:
    actor = spawn(1).spawn("s", AsyncStopping)
    with person() as user:
        answer = actor.step.call_one(2)
        user.wait_stopped()
        user.type("attach s 0", "n")
        user.expect("-> await asyncio.sleep(0)")
        user.type("n")
        user.expect("-> return doubled")
        user.type("doubled = 5", "c")
        assert answer.get() == 5


def test_who_attaches_while_a_rank_stops_is_asked_for_one_line(
    spawn: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = current_hub()
    link = _Attached(hub.root, Terminal(StringIO(), StringIO()))

    def attach(notices: Notices) -> None:
        """In the midst of the news that it has stopped, on the thread of a console."""
        (row,) = notices._rows()
        drive = Drive(row.number, 1, "somebody", True)
        thread = threading.Thread(target=send_record, args=(hub, hub.root, drive, link))
        thread.start()
        thread.join()
        numbers.append(row.number)
        monkeypatch.undo()

    def kinds() -> list[str]:
        """Of what is said up to the next prompt."""
        found = [link.next(lambda: False)[0]]
        while found[-1] != PROMPT:
            found.append(link.next(lambda: False)[0])
        return found

    numbers: list[int] = []
    monkeypatch.setattr(Notices, "stopped", attach)
    answer = spawn(1).spawn("s", Stopping).step.call_one(1)
    link.begin()
    assert kinds() == [OUTPUT, PROMPT]
    (number,) = numbers

    def send(line: str) -> None:
        assert ask(hub, hub.root, Send(number, 1, line)).get() == ""

    send("n")
    assert kinds() == [RUNNING, OUTPUT, PROMPT]
    send("c")
    assert answer.get() == 3


def test_init_and_supervise_and_threads_of_actors_stop_too(spawn: Spawn) -> None:
    procs = spawn(1)
    with person() as user:
        early = procs.spawn("early", Stopping, True)
        (row,) = user.wait_stopped()
        assert row.place.line.function == "__init__"
        user.type("c")
        assert early.say.call_one("up").get() == "up"
        early.own_one_that_fails.call_one().get()
        (row,) = user.wait_stopped()
        assert row.place.line.function == "__supervise__"
        user.type("attach early 0", "n", "n", "c")
        user.expect("Detached from debug session for early 0")
        answer = early.in_a_thread.call_one()
        (row,) = user.wait_stopped()
        assert [line.function for line in row.place.stack][-1] == "_stop"
        user.type("c")
        assert answer.get() == 7
        wait_until(lambda: user.rows() == [], what="the end of the session")


def test_continue_goes_to_the_next_breakpoint_of_the_same_endpoint(spawn: Spawn) -> None:
    actor = spawn(1).spawn("s", Stopping)
    with person() as user:
        answer = actor.twice.call_one()
        user.wait_stopped()
        user.type("attach s 0", "c")
        user.expect("-> breakpoint()")
        user.expect("-> breakpoint()")
        user.type("found = 'changed'", "c")
        user.expect("Detached from debug session for s 0: the endpoint has returned")
        assert answer.get() == "changed"


def test_stepping_past_the_end_of_the_endpoint_ends_the_session(spawn: Spawn) -> None:
    actor = spawn(1).spawn("s", Stopping)
    with person() as user:
        answer = actor.step.call_one(1)
        user.wait_stopped()
        user.type("attach s 0", "n", "n", "n", "n")
        user.expect("Detached from debug session for s 0: the endpoint has returned")
        assert answer.get() == 3
        assert actor.say.call_one("on").get() == "on"


def test_quit_ends_one_session_and_its_caller_gets_one_error(spawn: Spawn) -> None:
    actors = spawn(2).spawn("s", Stopping)
    with person() as user:
        first, second = (actors.slice(gpus=rank).step.call_one(1) for rank in range(2))
        user.wait_stopped(2)
        user.type("attach s 0", "q")
        user.expect("Detached from debug session for s 0: the endpoint has raised")
        with pytest.raises(
            ActorError, match=r"s 0 was quit in the debugger, in step\(\) at .*stopping\.py:\d+"
        ) as caught:
            first.get()
        assert "session.py" not in str(caught.value)
        (row,) = user.wait_stopped()
        assert row.who.rank == 1
        user.type("c")
        assert second.get() == 3
        assert actors.slice(gpus=0).say.call_one("on").get() == "on"


def test_detach_leaves_it_waiting_and_who_comes_back_sees_what_was_said(spawn: Spawn) -> None:
    actor = spawn(1).spawn("s", Stopping)
    with person() as user:
        answer = actor.step.call_one(4)
        user.wait_stopped()
        user.type("attach s 0", "p doubled", "detach")
        user.expect("Detaching from debug session for s 0\n")
        user.expect("Detached from debug session for s 0\n")
        assert user.wait_stopped()
        user.type("attach s gpus=0")
        user.expect("<last pdb output for s 0 follows>")
        user.expect("8")
        user.type("c")
        assert answer.get() == 12


def test_cast_sends_a_command_to_the_selected_ranks(spawn: Spawn) -> None:
    actors = spawn({"x": 2, "y": 2}).spawn("s", Stopping)
    with person() as user:
        answer = actors.step.call(1)
        user.wait_stopped(4)
        user.type(
            "cast s ranks(y=1) doubled = 10",
            "cast s ranks(0:1) doubled = 20",
            "cast nobody ranks(1) c",
        )
        user.type("attach s 3", "p doubled")
        user.expect("10")
        user.type("detach", "continue")
        assert answer.get().values() == [21, 11, 3, 11]


def test_equal_stacks_are_shown_once(spawn: Spawn) -> None:
    actors = spawn(3).spawn("s", Stopping)
    with person() as user:
        answers: list[Future[Any]] = [
            actors.slice(gpus=slice(0, 2)).step.call(1),
            actors.slice(gpus=2).twice.call_one(),
        ]
        rows = user.wait_stopped(3)
        user.type("where --all")
        shown = user.expect("1 rank: s 2")
        assert "2 ranks: s 0-1" in shown and shown.count("in step()") == 1
        user.expect("in twice()")
        user.type("c")
        user.wait_stopped(1, rows)
        user.type("c")
        for each in answers:
            each.get()


def test_one_terminal_drives_a_session_and_another_may_take_it_over(spawn: Spawn) -> None:
    actor = spawn(1).spawn("s", Stopping)
    with person() as first, person() as second:
        answer = actor.step.call_one(1)
        first.wait_stopped()
        first.type("attach s 0")
        first.expect("(Pdb) ")
        second.type("attach s 0")
        second.expect("is attached to s 0: `attach s 0 --take` takes it over")
        second.type("cast s ranks(0) c")
        second.expect("is attached")
        second.type("attach s 0 --take")
        second.expect("(Pdb) ")
        first.expect("[the session is over: press Enter]")
        first.type("c")
        first.expect("has taken over s 0")
        second.type("doubled = 7", "c")
        assert answer.get() == 8


def test_an_exception_under_the_debugger_stops_where_it_was_raised(spawn: Spawn) -> None:
    actor = spawn(1).spawn("s", Stopping)
    with person() as user:
        answer = actor.fail.call_one(True)
        user.wait_stopped()
        user.type("attach s 0", "c")
        user.expect("ValueError: no such thing")
        user.expect('-> raise ValueError("no such thing")')
        user.type("p stops", "c")
        user.expect("True")
        user.expect("Detached from debug session for s 0: the endpoint has raised")
        with pytest.raises(ActorError, match="no such thing"):
            answer.get()


@pytest.mark.parametrize("kind", [Stopping, AsyncStopping])
def test_with_debug_on_error_an_endpoint_that_raises_is_kept_at_its_frame(
    kind: type[Stopping], spawn: Spawn
) -> None:
    with configured(debug_on_error=True):
        actor = spawn(1).spawn("s", kind)
    with person() as user:
        answer = actor.fail.call_one(*([False] if kind is Stopping else []))
        (row,) = user.wait_stopped()
        assert (
            row.place.why == "raised ValueError: no such thing"
            and row.place.line.function == "fail"
        )
        user.type("attach s 0", "p type(self).__name__", "c")
        user.expect(f"'{kind.__name__}'")
        with pytest.raises(ActorError, match="no such thing"):
            answer.get()


def test_with_debug_on_error_an_actor_is_kept_in_the_init_that_raises(
    spawn: Spawn, faults: Faults
) -> None:
    with configured(debug_on_error=True):
        procs = spawn(1)
    with person() as user:
        procs.spawn("s", Unmade)
        (row,) = user.wait_stopped()
        assert row.place.line.function == "__init__"
        assert len(faults) == 0
        user.type("attach s 0", "p self.parts", "c")
        user.expect("[1, 2]")
        faults.wait_for(1)


class Unmade(Actor):
    def __init__(self) -> None:
        self.parts = [1, 2]
        raise ValueError("half made")

    @endpoint
    def hello(self) -> None: ...


def test_what_is_not_looked_at_is_not_kept_longer_than_configured(spawn: Spawn) -> None:
    with configured(debug_on_error=True, debug_on_error_timeout="0.5s"):
        actor = spawn(1).spawn("s", Stopping)
    answer = actor.fail.call_one(False)
    with pytest.raises(ActorError, match="no such thing"):
        answer.get()


def test_two_endpoints_of_one_actor_have_sessions_of_their_own(spawn: Spawn) -> None:
    actor = spawn(1).spawn("s", AsyncStopping)
    with person() as user:
        one = actor.wait_and_stop.call_one("one")
        user.wait_stopped()
        # on it goes, to the await, where the loop takes up the next
        user.type("attach s 0", "n", "p name")
        user.expect("'one'")
        user.type("n")
        other = actor.wait_and_stop.call_one("other")
        wanted = [("0", False), ("0/2", True)]
        wait_until(
            lambda: [(row.label, row.stopped) for row in user.rows()] == wanted,
            what="the other one to stop",
        )
        with person() as second:
            second.type("attach s 0/2", "p name", "n", "n")
            second.expect("'other'")
            actor.open.broadcast()
            user.expect('-> return name + "!"')
            user.type("name = 'changed'", "c")
            assert one.get() == "changed!"
            second.expect('-> return name + "!"')
            second.type("c")
            assert other.get() == "other!"


def test_a_breakpoint_from_outside_stops_the_ranks_that_it_names(spawn: Spawn) -> None:
    actors = spawn(2).spawn("s", Stopping)
    actors.say.call("up").get()
    place = f"stopping.py:{line_of('# adding')}"
    with person() as user:
        user.type(f"break {place} if number == 3 ranks(1)", "break")
        user.expect("in 1 proc")
        user.expect(" if number == 3 in 1 proc")
        answers = actors.add.call(5)
        (row,) = user.wait_stopped()
        assert (row.who.rank, row.place.why) == (1, "a breakpoint")
        user.type("attach s 1", "p (number, total)")
        user.expect("(3, 3)")
        user.type("detach", f"clear {place}", "break", "c")
        user.expect("Cleared 1 breakpoint")
        user.expect("There are no breakpoints.")
        assert answers.get().values() == [10, 10]
        user.type("break stopping.py:100000", "break stopping.py:1 if 1 +")
        user.expect("s 0, s 1: Line")
        user.expect("is no expression")


def test_interrupt_stops_a_rank_that_never_returns(spawn: Spawn) -> None:
    actors = spawn(2).spawn("s", Stopping)
    with person() as user:
        answer = actors.slice(gpus=1).spin.call_one()
        user.type("interrupt s 1")
        user.expect("s 1: ")
        (row,) = user.wait_stopped()
        assert (row.place.line.function, row.who.rank) == ("spin", 1)
        user.type("attach s 1", "self.spins = False", "c")
        assert answer.get() > 0
        user.type("interrupt s 7")
        user.expect("No actor s 7")


def test_a_rank_in_the_debugger_is_stopped_with_its_mesh(spawn: Spawn) -> None:
    actors = spawn(1).spawn("s", Stopping)
    with person() as user:
        answer = actors.step.call_one(1)
        user.wait_stopped()
        actors.stop().get()
        assert answer.exception() is not None
        wait_until(lambda: user.rows() == [], what="the end of the session")


def test_an_actor_goes_by_the_name_of_its_mesh_and_stacks_say_where_it_has_stopped(
    spawn: Spawn,
) -> None:
    actors = spawn(2, name="trainers").spawn("s", Stopping)
    with person() as user:
        answers = actors.step.call(2, 1)
        user.wait_stopped()
        (stopped,) = [
            each
            for each in this_host().stacks().get(timeout=PATIENCE).classes
            if each.mesh == "trainers" and each.ranks == (1,)
        ]
        line = stopped.lines[0]  # by which the dashboard knows that it is to be attached
        assert (line.kind, line.frame.function) == ("monarch", "breakpoint")
        user.type("attach nobody 1", "attach trainers 1")
        user.expect("No debug session for nobody 1: none of that name has stopped")
        user.expect("Attached to debug session for s 1")
        user.type("detach")
        user.expect("Detached from debug session for s 1")
        user.type("interrupt nobody 0")
        user.expect("No actor nobody 0, and no mesh of that name")
        user.type("cast trainers ranks(1) continue")
        assert answers.get(timeout=PATIENCE).values() == [6, 6]


def test_wrong_commands_say_what_would_be_right(spawn: Spawn) -> None:
    with person() as user:
        user.type(
            "", "atach s 0", "attach s", "attach s x", "cast s 3 n", "attach s 0", "help", "where"
        )
        user.expect("Error parsing input: no command 'atach'")
        user.expect("Error parsing input: attach takes a name and a rank")
        user.expect("Error parsing input: 'x'")
        user.expect("Error parsing input: cast takes a name, ranks and a pdb command")
        user.expect("Error processing command: No debug session for s 0")
        user.expect("who is in the debugger")
        user.expect("No rank has stopped.")


def test_what_is_typed_can_be_completed_from_the_names_of_the_frame(spawn: Spawn) -> None:
    actor = spawn(1).spawn("s", Stopping)
    with person() as user:
        answer = actor.step.call_one(1)
        user.wait_stopped()
        assert user.complete("at", 0, 2) == ["attach"]
        assert user.complete("attach ", 7, 7) == ["s"]
        assert user.complete("attach s ", 9, 9) == ["0"]
        user.type("attach s 0")
        user.expect("(Pdb) ")
        assert user.complete("p doub", 2, 6) == ["doubled"]
        assert "self.count" in user.complete("p self.co", 2, 9)
        user.type("c")
        answer.get()


def test_time_limits_of_calls_do_not_run_out_during_a_look(spawn: Spawn) -> None:
    actor = spawn(1).spawn("s", Stopping)
    with person() as user:
        answer = actor.step.call_one(1)
        user.wait_stopped()
        limited = actor.step.options(timeout=0.1).call_one(2)
        results: list[int] = []
        reader = threading.Thread(target=lambda: results.append(answer.get(timeout=0.1)))
        reader.start()
        with pytest.raises(TimeoutError):
            answer.get(timeout=0)
        reader.join(1.0)  # ten times its limit
        assert reader.is_alive() and not limited.done()
        user.type("c")
        reader.join(20)
        assert results == [3]
        user.wait_stopped()
        user.type("c")
        assert limited.get() == 6


def test_a_thread_that_outlives_its_endpoint_can_be_debugged(spawn: Spawn) -> None:
    actor = spawn(1).spawn("s", Stopping)
    with person() as user:
        actor.leave_a_thread.call_one().get()
        actor.go.call_one().get()
        user.wait_stopped()
        assert actor.say.call_one("on").get() == "on"
        user.type("attach s 0", "n", "p self.count", "c")
        user.expect("Detached from debug session for s 0: its thread goes on")
        assert user.rows() == []


def test_a_forked_child_says_that_the_debugger_does_not_reach_it(spawn: Spawn) -> None:
    assert (
        "the debugger does not reach it"
        in spawn(1).spawn("s", Stopping).fork_and_stop.call_one().get()
    )


def test_the_prompt_opens_in_a_program_by_itself_too() -> None:
    result = run_script(
        """
        import time
        from monarch.actor import Actor, endpoint, this_host
        from monarch.debugger import debug

        class Trainer(Actor):
            @endpoint
            def step(self, number):
                breakpoint()
                return number

        if __name__ == "__main__":
            trainer = this_host().spawn_procs(per_host={"gpus": 1}).spawn("trainer", Trainer)
            answer = trainer.step.call_one(4)
            while not answer.done():
                time.sleep(0.1)
                debug()
            print("answer", answer.get())
        """,
        # `cont` is pdb's own: outside a session it is no command, so it continues nobody who has
        # stopped since `attach` found no one.
        stdin="attach trainer 0\ncont\nq\n" * 100,
    )
    assert result.exit_code == 0, str(result)
    assert "answer 4" in result.stdout and "(Pdb)" in result.stdout, str(result)


def test_the_client_gives_the_source_of_what_it_has_loaded_and_of_nothing_else(
    tmp_path: Path,
) -> None:
    secret = tmp_path / "secret.py"
    secret.write_text("token = 1\n")
    assert sources.read(str(secret)) is None
    assert "def test_the_client_gives" in (sources.read(__file__) or "")


def test_the_commands_of_pdb_do_what_they_do_in_any_program(spawn: Spawn) -> None:
    actor = spawn(1).spawn("s", Stopping)
    with person() as user:
        answer = actor.compute.call_one(4)
        user.wait_stopped()
        user.type("attach s 0", "s", "s", "u", "p number + 100", "d", "r")
        for shown in (
            "-> total = self.double(number)",
            "--Call--",
            "-> total = self.double(number)",
            "104",
            "--Return--",
        ):
            user.expect(shown)
        user.type("interact", "for each in range(2):", "    print('each', each + 40)", "", "exit()")
        user.expect("each 41")
        user.type("debug self.double(50)", "s", "s", "s", "p doubled", "c", "p 'again'")
        for shown in (
            "ENTERING",
            "((Pdb)) ",
            "-> doubled = number * 2",
            "100",
            "LEAVING",
            "'again'",
        ):
            user.expect(shown)
        user.type(
            f"tbreak {line_of('# the sum')}", "c", "p total", "total = 5", "cl", "restart", "c"
        )
        for shown in (
            "-> return total",
            "11",
            "Cleared all breakpoints",
            "an actor is not restarted from here",
        ):
            user.expect(shown)
        assert answer.get() == 5


def test_two_sessions_of_one_proc_print_each_to_its_own_terminal_and_leave_stdout(
    spawn: Spawn,
) -> None:
    procs = spawn(1)
    answers = [procs.spawn(name, Stopping).step.call_one(1) for name in ("a", "b")]
    with person() as first, person() as second:
        first.wait_stopped(2)
        first.type(
            "attach a 0",
            "import sys, threading",
            "sys.one, sys.two = threading.Event(), threading.Event()",
        )
        first.type("print('begun', flush=True) or sys.one.wait(20) and print('first', 1)")
        first.expect("begun\n")
        second.type(
            "attach b 0", "import sys", "sys.one.set() or sys.two.wait(20) and print('second', 2)"
        )
        assert "second" not in first.expect("first 1\n")
        first.type("sys.two.set()")
        assert "first" not in second.expect("second 2\n")
        for user in (first, second):
            user.type("interact", "print('interactive', 3)")
            user.expect("interactive 3\n")
        first.type("exit()", "p 'back'")
        first.expect("'back'")
        second.type(
            "print('goes on', 4)",
            "exit()",
            "p type(sys.stdout).__module__.startswith('monarch.debugger')",
        )
        second.expect("goes on 4\n")
        second.expect("False\n")
        first.type("c")
        second.type("c")
        assert [answer.get() for answer in answers] == [3, 3]


def test_nothing_is_traced_any_more_when_sessions_and_breakpoints_are_gone(spawn: Spawn) -> None:
    actor = spawn(1).spawn("s", Stopping)
    place = f"stopping.py:{line_of('# adding')}"
    with person() as user:
        answer = actor.compute.call_one(4)
        user.wait_stopped()
        user.type("attach s 0", "n", "c")
        assert answer.get() == 11
        assert actor.is_traced.call_one().get() is False
        user.type(f"break {place}")
        user.expect("in 1 proc")
        assert actor.is_traced.call_one().get() is True
        user.type(f"clear {place}")
        user.expect("Cleared 1 breakpoint")
        assert actor.is_traced.call_one().get() is False


def test_who_is_in_the_debugger_counts_neither_as_hanging_nor_as_a_deadlock(spawn: Spawn) -> None:
    with configured(heartbeat_timeout="0.4s", deadlock_check_interval="0.1s"):
        procs = spawn(2)
        actors = procs.spawn("s", Stopping)
        with person() as user:
            answer = actors.slice(gpus=0).step_on.call_one(actors.slice(gpus=1))
            wait_until(
                lambda: (rows := user.rows()) and rows[0].since > 2 and rows[0].stopped,
                what="two seconds of a stop",
            )
            user.type("c")
            assert answer.get() == 3


def test_time_limits_of_calls_to_who_is_in_the_debugger_do_not_run_out(spawn: Spawn) -> None:
    """Of the client and of actors, also where an actor only waits for one in the debugger."""
    actors = spawn(4).spawn("s", Stopping)
    stops, first, second, third = (actors.slice(gpus=rank) for rank in range(4))
    with person() as user:
        once = stops.step.call_one(1)  # loads the debugger, which a limit need not include
        user.wait_stopped()
        user.type("c")
        once.get()
        answers = [
            first.step_on.call_one(stops, 4.0),
            second.step_on.call_one(stops, 4.0, True),
            third.step_on.options(timeout=4.0).call_one(stops),
        ]
        seen: set[int] = set()

        def stopped(seconds: float) -> list[int]:
            rows = [row for row in user.rows() if row.stopped and row.since >= seconds]
            return [row.number for row in rows if row.number not in seen]

        for seconds in (5, 0, 0):
            seen.update(wait_until(functools.partial(stopped, seconds), what="a stop"))
            user.type("c")
        assert [answer.get() for answer in answers] == [3, 3, 3]
