"""An editor debugs a rank by the Debug Adapter Protocol: scripted, over a real socket, through a
terminal and the program.
"""

from __future__ import annotations

import errno
import functools
import json
import os
import signal
import socket
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from helpers.editors import Editor, NotedPort
from helpers.stopping import Stopping
from helpers.terminals import RunningProgram, killed_after, running
from helpers.waiting import PATIENCE, wait_until
from helpers.workers import SECRET, workers
from monarch._core import plane
from monarch._core.plane import ProcAddress
from monarch.actor import ProcMesh
from monarch.config import configured
from monarch.debugger import dap, editors
from monarch.debugger.protocol import Attach, Detach, Said

if TYPE_CHECKING:
    from conftest import Spawn

pytestmark = pytest.mark.processes("debuggers of other processes")

pytest.importorskip("debugpy")

# Calls `step` of rank 1 with each number on its input, and the endpoint that any other line names;
# a second word is a time limit.
PROGRAM = """
    import os, sys, threading
    from monarch.actor import Actor, SupervisionError, attach_to_workers, endpoint, this_host

    class Trainer(Actor):
        def __init__(self):
            self.steps = 0
        @endpoint
        def pid(self):
            return os.getpid()
        @endpoint
        def step(self, size):
            total = size * 2
            self.steps += 1  # a breakpoint is here
            return total + self.steps
        @endpoint
        def pause(self):
            paused = "here"
            breakpoint()
            return paused
        @endpoint
        def debugged(self):
            threads = [thread.name for thread in threading.enumerate() if "pydevd" in thread.name]
            return sys.gettrace() is not None, threads

    if __name__ == "__main__":
        workers = sys.argv[1:] or {workers!r}
        os.chdir(os.path.dirname(os.path.abspath(__file__)))
        hosts = attach_to_workers(workers=workers) if workers else this_host()
        per_host = {{"gpus": 1}} if workers else {{"gpus": 2}}
        trainers = hosts.spawn_procs(per_host, name="trainers").spawn("trainer", Trainer)
        pids = trainers.pid.call().get().values()
        print("go", *pids, flush=True)
        second = trainers.slice(**{{trainers.extent.labels[0]: 1}})
        for line in sys.stdin:
            words = line.split()
            if words[0].isdigit():
                answer = second.step.call_one(int(words[0]))
            else:
                answer = getattr(second, words[0]).call_one()
            try:
                print("answer", answer.get(timeout=float(words[-1]) if len(words) == 2 else 60), flush=True)
            except SupervisionError:
                print("lost", flush=True)
                os._exit(0)
    """


def line_of_the_breakpoint(script: Path) -> int:
    lines = script.read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if "a breakpoint is here" in line)


def say(program: RunningProgram, text: str) -> None:
    assert program.process.stdin is not None
    program.process.stdin.write(f"{text}\n")
    program.process.stdin.flush()


@contextmanager
def terminal(
    program: RunningProgram, as_json: bool = False
) -> Iterator[tuple[subprocess.Popen[str], tuple[str, str]]]:
    """`monarch debug --dap`, where an editor can attach, and the token."""
    asked = (
        "-p",
        str(program.pid),
        "--dap",
        "trainers[1]",
        *(["--json"] if as_json else []),
    )
    with program.start_monarch("debug", *asked) as command:
        line = next_line(command)
        said = "trainers[1]: an editor can attach; for launch.json: "
        if as_json:
            told = json.loads(line)
            where = told.pop("address"), told.pop("token")
            assert told == {"mesh": "trainers", "rank": 1}
        else:
            assert line.startswith(said), line
            where = where_of(json.loads(line.removeprefix(said)))
        try:
            yield command, where
        finally:
            command.kill()


def where_of(entry: dict[str, Any]) -> tuple[str, str]:
    """The address and the token of a launch configuration."""
    return "{host}:{port}".format(**entry["connect"]), entry["monarchToken"]


def next_line(command: subprocess.Popen[str]) -> str:
    assert command.stdout is not None
    with killed_after(60, command):
        return command.stdout.readline().strip()


