"""The debugger at real terminals, between hosts, and when what is debugged, or who debugs, dies."""

from __future__ import annotations

import linecache
import os
import re
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from helpers.debugging import at_terminal, monarch_debug, person
from helpers.serving import door_of_debugger
from helpers.stopping import AsyncStopping, Stopping
from helpers.waiting import PATIENCE, wait_until
from helpers.workers import workers
from monarch._core.plane import current_hub
from monarch.actor import SupervisionError, attach_to_workers
from monarch.debugger import server

if TYPE_CHECKING:
    from conftest import Spawn
    from helpers.faults import Faults

pytestmark = pytest.mark.processes("terminals that debug other processes")

SCRIPT = """
import os
from monarch.actor import Actor, endpoint, this_host

class Trainer(Actor):
    @endpoint
    def step(self, number):
        doubled = number * 2
        breakpoint()
        return doubled

if __name__ == "__main__":
    print("pid", os.getpid(), flush=True)
    trainer = this_host().spawn_procs(per_host={"gpus": 1}).spawn("trainer", Trainer)
    print(f'answer {trainer.step.call_one(4).get()}', flush=True)
"""


@pytest.fixture
def script(tmp_path: Path) -> list[str]:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return [sys.executable, str(path)]


def test_a_rank_is_debugged_from_another_terminal_with_history_and_completion(
    spawn: Spawn, tmp_path: Path
) -> None:
    actor = spawn(1).spawn("s", Stopping)
    answer = actor.step.call_one(4)
    with monarch_debug(HOME=str(tmp_path)) as terminal:
        terminal.expect("monarch_dbg>")
        terminal.type("li\t", end="")
        terminal.expect("st")  # what was typed is there already
        terminal.type("")
        terminal.expect("| s ")
        terminal.expect("monarch_dbg>")
        terminal.type("attach s 0")
        terminal.expect("(Pdb)")
        # a builtin, in its colour
        assert re.search(r"-> \x1b\[\d+mbreakpoint\x1b\[", terminal.seen)
        terminal.type("p doubl\t", end="")
        terminal.expect("ed")  # what was typed is there already
        terminal.type("")
        terminal.expect("8\n")
        terminal.type("\x1b[A")  # arrow up
        terminal.expect("8\n")
        terminal.type("detach")
        terminal.expect("Detached from")
        terminal.type("c")
        assert answer.get() == 12
        terminal.type("quit")
        terminal.expect("Quitting debug session...")
        assert terminal.process.wait(20) == 0
    history = tmp_path / ".monarch" / "debug_history"
    assert history.read_text().count("+p doubled") >= 1
    assert [path.stat().st_mode & 0o777 for path in (history.parent, history)] == [0o700, 0o600]


def test_commands_may_come_from_a_file(spawn: Spawn) -> None:
    actor = spawn(1).spawn("s", Stopping)
    answer = actor.step.call_one(4)
    with person() as user:
        user.wait_stopped()
    done = subprocess.run(
        [sys.executable, "-m", "monarch.tools", "debug", "--program", str(os.getpid())],
        input="list\nattach s 0\np doubled\nc\nlist\n",
        capture_output=True,
        text=True,
        timeout=50,
        check=True,
    )
    assert (
        "| s " in done.stdout
        and "(Pdb) p doubled\n8\n" in done.stdout
        and "the endpoint has returned" in done.stdout
    )
    assert "No rank is in the debugger." in done.stdout
    assert answer.get() == 12


def test_the_client_says_who_has_stopped_and_enter_attaches_there(script: list[str]) -> None:
    with at_terminal(script) as terminal:
        terminal.expect("monarch: trainer 0 has stopped in step() at ")
        terminal.expect("train.py:9")
        terminal.expect("run `monarch debug` in another terminal, or press Enter here")
        terminal.type("")
        terminal.expect("monarch_dbg> ")
        terminal.type("attach trainer 0", "\n")
        terminal.expect("(Pdb) ")
        terminal.type("doubled = 5", "\n")
        terminal.expect("(Pdb) ")
        terminal.type("c", "\n")
        terminal.expect("answer 5")
        assert terminal.process.wait(20) == 0


