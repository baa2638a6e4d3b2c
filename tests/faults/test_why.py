"""The verdict on real programs that hang in known ways, as the command gives it at another
terminal.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from helpers.processes import stopped
from helpers.terminals import RunningProgram, running
from helpers.waiting import wait_until
from helpers.workers import SECRET, workers

PROGRAM = """
    import ctypes, os, re, sys, threading, time
    from monarch.actor import Actor, attach_to_workers, endpoint, this_host

    class Trainer(Actor):
        def __init__(self):
            self.lock = threading.Lock()
            self.data, self.filler = os.pipe()
        @endpoint
        def pid(self):
            return os.getpid()
        @endpoint
        def step(self, other, what):
            getattr(other, what).call_one().get()
        @endpoint
        def next_batch(self):
            time.sleep(600)
        @endpoint
        def checkpoint(self):
            with self.lock:
                self.lock.acquire()
        @endpoint
        def tokenize(self):
            re.match("(a+)+$", "a" * 60 + "b")
        @endpoint
        def ask(self):
            terminal, self.other = os.openpty()
            os.read(self.other, 1)
        @endpoint
        def compute(self):
            while True:
                sum(range(1000))
        @endpoint
        def pass_on(self, *others):
            if others:
                others[0].pass_on.call_one(*others[1:]).get(timeout=600)
        @endpoint
        def log(self, line):
            time.sleep(600)

    def wait_for_input():
        sys.stdin.read()
        os._exit(0)

    def main():
        threading.Thread(target=wait_for_input, daemon=True).start()
        procs = this_host().spawn_procs({"gpus": 3}, name="trainers")
        trainers = procs.spawn("trainer", Trainer)
        print("go", *trainers.pid.call().get().values(), flush=True)
        a, b, c = (trainers.slice(gpus=rank) for rank in range(3))
        {what}

    if __name__ == "__main__":
        main()
    """


def asked(program: RunningProgram, *options: str) -> tuple[int, dict[str, Any]]:
    result = program.monarch("why", "-p", str(program.pid), "--seconds", "0.4", "--json", *options)
    assert result.stdout, result.stderr
    return result.returncode, json.loads(result.stdout)


def until(program: RunningProgram, right: Callable[[int, dict[str, Any]], bool]) -> dict[str, Any]:
    """The verdict, once it is that: ranks take a moment to get where they hang."""
    status = -1
    verdict: dict[str, Any] = {}

    def there() -> bool:
        nonlocal status, verdict
        status, verdict = asked(program)
        return right(status, verdict)

    try:
        wait_until(there, what="the verdict", timeout=60)
    except AssertionError as error:
        raise AssertionError(f"status {status}: {json.dumps(verdict, indent=1)}") from error
    return verdict


def says(status: int, *texts: str) -> Callable[[int, dict[str, Any]], bool]:
    return lambda got, verdict: got == status and all(text in verdict["sentence"] for text in texts)


def blamed(verdict: dict[str, Any]) -> list[tuple[str, list[int], str]]:
    return [
        (each["mesh"], each["ranks"], each["state"])
        for each in verdict["classes"]
        if each["blamed"]
    ]


@contextmanager
def hanging(what: str, folder: Path, **env: str) -> Iterator[tuple[RunningProgram, list[int]]]:
    with running(PROGRAM.replace("{what}", what), folder, env) as program:
        yield program, [int(pid) for pid in program.wait_for("go").split()[1:]]


def test_the_command_says_what_holds_up_the_program_and_since_when(tmp_path: Path) -> None:
    with hanging("trainers.slice(gpus=[0, 1]).step.call(c, 'next_batch').get()", tmp_path) as (
        program,
        pids,
    ):
        culprit = f"process {pids[2]}) in next_batch (train.py:19): a sleep"
        verdict = until(
            program,
            says(
                4, "Stuck for ", ": trainers[0-1] in get (train.py:16); trainers[2] (host ", culprit
            ),
        )
        assert blamed(verdict) == [("trainers", [2], "stands")] and verdict["seconds"] > 0
        shown = program.monarch("why", "-p", str(program.pid), "--seconds", "0.4")
        assert shown.returncode == 4 and shown.stdout.startswith("Stuck for ")
        assert f"\n  > 1 rank [2], process {pids[2]} on " in shown.stdout
        assert "\n  trainers[0-1] → trainers[2]  ◀ here\n" in shown.stdout
        assert shown.stdout.endswith("  monarch stacks --mesh trainers --rank 2\n")
        if importlib.util.find_spec("duckdb") is not None:
            file = str(tmp_path / "run.duckdb")
            program.monarch("snapshot", file, "-p", str(program.pid))
            kept = program.monarch("why", "--run", file)
            assert kept.returncode == 4 and ": Stuck for " in kept.stdout, kept.stderr
            # later by some seconds
            live, saved = (re.sub(r" for \d+ s", "", each.stdout) for each in (shown, kept))
            assert saved.partition("\nranks\n")[2] == live.partition("\nranks\n")[2]


BESIDE = """
        from monarch.actor import this_proc
        beside = this_proc().spawn("beside", Trainer)
        beside.next_batch.broadcast()
        b.next_batch.call_one().get()
    """


def test_the_wait_of_the_program_is_seen_beside_an_actor_in_its_process(tmp_path: Path) -> None:
    with hanging(BESIDE.strip(), tmp_path) as (program, _):
        until(
            program,
            lambda status, verdict: any(
                (each["mesh"], each["state"]) == ("client", "waits") for each in verdict["classes"]
            ),
        )


SCENES = """
        from monarch.config import configure
        from monarch.why import why
        import json
        configure(cleanup_timeout="100ms", process_exit_timeout="100ms")
        def until(status, who):
            verdict = None
            while verdict is None or verdict.status != status or who not in verdict.sentence:
                verdict = why(seconds=0.2)
            states = [[each.mesh, each.ranks, each.state] for each in verdict.blamed]
            print("scene", json.dumps([verdict.sentence, states]), flush=True)
        until("fine", "3 ranks")
        for endpoint, status in (("checkpoint", "stuck"), ("tokenize", "stuck"), ("ask", "stuck"), ("compute", "slow")):
            with this_host().spawn_procs({"gpus": 3}, name=endpoint) as others:
                hanging = others.spawn("trainer", Trainer)
                hanging.slice(gpus=[0, 1]).step.broadcast(hanging.slice(gpus=2), endpoint)
                until(status, f"{endpoint}[0-1]")
    """


@pytest.mark.timeout(120)  # five programs in one
@pytest.mark.slow
def test_a_program_sees_its_own_locks_loops_and_reads(tmp_path: Path) -> None:
    with hanging(SCENES.strip(), tmp_path) as (program, _):
        scenes = [json.loads(program.wait_for("scene").removeprefix("scene ")) for _ in range(5)]
    fine, lock, gil, reads, computes = (sentence for sentence, _ in scenes)
    assert fine.startswith("Fine: nothing runs: 3 ranks wait for a message; the client ")
    assert (
        ": checkpoint[0-1] in get (" in lock
        and ") in checkpoint (train.py:23): a wait for another" in lock
    )
    assert ") in match (train.py:26): C code holds the GIL, and computes" in gil
    assert ") in ask (train.py:30): read of /dev/pts/" in reads
    assert computes.startswith("Slow")
    assert ": compute[0-1] in get (train.py:16) wait for compute[2] (host " in computes
    *stuck, (_, busy) = scenes[1:]
    states = [state for _, [[_, ranks, state]] in stuck if ranks == [2]]
    assert states == ["stands", "holds the GIL", "stands"]
    # a starved machine has others that are slow
    assert [state for _, ranks, state in busy if ranks == [2]] == ["runs"]


@pytest.mark.slow
def test_a_process_that_is_stopped_is_blamed(tmp_path: Path) -> None:
    with hanging("trainers.compute.call().get()", tmp_path, MONARCH_HEARTBEAT_TIMEOUT="60s") as (
        program,
        pids,
    ):
        until(program, says(0, "Fine: 3 ranks work"))
        os.kill(pids[1], signal.SIGSTOP)
        verdict = until(
            program, says(4, "trainers[1] (host ", f"process {pids[1]}) is stopped (SIGSTOP")
        )
        assert blamed(verdict) == [("trainers", [1], "frozen")] and len(verdict["frozen"]) == 1


def test_three_actors_that_wait_for_each_other_are_named_as_a_circle(tmp_path: Path) -> None:
    what = "a.pass_on.call_one(b, c, a).get()"
    with hanging(what, tmp_path, MONARCH_DEADLOCK_CHECK_INTERVAL="0") as (program, _):
        circle = "trainer[0] → trainer[1] → trainer[2] → trainer[0]"
        verdict = until(program, says(4, f"{circle} wait for each other"))
        assert [" → ".join(each) for each in verdict["circles"]] == [circle.rpartition(" → ")[0]]
        assert {rank for _, ranks, _ in blamed(verdict) for rank in ranks} == {0, 1, 2}


def test_a_full_mailbox_that_holds_back_the_program_is_blamed(tmp_path: Path) -> None:
    with hanging(
        "for i in range(1_000_000): a.log.broadcast(i)",
        tmp_path,
        MONARCH_MAILBOX_LIMIT="20",
        HYPERACTOR_MESSAGE_DELIVERY_TIMEOUT="10m",
    ) as (program, _):
        verdict = until(
            program, says(4, "the client in broadcast (train.py:", "its mailbox is full")
        )
        assert blamed(verdict) == [("trainers", [0], "stands")]
        [full] = verdict["full"]
        assert full.startswith("trainer[0]: ") and full.endswith("1 process is paused")


def test_a_program_in_which_nothing_runs_is_fine_and_says_so(tmp_path: Path) -> None:
    with hanging("threading.Event().wait()", tmp_path) as (program, _):
        until(
            program,
            says(
                0,
                "Fine: nothing runs: 3 ranks wait for a message; the client is in wait (train.py:",
            ),
        )


COLLECTIVE = """
    import os, sys, threading
    import torch
    import torch.distributed as dist
    from monarch.actor import Actor, context, endpoint, this_host

    class Worker(Actor):
        @endpoint
        def train(self, store):
            rank = context().actor_instance.rank.rank
            dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=3)
            dist.all_reduce(torch.ones(1))
            if rank != 1:  # the bug
                dist.all_reduce(torch.ones(1))

    def wait_for_input():
        sys.stdin.read()
        os._exit(0)

    if __name__ == "__main__":
        threading.Thread(target=wait_for_input, daemon=True).start()
        workers = this_host().spawn_procs({"gpus": 3}, name="trainers").spawn("worker", Worker)
        print("go", flush=True)
        workers.train.call(sys.argv[0] + ".store").get()
    """


@pytest.mark.slow
def test_a_rank_that_misses_a_collective_is_blamed(tmp_path: Path) -> None:
    with running(COLLECTIVE, tmp_path) as program:
        program.wait_for("go")
        verdict = until(
            program,
            says(
                4,
                "trainers[0,2] in all_reduce (train.py:16)",
                "trainers[1] (host ",
                "is not in it: it waits for a message",
            ),
        )
        assert blamed(verdict) == [("trainers", [1], "absent")]


ALL_REDUCES = COLLECTIVE.replace("if rank != 1:  # the bug", "while True:").replace(
    "(torch.ones(1))", "(torch.ones(1 << 20))"
)
LOOKS = """
        from monarch.why import why
        workers.train.broadcast(sys.argv[0] + ".store")
        verdicts = []
        while len(verdicts) < 4:
            verdict = why(seconds=0.5)
            if verdicts or "all_reduce" in verdict.sentence:
                verdicts.append(verdict.sentence)
        print("saw", *verdicts, flush=True)
    """


@pytest.mark.slow
def test_a_program_that_spends_its_time_in_collectives_is_not_stuck(tmp_path: Path) -> None:
    call = 'workers.train.call(sys.argv[0] + ".store").get()'
    with running(ALL_REDUCES.replace(call, LOOKS.strip()), tmp_path) as program:
        saw = program.wait_for("saw")
    assert "all_reduce (train.py:16)" in saw and "Stuck" not in saw


@pytest.mark.slow
def test_a_host_that_does_not_answer_is_blamed(tmp_path: Path) -> None:
    # a host that is silent for so long is lost: whoever looks may need longer to start
    patient = {"HYPERACTOR_CHANNEL_RECONNECT_TIMEOUT": "2m", "MONARCH_HEARTBEAT_TIMEOUT": "2m"}
    with workers(2, env=patient) as attached:
        source = PROGRAM.replace(
            'this_host().spawn_procs({"gpus": 3}',
            f'attach_to_workers(workers={attached.addresses!r}, name="nodes").spawn_procs({{"gpus": 2}}',
        ).replace("for rank in range(3)", "for rank in (0, 1, 1)")
        source = source.replace(
            "{what}", "trainers.slice(hosts=1, gpus=0).compute.call_one().get()"
        )
        with running(source, tmp_path, {"MONARCH_SECRET": SECRET, **patient}) as program:
            program.wait_for("go")
            until(program, says(0, "Fine: 1 rank works, 3 ranks wait for a message"))
            with stopped(attached.agent(1)):
                status, verdict = asked(program)
            assert (
                status == 4
                and f"host nodes[1] ({attached.addresses[1]}) does not" in verdict["sentence"]
            )
            assert list(verdict["silent"]) == [attached.addresses[1]]


STEPS = """
    import sys, threading, time
    from monarch.actor import Actor, current_rank, endpoint, this_host
    from monarch.telemetry import step

    class Trainer(Actor):
        @endpoint
        def train(self, late):
            while True:
                step()
                sum(range(20_000))
                time.sleep(0.03 if current_rank().rank == late else 0.02)

    class Burner(Actor):
        @endpoint
        def burn(self):
            while True:
                sum(range(1000))

    if __name__ == "__main__":
        trainers = this_host().spawn_procs({"gpus": 5}, name="trainers").spawn("trainer", Trainer)
        trainers.train.broadcast({late})
        {look}
        print("go", flush=True)
        sys.stdin.read()
        import os
        os._exit(0)
    """


def test_a_rank_whose_steps_take_longer_is_named_with_by_how_much(tmp_path: Path) -> None:
    with running(STEPS.replace("{late}", "3").replace("{look}", ""), tmp_path) as program:
        program.wait_for("go")
        verdict = until(
            program,
            says(
                3, "Slow: trainers[3] (host ", ") is slower than the others by ", " ms a step where"
            ),
        )
        [late] = verdict["stragglers"]
        assert (late["mesh"], late["rank"], late["endpoint"]) == ("trainers", 3, "") and 12 <= late[
            "steps"
        ] <= 32
        assert late["seconds"] > 1.2 * late["usual"] > 0.02
        shown = program.monarch("why", "-p", str(program.pid), "--seconds", "0.4")
        assert "\nstragglers\n  trainers[3] (host " in shown.stdout


MARKED_CALLS = """
    import os, sys, threading, time
    from monarch.actor import Actor, current_rank, endpoint, this_host
    from monarch.telemetry import step

    class Trainer(Actor):
        @endpoint
        def work(self, number):
            step(number)
            time.sleep(0.06 if current_rank().rank == 3 else 0.03)

    def drive(trainers):
        for number in range(1_000_000):
            trainers.work.call(number).get()

    if __name__ == "__main__":
        trainers = this_host().spawn_procs({"gpus": 5}, name="trainers").spawn("trainer", Trainer)
        threading.Thread(target=drive, args=(trainers,), daemon=True).start()
        print("go", flush=True)
        sys.stdin.read()
        os._exit(0)
    """


def test_a_rank_that_is_busy_longer_is_named_where_the_program_calls_each_step(
    tmp_path: Path,
) -> None:
    with running(MARKED_CALLS, tmp_path) as program:
        program.wait_for("go")
        verdict = until(program, says(3, "Slow: trainers[3] (host ", " ms a step where"))
        [late] = verdict["stragglers"]
        assert (late["rank"], late["endpoint"]) == (3, "")
        assert late["seconds"] > 1.2 * late["usual"] > 0.03


LOOKS_AT_EQUALS = """
        from collections import Counter
        from monarch.telemetry import read
        from monarch.why import why
        this_host().spawn_procs({"gpus": 3}, name="burners").spawn("burner", Burner).burn.broadcast()
        steps = Counter()
        while len(steps) < 5 or min(steps.values()) < 40:
            steps = Counter(row["actor_id"] for row in read("steps").get().rows("steps"))
        for _ in range(4):
            verdict = why(seconds=0.2)
            print("saw", verdict.status, len(verdict.stragglers), verdict.sentence, flush=True)
    """


def test_equal_ranks_on_a_machine_that_is_busy_are_not_called_slow(tmp_path: Path) -> None:
    source = STEPS.replace("{late}", "None").replace("{look}", LOOKS_AT_EQUALS.strip())
    with running(source, tmp_path) as program:
        saw = [program.wait_for("saw") for _ in range(4)]
    assert all(line.startswith("saw fine 0 Fine: 8 ranks work") for line in saw), saw
