"""What a process is called: in `ps` and `top`, in front of what it prints, in reports."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from helpers.processes import agent_of, spawner_of
from helpers.scripts import run_script
from monarch.actor import Actor, endpoint, this_host
from monarch.config import parametrize_config


class Who(Actor):
    @endpoint
    def pid(self) -> int:
        return os.getpid()

    @endpoint
    def environ_and_argv(self) -> tuple[bytes, list[str]]:
        return Path("/proc/self/environ").read_bytes(), sys.argv


def _command(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").decode()


def _name(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().rstrip("\n")


@parametrize_config(proc_spawn_method=["fork", "exec"])
def test_each_process_says_in_ps_what_it_is() -> None:
    with this_host().spawn_procs({"gpus": 2}, name="trainers_of_the_model") as procs:
        who = procs.spawn("who", Who)
        first, second = who.pid.call().get().values()
        assert (_command(first), _command(second)) == (
            "trainers_of_the_model[0]",
            "trainers_of_the_model[1]",
        )
        assert _name(first) == "trainers_of_the"  # the kernel keeps 15 bytes
        assert (_command(agent_of(first)), _name(agent_of(first))) == (
            "monarch agent",
            "monarch agent",
        )
        assert (_command(spawner_of(first)), _name(spawner_of(first))) == (
            "monarch spawner",
            "monarch spawner",
        )
        environ, argv = who.slice(gpus=1).environ_and_argv.call_one().get()
        assert argv == ["trainers_of_the_model[1]"]
        assert b"PATH=" in environ, "the title has overwritten what follows the arguments in memory"


def test_a_process_without_a_name_takes_that_of_the_first_actors_on_it() -> None:
    with this_host().spawn_procs({"gpus": 2}, bootstrap=lambda: None) as procs:
        who = procs.spawn("counters", Who)
        procs.spawn("others", Who).pid.call().get()
        assert [_command(pid) for pid in who.pid.call().get().values()] == [
            "counters[0]",
            "counters[1]",
        ]


def test_lines_of_procs_without_a_name_begin_with_that_of_their_actors() -> None:
    result = run_script("""
        from monarch.actor import Actor, endpoint, this_host

        class Prints(Actor):
            def __init__(self):
                print("made")

            @endpoint
            def say(self):
                print("said")

        this_host().spawn_procs({"gpus": 2}).spawn("workers", Prints).say.call().get()
        """)
    lines = [f"[workers {rank}] {word}" for rank in (0, 1) for word in ("made", "said")]
    assert sorted(result.stdout.splitlines()) == lines, str(result)