def test_a_client_that_does_not_wait_keeps_its_input(script: list[str], tmp_path: Path) -> None:
    path = tmp_path / "reads.py"
    last = "print(f'answer {trainer.step.call_one(4).get()}', flush=True)"
    path.write_text(
        SCRIPT.replace(
            last, 'future = trainer.step.call_one(4); print("got", input("name? "), flush=True)'
        )
    )
    with at_terminal([sys.executable, str(path)]) as terminal:
        terminal.expect("press Enter here")
        terminal.type("Ada")
        terminal.expect("got Ada")


def test_a_proc_that_dies_while_it_is_debugged_ends_its_session(
    spawn: Spawn, faults: Faults
) -> None:
    procs = spawn(2)
    actors = procs.spawn("s", Stopping)
    with person() as user:
        answer = actors.step.call(1)
        rows = user.wait_stopped(2)
        user.type("attach s 0")
        user.expect("(Pdb) ")
        os.kill(rows[0].who.pid, signal.SIGKILL)
        user.expect("[the session is over: press Enter]")
        user.type("p 1")
        user.expect("Detached from debug session for s 0: its process has ended")
        user.expect("monarch_dbg> ")
        (left,) = user.wait_stopped()
        assert left.who.rank == 1
        user.type("c")
        with pytest.raises(SupervisionError):
            answer.get()
    faults.wait_for(1)


def test_a_client_that_dies_ends_what_is_debugged_and_the_prompt(script: list[str]) -> None:
    with at_terminal(script) as program:
        program.expect("has stopped")
        pid = int(re.findall(r"pid (\d+)", program.text)[0])
        with monarch_debug(pid, TERM="dumb") as terminal:
            terminal.expect("monarch_dbg> ")
            terminal.type("attach trainer 0")
            terminal.expect("(Pdb) ")
            os.kill(pid, signal.SIGKILL)
            terminal.expect("the session is over")
            terminal.type("p 1")
            terminal.expect("The program has ended")
            assert terminal.process.wait(20) == 1, terminal.text  # of `p 1`, which nothing answers


def test_a_terminal_that_dies_leaves_the_session_to_others(spawn: Spawn) -> None:
    actor = spawn(1).spawn("s", Stopping)
    answer = actor.step.call_one(1)
    with person() as user:
        user.wait_stopped()
        with monarch_debug(TERM="dumb") as terminal:
            terminal.expect("monarch_dbg> ")
            terminal.type("attach s 0")
            terminal.expect("(Pdb) ")
            (row,) = user.rows()
            assert f"(pid {terminal.process.pid})" in row.driver
            os.kill(terminal.process.pid, signal.SIGKILL)
            wait_until(lambda: not user.rows()[0].driver, what="the terminal to be detached")
        user.type("attach s 0", "c")
        assert answer.get() == 3


def test_ctrl_c_detaches_from_a_rank_that_goes_on(spawn: Spawn) -> None:
    actor = spawn(1).spawn("s", Stopping)
    answer = actor.spin.call_one()
    with monarch_debug(TERM="dumb") as terminal, person() as user:
        for last in ("c", "self.spins = False"):
            terminal.expect("monarch_dbg> ")
            terminal.type("interrupt s 0")
            user.wait_stopped()
            terminal.expect("monarch_dbg> ")
            terminal.type("attach s 0")
            terminal.expect("(Pdb) ")
            terminal.type(last)
            if last == "c":
                wait_until(lambda: not user.rows()[0].stopped, what="the rank to go on")
                terminal.type("\x03", end="")
                terminal.expect("Detached from debug session for s 0")
        terminal.expect("(Pdb) ")
        terminal.type("c")
        assert answer.get() > 0


