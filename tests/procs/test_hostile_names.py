"""What others have named and said reaches no terminal as more than text, in whatever command."""

from __future__ import annotations

import dataclasses
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias

import pytest

from monarch._words import named
from monarch.tools import cli

if TYPE_CHECKING:
    from helpers.jobs import Home

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.processes("the commands at a running program"),
]

ORDERS = "\x1b]52;c;b3duZWQ=\x07\x1b]0;owned\x07\x1b[2J\x9b2J\x9d0;owned\x9c\u202eback\u2066\x08"
SAID = f"said{ORDERS}\x1b[31mred\x1b[0m\nand more"
NAME = f"{ORDERS}\nFORGED"

PROGRAM = f"""
    import logging, os, sys, threading, types
    from monarch import configure
    from monarch.actor import Actor, endpoint, this_host
    import monarch.actor

    NAME, SAID = {NAME!r}, {SAID!r}

    class Hostile(Actor):
        @endpoint
        def speak(self):
            print(SAID, flush=True)
            logging.getLogger("logger" + NAME).warning(SAID)

        @endpoint
        def fail(self):
            raise ValueError(SAID)

        @endpoint
        def hang(self):
            code = compile("import time\\ndef hangs(): time.sleep(600)\\nhangs()", "file" + NAME + ".py", "exec")
            threading.Thread(target=threading.Event().wait, name="thread" + NAME, daemon=True).start()
            exec(code, {{}})

        @endpoint
        def pause(self):
            local = SAID
            breakpoint()

        @endpoint
        def die(self):
            os._exit(3)

    if __name__ == "__main__":
        configure(enable_file_capture=True)
        hostile = this_host().spawn_procs({{"gpus": 2}}, name="mesh" + NAME).spawn("actor" + NAME, Hostile)
        stopped = this_host().spawn_procs({{"gpus": 1}}, name="stopped" + NAME).spawn("stops" + NAME, Hostile)
        dying = this_host().spawn_procs({{"gpus": 1}}, name="dying" + NAME).spawn("dies" + NAME, Hostile)
        hostile.speak.call().get()
        if "raise" in sys.argv:
            hostile.fail.call().get()
        if "die" in sys.argv:
            dying.die.broadcast()
            threading.Event().wait(600)
        monarch.actor.unhandled_fault_hook = lambda failure: None
        dying.die.broadcast()
        waits = [hostile.hang.call(), stopped.pause.call()]
        print("ready", flush=True)
        sys.stdin.read()
"""


def obeyed(text: str) -> str:
    """What of a text a terminal obeys, or takes for a line of its own."""
    left = re.sub(r"\x1b\[[0-9;]*m", "", text)
    odd = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]|^FORGED"
    return "".join(
        f"{found[0]!r} in {left[max(0, found.start() - 60) : found.end() + 20]!r}\n"
        for found in re.finditer(odd, left, re.MULTILINE)
    )


JOB = "from monarch.job import ProcessJob\njob = ProcessJob({'first': 2, 'second': 1})\n"

Program: TypeAlias = "subprocess.Popen[str]"
Typed: TypeAlias = Callable[..., str]


@pytest.fixture
def folder(home: Home) -> Home:
    """A folder of any name."""
    folder = home.folder / f"folder{NAME}"
    folder.mkdir()
    return dataclasses.replace(home, folder=folder)


