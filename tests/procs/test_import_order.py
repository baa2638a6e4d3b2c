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
            # as submitit, Ray and Dask do
            for function in (partial(work.count, this_host), lambda: work.count(this_host)):
                reader = f"import pickle, sys; sys.path[:] = {sys.path}; print(pickle.load(sys.stdin.buffer)())"
                data = cloudpickle.dumps(function)
                assert b"_core" not in data
                subprocess.run([sys.executable, "-c", reader], input=data, check=True)

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
    assert (result.exit_code, result.stdout, result.left_behind) == (0, "5\n5\n5\n5\n", []), str(result)
