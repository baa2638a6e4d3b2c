"""How procs come to life: forked or started, prepared by a function, with an environment of their
own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from helpers.actors import Cleaner, Counter, Echo, Failing, Ranks, open_channel
from helpers.waiting import is_alive, wait_gone
from monarch.actor import (
    Actor,
    ActorError,
    BootstrapCommand,
    SupervisionError,
    default_bootstrap_cmd,
    endpoint,
    this_host,
)
from monarch.config import configured

if TYPE_CHECKING:
    from conftest import Spawn
    from helpers.faults import Faults

pytestmark = pytest.mark.processes("how processes are started")


@pytest.fixture(params=["fork", "exec"])
def method(request: pytest.FixtureRequest) -> Iterator[str]:
    """The central tests run with both ways of making a process."""
    with configured(proc_spawn_method=request.param):
        yield request.param


def test_procs_answer_calls_and_end(method: str, spawn: Spawn) -> None:
    procs = spawn({"a": 2, "b": 2})
    counters = procs.spawn("c", Counter, 5)
    assert counters.add.call(1).get().values() == [6] * 4
    pids = procs.spawn("e", Echo).pid.call().get().values()
    assert len({os.getpid(), *pids}) == 5
    procs.stop().get()
    assert not any(is_alive(pid) for pid in pids)


def test_procs_have_ranks_and_slices(method: str, spawn: Spawn) -> None:
    ranks = spawn({"a": 2, "b": 2}).spawn("r", Ranks)
    assert ranks.slice(a=1).instance_rank.call().get().values() == [
        {"a": 1, "b": 0},
        {"a": 1, "b": 1},
    ]


def test_errors_come_back(method: str, spawn: Spawn) -> None:
    failing = spawn(1).spawn("f", Failing)
    with pytest.raises(ActorError, match="on purpose"):
        failing.fail.call_one().get()
    assert failing.alive.call_one().get()


def test_failures_are_supervised(method: str, spawn: Spawn, faults: Faults) -> None:
    failing = spawn(2).spawn("f", Failing)
    failing.slice(gpus=0).fail.broadcast()
    faults.wait_for(1)
    assert failing.slice(gpus=1).alive.call_one().get()
    with pytest.raises(SupervisionError):
        failing.alive.call().get()


def test_cleanups_run_and_children_of_actors_end(method: str, spawn: Spawn) -> None:
    port, receiver = open_channel()
    procs = spawn(1)
    parent = procs.spawn("p", Cleaner, "parent", port)
    parent.spawn_child.call_one("child").get()
    procs.stop().get()
    assert [receiver.recv().get() for _ in range(2)] == [
        ("child", None),
        ("parent", None),
    ]


def test_two_procs_talk_to_each_other(method: str, spawn: Spawn) -> None:
    class Asks(Actor):
        @endpoint
        def ask(self, echo: Echo) -> Any:
            return echo.say.call_one("across").get()

    procs = spawn(2)
    echo = procs.slice(gpus=1).spawn("e", Echo)
    assert procs.slice(gpus=0).spawn("a", Asks).ask.call_one(echo).get() == "across"


def test_procs_have_the_environment_and_directory_of_the_client(
    method: str, spawn: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Where(Actor):
        @endpoint
        def cwd(self) -> str:
            return os.getcwd()

    monkeypatch.setenv("MONARCH_TEST_BOOTSTRAP", method)
    procs = spawn(1)
    assert procs.spawn("e", Echo).environment.call_one("MONARCH_TEST_BOOTSTRAP").get() == method
    assert procs.spawn("w", Where).cwd.call_one().get() == os.getcwd()


def test_procs_have_standard_streams_and_signals_of_a_fresh_process(
    method: str, spawn: Spawn
) -> None:
    class Looks(Actor):
        @endpoint
        def look(self) -> tuple[bool, bool, bool]:
            import random
            import signal
            import threading

            return (
                sys.stdout.writable() and sys.stderr.writable(),
                signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN,
                random.random() >= 0 and threading.active_count() >= 1,
            )

    assert spawn(1).spawn("l", Looks).look.call_one().get() == (True, True, True)


def test_procs_do_not_share_their_random_numbers(method: str, spawn: Spawn) -> None:
    class Random(Actor):
        @endpoint
        def number(self) -> float:
            import random

            return random.random()

    assert len(set(spawn(3).spawn("r", Random).number.call().get().values())) == 3


def test_procs_do_not_inherit_the_open_files_of_the_client(
    method: str, spawn: Spawn, tmp_path: Path
) -> None:
    class Looks(Actor):
        @endpoint
        def open_files(self) -> list[str]:
            found = []
            for fd in os.listdir("/proc/self/fd"):
                try:
                    found.append(os.readlink(f"/proc/self/fd/{fd}"))
                except OSError:
                    continue
            return found

    with open(tmp_path / "of_the_client", "w"):
        assert (
            str(tmp_path / "of_the_client")
            not in spawn(1).spawn("l", Looks).open_files.call_one().get()
        )


# bootstrap=


def test_the_bootstrap_function_runs_on_every_proc_before_any_actor(
    method: str, spawn: Spawn
) -> None:
    def prepare() -> None:
        os.environ["MONARCH_TEST_PREPARED"] = str(os.getpid())

    class Reads(Actor):
        def __init__(self) -> None:
            self.seen = os.environ.get("MONARCH_TEST_PREPARED")

        @endpoint
        def check(self) -> bool:
            return self.seen == str(os.getpid())

    procs = spawn(3, bootstrap=prepare)
    assert procs.spawn("r", Reads).check.call().get().values() == [True] * 3
    assert "MONARCH_TEST_PREPARED" not in os.environ


def test_an_async_bootstrap_function_works_too(spawn: Spawn) -> None:
    async def prepare() -> None:
        import asyncio

        await asyncio.sleep(0)
        os.environ["MONARCH_TEST_PREPARED"] = "async"

    echo = spawn(1, bootstrap=prepare).spawn("e", Echo)
    assert echo.environment.call_one("MONARCH_TEST_PREPARED").get() == "async"


def test_a_bootstrap_function_that_raises_is_told_to_the_users_of_the_procs(
    spawn: Spawn, faults: Faults
) -> None:
    def prepare() -> None:
        raise ValueError("preparation failed")

    procs = spawn(2, bootstrap=prepare)
    with pytest.raises(ActorError, match="preparation failed"):
        procs.initialized.get()
    with pytest.raises((ActorError, SupervisionError), match="preparation failed"):
        procs.spawn("e", Echo).say.call(1).get()


# bootstrap_command=


def test_a_bootstrap_command_for_each_rank_gives_each_its_environment(spawn: Spawn) -> None:
    procs = spawn(
        {"hosts": 1, "gpus": 3},
        bootstrap_command=lambda point: default_bootstrap_cmd().with_env(
            {"CUDA_VISIBLE_DEVICES": str(point["gpus"])}
        ),
    )
    assert procs.spawn("e", Echo).environment.call("CUDA_VISIBLE_DEVICES").get().values() == [
        "0",
        "1",
        "2",
    ]


def test_one_bootstrap_command_may_serve_all_ranks(spawn: Spawn) -> None:
    procs = spawn(
        2, bootstrap_command=default_bootstrap_cmd().with_env({"MONARCH_TEST_COMMAND": "same"})
    )
    assert procs.spawn("e", Echo).environment.call("MONARCH_TEST_COMMAND").get().values() == [
        "same",
        "same",
    ]


def test_with_env_returns_a_copy_and_later_values_win() -> None:
    command = default_bootstrap_cmd()
    first = command.with_env({"A": "1", "B": "1"})
    second = first.with_env({"B": "2"})
    assert command.env == {}
    assert first.env == {"A": "1", "B": "1"}
    assert second.env == {"A": "1", "B": "2"}
    assert command.program == sys.executable
    assert command.args == ["-m", "monarch._src.actor.bootstrap_main"]
    assert command.inherit_env is True


def test_none_removes_a_variable_of_the_inherited_environment(
    spawn: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MONARCH_TEST_REMOVED", "there")
    plain = spawn(1).spawn("e", Echo)
    removed = spawn(
        1, bootstrap_command=default_bootstrap_cmd().with_env({"MONARCH_TEST_REMOVED": None})
    ).spawn("e", Echo)
    assert plain.environment.call_one("MONARCH_TEST_REMOVED").get() == "there"
    assert removed.environment.call_one("MONARCH_TEST_REMOVED").get() is None


def test_a_command_that_inherits_nothing_starts_from_an_empty_environment(
    spawn: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MONARCH_TEST_INHERITED", "there")
    command = default_bootstrap_cmd()
    command = BootstrapCommand(
        command.program,
        command.arg0,
        command.args,
        {"PYTHONPATH": os.environ["PYTHONPATH"], "PATH": os.environ["PATH"]},
        inherit_env=False,
    )
    echo = spawn(1, bootstrap_command=command).spawn("e", Echo)
    assert echo.environment.call_one("MONARCH_TEST_INHERITED").get() is None
    assert echo.environment.call_one("PATH").get() == os.environ["PATH"]


def test_a_variable_that_the_interpreter_reads_at_start_takes_effect(spawn: Spawn) -> None:
    class Looks(Actor):
        @endpoint
        def flags(self) -> tuple[int, str | None]:
            return sys.flags.dev_mode, os.environ.get("PYTHONDEVMODE")

    procs = spawn(1, bootstrap_command=default_bootstrap_cmd().with_env({"PYTHONDEVMODE": "1"}))
    assert procs.spawn("l", Looks).flags.call_one().get() == (True, "1")


@pytest.mark.parametrize("program", ["/bin/false", "/does/not/exist"])
def test_a_command_that_does_not_start_a_proc_is_an_error_and_not_a_wait(
    spawn: Spawn, faults: Faults, program: str
) -> None:
    command = default_bootstrap_cmd()
    command.program = program
    procs = spawn(1, bootstrap_command=command)
    with pytest.raises(ValueError, match="proc"):
        procs.initialized.get()


def test_another_python_executable_is_used_and_inherited(spawn: Spawn, tmp_path: Path) -> None:
    wrapper = tmp_path / "python"
    wrapper.write_text(f'#!/bin/sh\nMONARCH_TEST_WRAPPED=yes exec {sys.executable} "$@"\n')
    wrapper.chmod(0o755)

    class Nested(Actor):
        @endpoint
        def wrapped(self) -> tuple[str | None, str | None]:
            procs = this_host().spawn_procs(per_host={"n": 1})
            try:
                inner = procs.spawn("e", Echo).environment.call("MONARCH_TEST_WRAPPED").get().get(0)
            finally:
                procs.stop().get()
            return os.environ.get("MONARCH_TEST_WRAPPED"), inner

    host = this_host().with_python_executable(str(wrapper))
    procs = host.spawn_procs(per_host={"n": 1})
    try:
        assert procs.spawn("n", Nested).wrapped.call().get().values() == [("yes", "yes")]
        plain = spawn(1).spawn("e", Echo)
        assert plain.environment.call_one("MONARCH_TEST_WRAPPED").get() is None
    finally:
        procs.stop().get()


# preload


def test_a_preloaded_module_is_there_before_any_actor_asks_for_it(spawn: Spawn) -> None:
    class Looks(Actor):
        @endpoint
        def imported(self) -> bool:
            return "wave" in sys.modules

    assert spawn(1).spawn("l", Looks).imported.call_one().get() is False
    with configured(preload=["wave"]):
        assert spawn(2).spawn("l", Looks).imported.call().get().values() == [True, True]


def test_a_module_that_can_not_be_preloaded_is_an_error_that_names_it(
    spawn: Spawn, faults: Faults
) -> None:
    with configured(preload=["no_such_module_at_all"]):
        procs = spawn(1)
        with pytest.raises((ValueError, RuntimeError, ImportError), match="no_such_module_at_all"):
            procs.initialized.get()


def test_a_proc_that_is_killed_while_idle_is_reported(
    method: str, spawn: Spawn, faults: Faults
) -> None:
    import signal

    procs = spawn(2)
    echo = procs.spawn("e", Echo)
    victim = echo.slice(gpus=1).pid.call_one().get()
    os.kill(victim, signal.SIGKILL)
    wait_gone(victim)
    faults.wait_for(1)
    with pytest.raises(SupervisionError, match="9|KILL"):
        echo.say.call(1).get()
    assert echo.slice(gpus=0).say.call_one(1).get() == 1