@pytest.fixture
def program(folder: Home) -> Iterator[Program]:
    """The program, which waits."""
    found = subprocess.Popen(
        [sys.executable, folder.program(PROGRAM)],
        cwd=folder.folder,
        env=folder.environment({"FORCE_COLOR": "1"}),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with found:
        try:
            yield found
        finally:
            found.kill()


@pytest.fixture
def typed(folder: Home) -> Typed:
    """Runs ``monarch ARGS`` at a terminal in the folder; returns what it has shown."""

    def run(*args: str, typed: str = "") -> str:
        command = [sys.executable, "-m", "monarch.tools", *args]
        env = folder.environment(
            {"FORCE_COLOR": "1", "COLUMNS": "200", "MONARCH_SYNC_FOLDER": str(folder.folder)}
        )
        done = subprocess.run(
            command,
            cwd=folder.folder,
            env=env,
            input=typed,
            capture_output=True,
            text=True,
            timeout=120,
        )
        return done.stdout + done.stderr

    return run


def odd(typed: Typed, signs: Mapping[tuple[str, ...], str]) -> str:
    """What commands show without their sign, or beyond text."""
    return "".join(
        f"monarch {' '.join(command)!r}: {obeyed(said)}\n{said!r}\n"
        for command, sign in signs.items()
        if sign not in (said := typed(*command)) or "Traceback" in said or obeyed(said)
    )


Signs: TypeAlias = dict[tuple[str, ...], str]


def at_a_program(*one: str) -> Signs:
    """Commands at the program that is named so, and a sign of what each shows."""
    return {
        ("list",): "mesh\\x1b]52",
        ("stacks", "--all", *one): "file\\x1b]52",
        ("why", *one): "mesh\\x1b]52",
        ("metrics", *one): 'mesh="mesh\\\\x1b]52',
        ("query", *one, "SELECT thread, file FROM stacks"): "thread\\x1b]52",
        ("query", *one, "SELECT name FROM actors"): "actor\\x1b]52",
        ("query", *one, "SELECT text FROM logs"): "said",
        ("profile", *one, "--seconds", "0.1"): "mesh\\x1b]52",
        ("snapshot", *one): "wrote",
        ("why", "--run", "run.duckdb"): "dying\\x1b]52",
        ("debug", *one, "list"): "stops\\x1b]52",
        ("logs",): "said",
        ("logs", "--merge", "--mesh", NAME): "no line",
        ("report",): "wrote",
        ("tui", "--diagnose", *one): "mesh\\\\x1b]52",
        ("rdma",): "",
        ("stacks", "--program", NAME): "there is no job",
        ("logs", NAME): "is no job",
        ("context", "create", "new"): "Created",
        ("context", "ls"): "new",
        (f"no{NAME}",): "No such command",
    }


def on_a_job() -> Signs:
    """Commands in the folder of a job."""
    speaks = "bash", "-c", f"printf %s {shlex.quote(SAID)}"
    return {
        ("apply", f"no{NAME}.job"): "error:",
        ("apply", "cluster.job"): "",
        ("status",): "first",
        ("doctor",): "host",
        ("doctor", f"tcp://no{NAME}:1"): "error:",
        ("sync",): "leads\\x1b]52",
        ("exec", "--mesh", "first", *speaks): "said",
        ("exec", f"no{NAME}"): "No such file",
        ("exec", "--mesh", NAME, "ls"): "has no mesh",
        ("run", "--nproc-per-node", "2", f"no{NAME}.py"): "FORGED",
        ("serve", f"no{NAME}"): "error:",
        ("scale", f"no{NAME}=3"): "error:",
        ("port-forward", f"no{NAME}"): "error:",
        ("shell", "--mesh", NAME): "has no mesh",
        ("admin", f"no{NAME}"): "error:",
        ("dashboard", f"no{NAME}"): "error:",
        ("demo", f"no{NAME}"): "unexpected",
        ("worker", "--listen", f"no{NAME}"): "error:",
        ("secret", f"secret{NAME}"): "secret\\x1b]52",
        ("bounce",): "",
        ("kill", f"no{NAME}"): "error:",
        ("kill",): "",
    }


def test_every_command_is_walked() -> None:
    walked = {command[0] for signs in (at_a_program(), on_a_job()) for command in signs}
    known = {name for group in cli._GROUPS.values() for names in group.values() for name in names}
    assert len(known) > 25 and known - walked == set()


def test_commands_at_a_hostile_program_show_text(typed: Typed, program: Program) -> None:
    assert program.stdout is not None
    shown = "".join(iter(program.stdout.readline, "ready\n"))
    assert "said" in shown and "\x1b[31mred" in shown and not obeyed(shown)
    one = "-p", str(program.pid)
    signs = at_a_program(*one)
    assert not (found := odd(typed, signs)), found
    notice = next(line for line in iter(program.stdout.readline, "") if " stopped in " in line)
    assert "stops\\x1b]52" in notice and not obeyed(notice)
    attach = f"attach {named('stops' + NAME)} 0"
    there = typed("debug", *one, typed=f"where\n{attach}\nprint(local)\nc\n")
    # where it is, pdb says in the rank: in a text of any number of lines
    assert not obeyed(there.replace("\nFORGED/program.py", ""))
    assert "folder\\x1b]52" in there and "saidback" in there, there


def test_commands_on_a_job_with_hostile_files_show_text(folder: Home, typed: Typed) -> None:
    (folder.folder / "cluster.py").write_text(JOB)
    (folder.folder / f"leads{NAME}").symlink_to("/etc")
    signs = on_a_job()
    assert not (found := odd(typed, signs)), found
    folder.wait_nothing_left()


@pytest.mark.parametrize("how", ["raise", "die"])
def test_what_a_program_says_at_its_end_is_text(home: Home, how: str) -> None:
    said = home.run(PROGRAM, how, env={"FORCE_COLOR": "1"}, exit_code=1)
    assert ("ValueError: said" if how == "raise" else "dying\\x1b]52") in said, said
    assert not (found := obeyed(said)), found