def test_two_terminals_debug_one_program_at_a_time(spawn: Spawn) -> None:
    actors = spawn(2).spawn("s", Stopping)
    answer = actors.step.call(1)
    with monarch_debug(TERM="dumb") as one, monarch_debug(TERM="dumb") as other:
        for rank, terminal in enumerate((one, other)):
            terminal.expect("monarch_dbg> ")
            with person() as user:
                user.wait_stopped(2)
            terminal.type(f"attach s {rank}")
            terminal.expect("(Pdb) ")
        one.type("p self.count + 41")
        one.expect("41\n")
        other.type("detach")
        other.expect("Detached from")
        other.type("attach s 0")
        other.expect("is attached to s 0")
        other.type("attach s 1")
        other.expect("(Pdb) ")
        one.type("c")
        one.expect("Detached from")
        other.type("c")
        assert answer.get().values() == [3, 3]


def test_ranks_on_attached_hosts_stop_and_are_told_apart(spawn_far: Spawn) -> None:
    actors = spawn_far(2).spawn("s", Stopping)
    async_actors = spawn_far(1).spawn("a", AsyncStopping)
    with person() as user:
        answers = actors.step.call(1, 1, 5)
        later = async_actors.slice(hosts=2).step.call_one(4)
        rows = user.wait_stopped(3)
        assert [(row.who.name, row.who.coordinates) for row in rows] == [
            ("a", {"hosts": 2, "gpus": 0}),
            ("s", {"hosts": 0, "gpus": 1}),
            ("s", {"hosts": 2, "gpus": 1}),
        ]
        user.type("attach s hosts=2", "p tripled")
        user.expect("NameError")
        user.type("n", "doubled = 10", "p doubled", "c")
        user.expect("Detached from debug session for s 5")
        user.type("cast s ranks(1) c", "attach a 2", "q")
        assert answers.get().values()[1] == 3
        assert later.exception() is not None


def test_a_host_that_is_lost_is_named_and_keeps_no_command_from_the_others(spawn: Spawn) -> None:
    with workers(1) as lost:
        hosts = attach_to_workers(workers=lost.addresses)
        assert hosts.initialized.get()
        lost.kill_agent(0)
        actor = spawn(1).spawn("s", Stopping)
        answer = actor.spin.call_one()
        with person() as user:
            user.type("interrupt s 0")
            (row,) = user.wait_stopped()
            shown = user.expect("s 0: in spin()")
            pattern = r"^(?:monarch_dbg> )?host (.*) can't be reached: .+$"
            named = {*re.findall(pattern, shown, re.MULTILINE)}  # each command says so
            # others may be, too, that an earlier test has left for dead
            assert lost.addresses[0] in named and row.who.host not in named
            user.type("attach s 0", "self.spins = False", "c")
            assert answer.get()
        hosts.stop().get()


def test_another_terminal_reaches_ranks_on_attached_hosts(spawn_far: Spawn) -> None:
    actors = spawn_far(1).spawn("s", Stopping)
    answers = actors.step.call(1, 2)
    with monarch_debug(TERM="dumb") as terminal, person() as user:
        user.wait_stopped()
        terminal.expect("monarch_dbg> ")
        terminal.type("attach s 2")
        terminal.expect("(Pdb) ")
        terminal.type("p doubled")
        terminal.expect("2\n")
        terminal.type("c")
        terminal.expect("the endpoint has returned")
        assert answers.get().values() == [3, 3, 3]
        spinning = actors.slice(hosts=1).spin.call_one()
        terminal.type("interrupt s hosts=1")
        terminal.expect("s 1: ")
        user.wait_stopped()
        terminal.type("attach s 1")
        terminal.expect("(Pdb) ")
        terminal.type("self.spins = False")
        terminal.type("c")
        assert spinning.get() > 0


