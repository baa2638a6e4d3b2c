"""Whatever a program imports first, and in whichever process: it works."""

from __future__ import annotations

import subprocess
import sys

import pytest

from helpers.scripts import run_script

SHARE = """
from monarch.rdma import share_state, pull
state = {"w": bytearray(3)}
pull(share_state({"w": bytearray(b"abc")}), state).get()
assert state == {"w": b"abc"}
"""


@pytest.mark.parametrize(
    "program",
    [
        "from monarch.rdma import RDMABuffer; assert RDMABuffer(bytearray(10)).size() == 10",
        SHARE,
        "from monarch._core.actors.context import context; assert context().actor_instance.rank.rank == 0",
        "from monarch._core.mesh.host_mesh import this_host; assert len(this_host().spawn_procs()) == 1",
        "from monarch.job import LocalJob; assert len(LocalJob(hosts=['a']).state(None).a.spawn_procs()) == 1",
        "from monarch._src.actor.actor_mesh import Channel; p, r = Channel.open(); p.send(3); assert r.recv().get(9) == 3",
        "import monarch; assert monarch.Extent.__module__ == 'monarch.actor'",
    ],
)
def test_a_program_can_begin_with_any_module(program: str) -> None:
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stderr) == (0, "")


def test_a_function_that_uses_this_host_runs_in_other_processes_of_any_library() -> None:
    result = run_script(
        """
        import multiprocessing
        import subprocess
        import sys
        from concurrent.futures import ProcessPoolExecutor
        from functools import partial

        import cloudpickle

        import work
        from monarch.actor import this_host

        def main():
            spawn = multiprocessing.get_context("spawn")
            with ProcessPoolExecutor(1, mp_context=spawn) as pool:
                print(pool.submit(work.count, this_host).result(), flush=True)
            with spawn.Pool(1) as pool:
                print(pool.apply(work.count, (this_host,)), flush=True)
            # as submitit and Ray do, and Dask, which runs functions in threads
            direct = "print(function())"
            in_thread = "from concurrent.futures import ThreadPoolExecutor as T; print(T(1).submit(function).result())"
            assert b"_core" not in cloudpickle.dumps([partial(work.count, this_host), lambda: work.count(this_host)])
            counter = this_host().spawn_procs().spawn("counter", work.Counter)
            for function, run in (
                (partial(work.count, this_host), direct),
                (lambda: work.count(this_host), in_thread),
                (lambda: counter.add.call_one(5).get(), direct),
                (lambda: counter.add.call_one(5).get(), in_thread),
            ):
                reader = f"import pickle, sys; sys.path[:] = {sys.path}; function = pickle.load(sys.stdin.buffer); {run}"
                subprocess.run([sys.executable, "-c", reader], input=cloudpickle.dumps(function), check=True)

        if __name__ == "__main__":
            main()
        """,
        files={
            "work.py": """
            from helpers_of_work import Counter

            def count(host):
                with host().spawn_procs() as procs:
                    return procs.spawn("counter", Counter).add.call_one(5).get()
            """,
            "helpers_of_work.py": """
            from monarch.actor import Actor, endpoint

            class Counter(Actor):
                def __init__(self):
                    self.count = 0

                @endpoint
                def add(self, number):
                    self.count += number
                    return self.count
            """,
        },
    )
    assert (result.exit_code, result.stdout, result.left_behind) == (0, "5\n5\n5\n5\n5\n10\n", []), str(result)
