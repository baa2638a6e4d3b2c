"""Whatever a program imports first, and in whichever process: it works."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from helpers.scripts import run_script

pytestmark = pytest.mark.processes("modules that a process has imported")

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
        (
            "from monarch._core.actors.context import context; assert"
            " context().actor_instance.rank.rank == 0"
        ),
        (
            "from monarch._core.mesh.host_mesh import this_host; assert"
            " len(this_host().spawn_procs()) == 1"
        ),
        (
            "from monarch.job import LocalJob; assert"
            " len(LocalJob(hosts=['a']).state(None).a.spawn_procs()) == 1"
        ),
        (
            "from monarch._src.actor.actor_mesh import Channel; p, r = Channel.open(); p.send(3);"
            " assert r.recv().get(9) == 3"
        ),
        "import monarch; assert monarch.Extent.__module__ == 'monarch.actor'",
    ],
)
def test_a_program_can_begin_with_any_module(program: str) -> None:
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
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
            "work.py": (
                """
            from helpers_of_work import Counter

            def count(host):
                with host().spawn_procs() as procs:
                    return procs.spawn("counter", Counter).add.call_one(5).get()
            """
            ),
            "helpers_of_work.py": (
                """
            from monarch.actor import Actor, endpoint

            class Counter(Actor):
                def __init__(self):
                    self.count = 0

                @endpoint
                def add(self, number):
                    self.count += number
                    return self.count
            """
            ),
        },
    )
    assert (result.exit_code, result.stdout, result.left_behind) == (
        0,
        "5\n5\n5\n5\n5\n10\n",
        [],
    ), str(result)


NOTE_MODULES = """
import atexit, os, sys

def note():
    with open("/proc/self/comm") as file:
        title = file.read().strip()
    with open(os.path.join(os.environ["NOTES"], title), "w") as file:
        file.write("\\n".join(sys.modules))

atexit.register(note)  # the spawner may be ended without
os.register_at_fork(before=note, after_in_child=lambda: atexit.register(note))
"""


def test_the_processes_that_only_serve_import_no_more_than_they_need(tmp_path: Path) -> None:
    """What the agent imports, the first call waits for; what the spawner has imported, each proc
    has.
    """
    (tmp_path / "sitecustomize.py").write_text(NOTE_MODULES)
    result = run_script(
        """
        from monarch.actor import Actor, endpoint, this_host

        class Echo(Actor):
            @endpoint
            def say(self, value):
                return value

        if __name__ == "__main__":
            procs = this_host().spawn_procs({"gpus": 2})
            assert len(procs.spawn("echo", Echo).say.call(1).get()) == 2
            procs.stop().get()
        """,
        env={"PYTHONPATH": str(tmp_path), "NOTES": str(tmp_path)},
    )
    assert result.exit_code == 0, result
    agent, spawner = (
        [name for name in (tmp_path / title).read_text().split() if name.startswith("monarch")]
        for title in ("monarch agent", "monarch spawner")
    )
    assert [
        name
        for name in agent
        if name.startswith(("monarch.actor", "monarch._core.actors", "monarch._core.mesh"))
    ] == []
    assert len(agent) <= 121
    assert len(spawner) <= 169
