"""What procs have from the process they are forked from, and must not: signal dispositions, random
numbers.
"""

from __future__ import annotations

import importlib.util
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from helpers.scripts import run_program, run_script
from monarch.actor import Actor, endpoint
from monarch.config import configured

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Spawn

pytestmark = pytest.mark.processes("what children of processes inherit")

needs_numpy = pytest.mark.skipif(
    importlib.util.find_spec("numpy") is None, reason="preloads numpy; not installed"
)


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
            [sys.executable, "-c", program],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        return done.stdout.split()

    @endpoint
    def blocked_signals_of_a_child(self) -> str:
        done = subprocess.run(
            ["grep", "SigBlk", "/proc/self/status"],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        return done.stdout.split()[1]


@pytest.mark.parametrize("method", ["fork", "exec"])
def test_ctrl_c_ends_a_program_that_an_actor_started(spawn: Spawn, method: str) -> None:
    with configured(proc_spawn_method=method):
        starts = spawn(1).spawn("starts", Starts)
        assert starts.interrupt_a_child.call_one().get() == -signal.SIGINT


@pytest.mark.parametrize("method", ["fork", "exec"])
def test_a_program_that_an_actor_started_ignores_only_what_any_python_child_ignores(
    spawn: Spawn, method: str
) -> None:
    with configured(proc_spawn_method=method):
        starts = spawn(1).spawn("starts", Starts)
        # Python itself ignores these two, in the child as in any
        assert set(starts.dispositions_of_a_child.call_one().get()) <= {
            "SIGPIPE",
            "SIGXFSZ",
        }
        assert int(starts.blocked_signals_of_a_child.call_one().get(), 16) == 0


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
def test_ranks_that_share_a_preloaded_numpy_have_random_numbers_of_their_own(
    spawn: Spawn, module: str
) -> None:
    with configured(preload=[module]):
        first = spawn(3).spawn("random", Random)
        second = spawn(3).spawn("random", Random)
        numbers = [
            *first.of_numpy.call().get().values(),
            *second.of_numpy.call().get().values(),
        ]
    assert len(set(numbers)) == 6


def test_ranks_have_random_numbers_of_their_own(spawn: Spawn) -> None:
    numbers = [
        number
        for _ in range(2)
        for number in spawn(3).spawn("r", Random).of_python.call().get(20).values()
    ]
    assert len(set(numbers)) == 6


def test_callbacks_of_futures_run_in_a_child_forked_after_the_first() -> None:
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


FORKS = """
    import multiprocessing, os, sys
    from monarch.actor import Actor, Channel, context, endpoint, this_host

    class Peer(Actor):
        @endpoint
        def pid(self):
            return os.getpid()
        @endpoint
        def wait(self, path):
            while not os.path.exists(path):
                pass

    def use(peers, out):
        there = sorted(peers.pid.call().get().values())
        own = this_host().spawn_procs().spawn("own", Peer).pid.call_one().get()
        assert own not in there and context().actor_instance.creator is None
        os.write(out, repr(there).encode())

    def forked(peers, how):
        r, w = os.pipe()
        if how == "multiprocessing":
            child = multiprocessing.get_context("fork").Process(target=use, args=(peers, w))
            child.start()
            child.join(30)
            status = child.exitcode
        else:
            pid = os.fork()
            if pid == 0:
                use(peers, w)
                if how == "os":
                    os._exit(0)
                return None
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os.close(w)
        return status, os.read(r, 1000).decode()

    class Forks(Actor):
        @endpoint
        def fork(self, peers, how):
            return forked(peers, how)

    class ForksAsync(Actor):
        @endpoint
        async def fork(self, peers, how):
            return forked(peers, how)
    """


@pytest.mark.parametrize("kind", ["Forks", "ForksAsync"])
def test_a_child_that_an_actor_forks_is_a_client_of_its_own(kind: str) -> None:
    run_program(
        FORKS,
        f"""
        if __name__ == "__main__":
            procs = this_host().spawn_procs(per_host={{"n": 2}})
            peers = procs.spawn("peers", Peer)
            pids = repr(sorted(peers.pid.call().get().values()))
            forks = procs.slice(n=0).spawn("forks", {kind})
            for how, status in (("os", 0), ("multiprocessing", 0), ("return", 1)):
                assert forks.fork.call_one(peers, how).get() == (status, pids), how
        """,
    )


def test_a_forked_child_neither_stops_nor_waits_for_what_is_its_parents(tmp_path: Path) -> None:
    run_program(
        FORKS,
        f"""
        def error(function):
            try:
                function()
            except Exception as raised:
                return type(raised).__name__

        if __name__ == "__main__":
            path = {str(tmp_path / "go")!r}
            with this_host().spawn_procs() as procs:
                peers = procs.spawn("peers", Peer)
                waits = peers.wait.call_one(path)
                port, receiver = Channel.open()
                child = os.fork()
                if child == 0:
                    assert error(waits.get) == "RuntimeError"
                    assert error(receiver.recv().get) == "PortClosed"
                    assert error(procs.stop) == "ValueError"
                    sys.exit(5)  # leaves the block
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
                open(path, "w").close()
                waits.get()
        """,
    )