def test_an_editor_debugs_a_rank_of_an_attached_host_again_and_again(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    with (
        workers(2) as attached,
        running(
            PROGRAM.format(workers=attached.addresses), tmp_path, {"MONARCH_SECRET": SECRET}
        ) as program,
    ):
        program.wait_for("go")
        say(program, "debugged")
        untouched = program.wait_for("answer")
        with terminal(program) as (command, where):
            for steps in (1, 2):
                editor = Editor(*where)
                editor.attach(str(script), line_of_the_breakpoint(script))
                assert next_line(command) == "trainers[1]: an editor is attached"
                say(program, "21")
                stopped = editor.event("stopped")
                frame, *_ = editor.stack(stopped["threadId"])
                assert (frame["name"], frame["line"]) == ("step", line_of_the_breakpoint(script))
                assert {"size": "21", "total": "42"}.items() <= editor.variables(frame).items()
                assert editor.ask("evaluate", expression="self.steps", frameId=frame["id"])[
                    "result"
                ] == str(steps - 1)
                editor.ask("continue", threadId=stopped["threadId"])
                assert program.wait_for("answer") == f"answer {42 + steps}"
                editor.ask("disconnect")
                editor.close()
                assert next_line(command) == "trainers[1]: the editor has left"
                say(program, "debugged")
                assert program.wait_for("answer") == untouched == "answer (False, [])"


@pytest.mark.parametrize("who", ["editor", "terminal"])
def test_a_rank_at_a_breakpoint_goes_on_when_who_debugs_it_vanishes(
    who: str, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    with running(PROGRAM.format(workers=[]), tmp_path) as program:
        program.wait_for("go")
        with terminal(program) as (command, where):
            editor = Editor(*where)
            editor.attach(str(script), line_of_the_breakpoint(script))
            say(program, "21")
            editor.event("stopped")
            if who == "terminal":
                command.kill()
            else:
                editor.close()
            assert program.wait_for("answer") == "answer 43"
            editor.close()


def test_an_editor_hears_of_the_death_of_its_rank(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    with running(PROGRAM.format(workers=[]), tmp_path) as program:
        pid = int(program.wait_for("go").split()[2])
        with terminal(program) as (command, where):
            editor = Editor(*where)
            editor.attach(str(script), line_of_the_breakpoint(script))
            say(program, "21")
            editor.event("stopped")
            os.kill(pid, signal.SIGKILL)
            while editor.read() is not None:
                pass
            editor.close()
            next_line(command)
            assert next_line(command).startswith("trainers[1]: the editor has left: ")
            program.wait_for("lost")


def test_with_the_setting_the_client_says_where_editors_attach_to_ranks(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    with (
        workers(2) as attached,
        running(
            PROGRAM.format(workers=attached.addresses),
            tmp_path,
            {"MONARCH_SECRET": SECRET, "MONARCH_DEBUG_ADAPTER": "1"},
        ) as program,
    ):
        program.wait_for("go")
        assert program.process.stderr is not None
        with killed_after(PATIENCE, program.process):
            told = program.process.stderr.readline()
        assert told.startswith("monarch: editors can attach to trainers[0-1]; entries")
        assert told.endswith(
            f"; entries for launch.json: {tmp_path / '.monarch' / 'launch.json'}\n"
        )
        written = tmp_path / ".monarch" / "launch.json"
        assert stat.S_IMODE(written.stat().st_mode) == 0o600
        entries = json.loads(written.read_text())["configurations"]
        assert [entry["name"] for entry in entries] == ["trainers[0]", "trainers[1]"]
        editor = Editor(*where_of(entries[1]))
        editor.attach(str(script), line_of_the_breakpoint(script))
        say(program, "21")
        stopped = editor.event("stopped")
        frame, *_ = editor.stack(stopped["threadId"])
        assert {"size": "21", "total": "42"}.items() <= editor.variables(frame).items()
        editor.ask("continue", threadId=stopped["threadId"])
        assert program.wait_for("answer") == "answer 43"
        editor.ask("disconnect")
        editor.close()


def test_the_port_of_a_rank_is_closed_when_that_ends_and_had_again_by_the_next(
    spawn: Spawn,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    entries = tmp_path / ".monarch" / "launch.json"

    def ports() -> dict[str, int]:
        found = json.loads(entries.read_text())["configurations"] if entries.exists() else []
        return {each["name"]: each["connect"]["port"] for each in found}

    said = ""
    for _ in range(2):
        with configured(debug_adapter=True):
            procs = spawn(2, name="editable")
        procs.spawn("s", Stopping).say.call("up").get()
        wait_until(lambda: len(ports()) == 2, what="two ports")
        last = ports()["editable[1]"]
        procs.stop().get()
        wait_until(lambda: ports() == {}, what="no entries")
        said += capsys.readouterr().err
        with pytest.raises(ConnectionRefusedError):
            Editor(f"127.0.0.1:{last}")
    assert said.count("monarch: editors can attach to editable[0-1]; ") == 2


def test_editors_are_offered_ranks_again_after_no_port_could_be_opened(
    spawn: Spawn,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    said: list[str] = []

    def has_said(text: str) -> bool:
        said.append(capsys.readouterr().err)
        return text in "".join(said)

    def spawned(name: str) -> ProcMesh:
        meshes.append(spawn(1, name=name))
        return meshes[-1]

    def broken(*arguments: object) -> None:
        raise errors.pop() if errors else OSError(errno.EMFILE, "too many open files")

    meshes: list[ProcMesh] = []
    errors: list[Exception] = [RuntimeError("can't start new thread")]
    with configured(debug_adapter=True):
        with monkeypatch.context() as patched:
            patched.setattr(editors, "Port", broken)
            spawned("unlucky").spawn("s", Stopping).say.call_one("up").get()
            wait_until(
                lambda: has_said("can't attach to all ranks: RuntimeError"),
                what="word of the error",
            )
            spawned("unlucky_too").spawn("s", Stopping).say.call_one("up").get()
            wait_until(lambda: has_said("2 more ranks have no port"), what="word of those without")
        spawned("lucky").spawn("s", Stopping).say.call_one("up").get()
        for mesh in ("lucky", "unlucky", "unlucky_too"):
            offer = f"editors can attach to {mesh}[0]"
            wait_until(functools.partial(has_said, offer), what=f"a port of {mesh}")
    for procs in meshes:
        procs.stop().get()
    entries = tmp_path / ".monarch" / "launch.json"
    wait_until(lambda: json.loads(entries.read_text())["configurations"] == [], what="no entries")


def test_a_rank_that_an_editor_has_stopped_is_in_the_debugger_for_all_others(
    tmp_path: Path,
) -> None:
    script = tmp_path / "train.py"
    strict = {"MONARCH_HEARTBEAT_TIMEOUT": "0.4s", "MONARCH_DEADLOCK_CHECK_INTERVAL": "0.1s"}
    with running(PROGRAM.format(workers=[]), tmp_path, strict) as program:
        program.wait_for("go")
        with terminal(program, as_json=True) as (command, where):
            editor = Editor(*where)
            editor.attach(str(script), line_of_the_breakpoint(script))
            say(program, "21 2")
            stopped = editor.event("stopped")
            who = ("debug", "-p", str(program.pid))
            typed = "list\nwhere --all\nattach trainer 1\ncast trainer ranks(1) c\ncontinue\n"
            shown = program.monarch(*who, typed=typed).stdout
            [row] = [line for line in shown.splitlines() if line.startswith("| trainer")]
            name, rank, _, _, function, line, state, attached = map(
                str.strip, row.strip("|").split("|")
            )
            assert (name, rank, function, int(line)) == (
                "trainer",
                "1",
                "step",
                line_of_the_breakpoint(script),
            )
            assert state.startswith("in an editor") and f"(pid {command.pid})" in attached
            assert (
                "1 rank: trainer 1\n" in shown
                and "self.steps += 1  # a breakpoint is here" in shown
            )
            assert "trainer 1 is in an editor, " in shown and "trainer 1: an editor, " in shown
            # takes longer than the limit of the call
            why = program.monarch("why", "-p", str(program.pid), "--seconds", "3").stdout
            assert "is stopped in an editor" in why
            editor.ask("continue", threadId=stopped["threadId"])
            assert program.wait_for("answer") == "answer 43"
            assert "No rank is in the debugger." in program.monarch(*who, typed="list\n").stdout
            editor.close()


def test_breakpoint_stops_in_the_editor_while_one_is_attached(tmp_path: Path) -> None:
    with running(PROGRAM.format(workers=[]), tmp_path) as program:
        program.wait_for("go")
        with terminal(program) as (command, where):
            editor = Editor(*where)
            editor.attach(str(tmp_path / "train.py"), 1)
            say(program, "pause")
            stopped = editor.event("stopped")
            frame, *_ = editor.stack(stopped["threadId"])
            assert frame["name"] == "pause" and editor.variables(frame)["paused"] == "'here'"
            editor.ask("continue", threadId=stopped["threadId"])
            assert program.wait_for("answer") == "answer here"
            editor.ask("disconnect")
            editor.close()
            assert [next_line(command).split(": ")[1] for _ in range(2)] == [
                "an editor is attached",
                "the editor has left",
            ]
            say(program, "pause")
            who = ("debug", "-p", str(program.pid))
            wait_until(
                lambda: "| stopped" in program.monarch(*who, typed="list\n").stdout,
                what="the breakpoint",
            )
            program.monarch(*who, typed="attach trainer 1\npaused = 'there'\nc\n")
            assert program.wait_for("answer") == "answer there"


def test_ranks_without_debugpy_and_wrong_names_are_errors_of_one_line(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['debugpy'] = None\n")
    with running(PROGRAM.format(workers=[]), tmp_path, {"PYTHONPATH": str(tmp_path)}) as program:
        program.wait_for("go")
        with terminal(program) as (command, where):
            editor = Editor(*where)
            editor.answer(editor.initialize())
            editor.send("attach", monarchToken=where[1])
            assert editor.read() is None
            assert "an editor needs debugpy in the actor's process" in next_line(command)
            editor.close()
        for wrong, status, text in (
            ("trainers", 2, "such as trainers[3]"),
            ("nobody[0]", 1, "meshes: trainers (2 ranks)"),
        ):
            result = program.monarch("debug", "-p", str(program.pid), "--dap", wrong)
            assert (result.returncode, result.stderr.count("\n")) == (status, 1)
            assert text in result.stderr


def test_what_a_web_page_posts_is_not_evaluated_in_the_rank(tmp_path: Path) -> None:
    arguments = {"expression": "open('owned', 'w').close()", "context": "repl"}
    evaluate = {"seq": 1, "type": "request", "command": "evaluate", "arguments": arguments}
    body = json.dumps(evaluate)
    with running(PROGRAM.format(workers=[]), tmp_path) as program:
        program.wait_for("go")
        with terminal(program) as (command, (address, _)):
            host, _, port = address.rpartition(":")
            with socket.create_connection((host, int(port)), timeout=PATIENCE) as page:
                page.sendall(
                    f"POST / HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
                )
                with suppress(ConnectionResetError):  # not all was read
                    assert page.recv(1) == b""
            assert "it said 'POST / HTTP/1.1" in next_line(command)
        say(program, "21")
        assert program.wait_for("answer") == "answer 43"
    assert not (tmp_path / "owned").exists()


def test_another_user_of_the_machine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(sock: object) -> None:
        raise ConnectionRefusedError("it runs as user 1, not as user 2")

    monkeypatch.setattr(plane, "check_same_user", refuse)
    told: list[str] = []
    # it gets no further
    port = dap.Port(None, ProcAddress("host", "proc"), 0, told.append, "token")  # type: ignore[arg-type]
    editor = Editor(port.address)
    assert editor.read() is None
    assert told == ["refused a connection: it runs as user 1, not as user 2"]
    editor.close()
    port.close()


def test_a_connection_that_is_reset_at_once_does_not_close_the_port(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    errors = iter(
        [OSError(errno.ENOTCONN, "not connected"), ConnectionRefusedError("another user")]
    )

    def refuse(sock: object) -> None:
        raise next(errors)

    monkeypatch.setattr(plane, "check_same_user", refuse)
    told: list[str] = []
    # it gets no further
    port = dap.Port(None, ProcAddress("host", "proc"), 0, told.append, "token")  # type: ignore[arg-type]
    for _ in range(2):
        editor = Editor(port.address)
        assert editor.read() is None
        editor.close()
    assert told == [
        "refused a connection: [Errno 107] not connected",
        "refused a connection: another user (2 so far)",
    ]
    port.close()


def test_an_editor_that_stops_reading_holds_up_nothing_and_has_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dap, "_READS_WITHIN", 1)
    opened = NotedPort(monkeypatch)
    editor = Editor(opened.port.address)
    editor.initialize()
    editor.send("attach", monarchToken="token")
    wait_until(lambda: opened.told == ["an editor is attached"], what="an editor")
    opened.say(b"x" * (1 << 24))  # returns, on this thread as on that for I/O
    wait_until(lambda: len(opened.told) == 2, what="its end")
    assert [type(record) for record in opened.sent] == [Attach, Said, Said, Detach]
    assert opened.told[1] == "the editor has left"
    editor.close()
    opened.close()


def test_a_connection_that_can_not_be_taken_does_not_close_the_port() -> None:
    ours, editor = socket.socketpair()
    failures = [ConnectionAbortedError(), OSError(errno.EMFILE, "no descriptor")]

    def accept() -> tuple[socket.socket, None]:
        if failures:
            raise failures.pop()
        return ours, None

    port = object.__new__(dap.Port)
    port._listener = SimpleNamespace(accept=accept, fileno=lambda: 0)  # type: ignore[assignment]
    assert next(port._accepted()) is ours
    ours.close()
    editor.close()


def test_an_editor_that_falls_silent_after_a_header_has_left() -> None:
    reads, writes = os.pipe()
    os.set_blocking(reads, False)  # as a socket is whose time to read is over
    os.write(writes, b"Content-Length: 50\r\n\r\n")
    with open(reads, "rb") as file, pytest.raises(ConnectionResetError, match="`initialize`"):
        dap._Messages(file).request("initialize")
    os.close(writes)
