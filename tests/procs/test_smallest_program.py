"""The first program that anybody writes: it works, says nothing of its own, and is gone when it is
over.
"""

from __future__ import annotations

from helpers.scripts import run_script

SMALLEST = """
from monarch.actor import Actor, endpoint, this_host


class Trainer(Actor):
    @endpoint
    def train(self, step: int) -> int:
        return step


procs = this_host().spawn_procs({"gpus": 8})
trainers = procs.spawn("trainers", Trainer)
fut = trainers.train.call(step=0)
fut.get()
"""


def test_the_smallest_program_prints_nothing_exits_with_0_and_leaves_no_process() -> None:
    result = run_script(SMALLEST)
    assert result.exit_code == 0, str(result)
    assert result.stdout == "", str(result)
    assert result.stderr == "", str(result)
    assert result.left_behind == [], str(result)


def test_the_smallest_program_waits_for_no_time_to_be_over() -> None:
    """Each limit that it could wait for is an hour."""
    waits = (
        "host_spawn_ready",
        "cleanup",
        "process_exit",
        "stop_actor",
        "heartbeat",
        "message_delivery",
    )
    limits = {f"{wait}_timeout": "1h" for wait in waits}
    result = run_script(f"from monarch.config import configure\nconfigure(**{limits})\n{SMALLEST}")
    assert result.exit_code == 0, str(result)


def test_the_smallest_program_causes_no_warning() -> None:
    result = run_script(SMALLEST, python_args=("-W", "error", "-X", "dev"))
    assert result.exit_code == 0, str(result)
    assert result.stderr == "", str(result)


def test_a_program_that_only_imports_starts_nothing() -> None:
    result = run_script("""
        import os, sys, threading
        import monarch.actor
        print(threading.active_count(), len(os.listdir("/proc/self/task")), "torch" in sys.modules)
        """)
    assert result.stdout.split() == ["1", "1", "False"], str(result)


def test_a_program_may_use_only_its_own_process() -> None:
    result = run_script("""
        from monarch.actor import Actor, endpoint, this_proc

        class Counter(Actor):
            def __init__(self):
                self.n = 0

            @endpoint
            def add(self):
                self.n += 1
                return self.n

        counter = this_proc().spawn("c", Counter)
        print([counter.add.call_one().get() for _ in range(3)])
        """)
    assert (result.exit_code, result.stdout.strip(), result.stderr) == (0, "[1, 2, 3]", ""), str(
        result
    )
    assert result.left_behind == [], str(result)


def test_the_same_program_with_await() -> None:
    result = run_script("""
        import asyncio
        from monarch.actor import Actor, endpoint, this_host

        class Trainer(Actor):
            @endpoint
            async def train(self, step: int) -> int:
                return step

        async def main():
            async with this_host().spawn_procs(per_host={"gpus": 2}) as procs:
                print((await procs.spawn("trainers", Trainer).train.call(step=3)).values())

        asyncio.run(main())
        """)
    assert (result.exit_code, result.stdout.strip(), result.stderr) == (0, "[3, 3]", ""), str(
        result
    )
    assert result.left_behind == [], str(result)


def test_cleanups_run_when_the_program_just_ends() -> None:
    result = run_script("""
        from monarch.actor import Actor, endpoint, this_host

        class Cleans(Actor):
            @endpoint
            def ready(self):
                return True

            def __cleanup__(self, exc):
                print("cleaned", exc)

        this_host().spawn_procs().spawn("c", Cleans).ready.call_one().get()
        """)
    assert result.exit_code == 0, str(result)
    assert result.stdout == "cleaned None\n", str(result)


def test_a_program_that_exits_with_a_status_keeps_it() -> None:
    result = run_script("""
        import sys
        from monarch.actor import this_host
        this_host().spawn_procs(per_host={"gpus": 2}).initialized.get()
        sys.exit(7)
        """)
    assert result.exit_code == 7, str(result)
    assert result.stderr == "", str(result)
    assert result.left_behind == [], str(result)