def test_a_port_is_open_only_where_asked_for_and_takes_no_user_without_the_token(
    script: list[str],
) -> None:
    with at_terminal(script, MONARCH_DEBUG_SERVER_PORT="0") as program:
        program.expect("the debugger listens at 127.0.0.1:")
        shown = program.expect("has stopped")
        port, token = re.findall(r"^(\d+); .* this token: (\S+)", shown)[0]
        for first, answer in (("list", b"not the token"), (token, b"MONARCH DEBUGGER")):
            with socket.create_connection(("127.0.0.1", int(port)), 20) as connection:
                connection.settimeout(20)
                connection.sendall(f"{first}\nlist\nattach trainer 0\nc\n".encode())
                came = b""
                while data := connection.recv(65536):
                    came += data
                    if b"returned" in came:
                        break
                assert answer in came and (b"trainer" in came) == (first == token)
        program.expect("answer 8")


@pytest.fixture
def port() -> Iterator[tuple[str, int]]:
    """Where the debugger of this process listens, for the token `token`."""
    with door_of_debugger(current_hub(), "token") as where:
        yield where


def say(connection: socket.socket, text: str, until: str) -> None:
    connection.settimeout(PATIENCE)
    connection.sendall(text.encode())
    came = b""
    while until.encode() not in came:
        data = connection.recv(65536)
        assert data, came
        came += data


def test_a_connection_that_hangs_up_is_detached_from_a_rank_that_waits_or_runs(
    spawn: Spawn, port: tuple[str, int]
) -> None:
    actor = spawn(1).spawn("s", Stopping)
    answer = actor.spin.call_one()
    with person() as user:
        user.type("interrupt s 0")
        user.wait_stopped()
        waits, runs = (socket.create_connection(port) for _ in range(2))
        say(waits, "token\nattach s 0\n", "(Pdb) ")
        assert user.rows()[0].driver
        # it is reset
        waits.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        waits.close()
        wait_until(lambda: not user.rows()[0].driver, what="the first one to be detached")
        say(runs, "token\nattach s 0\n", "(Pdb) ")
        runs.sendall(b"c\n")
        wait_until(lambda: not user.rows()[0].stopped, what="the rank to go on")
        assert user.rows()[0].driver
        runs.close()
        wait_until(lambda: not user.rows()[0].driver, what="the second one to be detached")
        user.type("interrupt s 0")
        user.wait_stopped()
        user.type("attach s 0", "self.spins = False", "c")
        assert answer.get() > 0


def test_connections_without_the_token_do_not_keep_out_who_has_it(port: tuple[str, int]) -> None:
    silent = [socket.create_connection(port) for _ in range(server._MOST + 2)]
    with socket.create_connection(port) as owner:
        say(owner, "token\nlist\n", "No rank is in the debugger.")
    for each in silent:
        each.close()


def test_a_token_that_is_typed_for_ever_is_not_waited_for(
    port: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_PATIENCE", 0.3)
    with socket.create_connection(port) as slow:
        slow.settimeout(0.05)

        def hung_up() -> bool:
            try:
                slow.sendall(b"x")
                return not slow.recv(1)
            except TimeoutError:
                return False
            except ConnectionError:
                return True

        wait_until(hung_up, what="the end of the connection")


def test_source_that_only_the_client_has_is_shown_by_the_rank(spawn: Spawn) -> None:
    name = "<ipython-input-7-of-a-test>"
    text = (
        "def run(number):\n    inner = number + 1  # only here\n    breakpoint()\n    return inner"
        " / 0  # nor here\n"
    )
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    names: dict[str, object] = {"__name__": "__main__"}
    exec(compile(text, name, "exec"), names)
    actor = spawn(1).spawn("s", Stopping)
    with person() as user:
        answer = actor.trace.call_one(names["run"])
        user.wait_stopped()
        user.type("attach s 0", "l", "c")
        user.expect("-> breakpoint()")
        user.expect("inner = number + 1  # only here")
        assert "return inner / 0  # nor here" in answer.get()
