"""What procs have from the process they are forked from, and must not: signal dispositions, random numbers."""

from __future__ import annotations

import importlib.util
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from helpers.scripts import run_script
from monarch.actor import Actor, endpoint
from monarch.config import configured

if TYPE_CHECKING:
    from conftest import Spawn

needs_numpy = pytest.mark.skipif(importlib.util.find_spec("numpy") is None, reason="preloads numpy; not installed")


class Starts(Actor):
    """Starts programs of its own."""

    @endpoint
    def interrupt_a_child(self) -> int:
        child = subprocess.Popen(["sleep", "60"])
        try:
            child.send_signal(signal.SIGINT)
            return child.wait(10)
        except subprocess.TimeoutExpired:
            return 0
        finally:
            child.kill()
            child.wait()

    @endpoint
    def dispositions_of_a_child(self) -> list[str]:
        program = (
            "import signal\n"
            "for s in sorted(signal.valid_signals()):\n"
            "    if signal.getsignal(s) is signal.SIG_IGN: print(getattr(s, 'name', s))"
        )
        done = subprocess.run(
            [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, timeout=20, check=True
        )
        return done.stdout.split()

    @endpoint
    def blocked_signals_of_a_child(self) -> str:
        done = subprocess.run(
            ["grep", "SigBlk", "/proc/self/status"], stdout=subprocess.PIPE, text=True, timeout=20, check=True
        )
        return done.stdout.split()[1]


@pytest.mark.parametrize("method", ["fork", "exec"])
def test_ctrl_c_ends_a_program_that_an_actor_started(spawn: Spawn, method: str) -> None:
    with configured(proc_spawn_method=method):
        starts = spawn(1).spawn("starts", Starts)
        assert starts.interrupt_a_child.call_one().get(timeout=30) == -signal.SIGINT


@pytest.mark.parametrize("method", ["fork", "exec"])
def test_a_program_that_an_actor_started_ignores_only_what_any_python_child_ignores(spawn: Spawn, method: str) -> None:
    with configured(proc_spawn_method=method):
        starts = spawn(1).spawn("starts", Starts)
        # Python itself ignores these two, in the child as in any
        assert set(starts.dispositions_of_a_child.call_one().get(timeout=30)) <= {"SIGPIPE", "SIGXFSZ"}
        assert int(starts.blocked_signals_of_a_child.call_one().get(timeout=30), 16) == 0


class Random(Actor):
    @endpoint
    def of_numpy(self) -> float:
        import numpy

        return float(numpy.random.rand())

    @endpoint
    def of_python(self) -> float:
        import random

        return random.random()


@needs_numpy
@pytest.mark.parametrize("module", ["numpy", "numpy.random"])
def test_ranks_that_share_a_preloaded_numpy_have_random_numbers_of_their_own(spawn: Spawn, module: str) -> None:
    with configured(preload=[module]):
        first = spawn(3).spawn("random", Random)
        second = spawn(3).spawn("random", Random)
        numbers = [*first.of_numpy.call().get(timeout=30).values(), *second.of_numpy.call().get(timeout=30).values()]
    assert len(set(numbers)) == 6


def test_ranks_have_random_numbers_of_their_own(spawn: Spawn) -> None:
    numbers = [number for _ in range(2) for number in spawn(3).spawn("r", Random).of_python.call().get(20).values()]
    assert len(set(numbers)) == 6


def test_callbacks_of_futures_run_in_a_forked_child_although_they_ran_in_its_parent_before() -> None:
    source = """
        import os, sys, threading
        from monarch.actor import Actor, endpoint, this_host

        class Echo(Actor):
            @endpoint
            def say(self, value):
                return value

        def called(future):
            done = threading.Event()
            future.add_done_callback(lambda _: done.set())
            return done.wait(20)

        if __name__ == "__main__":
            future = this_host().spawn_procs(per_host={"n": 1}).spawn("e", Echo).say.call_one(3)
            assert called(future)
            child = os.fork()
            if child == 0:
                os._exit(0 if called(future) else 1)
            print(os.waitpid(child, 0)[1])
        """
    result = run_script(source)
    assert result.stdout.split() == ["0"], result
