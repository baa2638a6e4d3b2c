"""What a program ends itself, on its way out, is no fault: its status is its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from helpers.scripts import program, run_script
from helpers.waiting import PATIENCE
from helpers.workers import SECRET
from monarch.actor import attach_to_workers

WITH_WORKERS = """
    import multiprocessing, os, subprocess, sys, tempfile, time
    from monarch.actor import Actor, attach_to_workers, endpoint, run_worker_loop_forever

    COMMAND = "import sys; from monarch.actor import run_worker_loop_forever as w; w(address=sys.argv[1])"

    class Counter(Actor):
        @endpoint
        def pid(self):
            return os.getpid()

    def serve(address):
        run_worker_loop_forever(address=address)

    def start(how, address):
        if how == "subprocess":
            return subprocess.Popen([sys.executable, "-c", COMMAND, address])
        process = multiprocessing.get_context("spawn").Process(target=serve, args=(address,))
        process.start()
        return process

    def run(how, end):
        with tempfile.TemporaryDirectory() as folder:
            addresses = [f"ipc://{folder}/{index}" for index in range(2)]
            workers = [start(how, address) for address in addresses]
            hosts = attach_to_workers(workers=addresses)
            counters = hosts.spawn_procs({"n": 2}).spawn("counters", Counter)
            print(len(counters.pid.call().get().values()), flush=True)
            for worker in workers:
                getattr(worker, end)()
            for worker in workers:
                worker.join() if how == "multiprocessing" else worker.wait()
"""


@pytest.mark.parametrize("end", ["terminate", "kill"])
@pytest.mark.parametrize("how", ["subprocess", "multiprocessing"])
def test_a_program_that_ends_its_own_workers_last_has_its_own_status(how: str, end: str) -> None:
    result = run_script(
        program(
            WITH_WORKERS,
            f"""
            if __name__ == "__main__":
                run({how!r}, {end!r})
                sys.exit(3)
            """,
        ),
        env={"MONARCH_SECRET": SECRET},
    )
    assert (result.exit_code, result.stdout, result.stderr) == (3, "4\n", ""), str(result)
    assert result.left_behind == [], str(result)


def test_a_program_that_goes_on_without_its_workers_is_told() -> None:
    result = run_script(
        program(
            WITH_WORKERS,
            """
            if __name__ == "__main__":
                run("subprocess", "terminate")
                time.sleep(1000)
            """,
        ),
        env={"MONARCH_SECRET": SECRET},
    )
    assert result.exit_code == 1, str(result)
    assert "which started this host's agent, is gone" in result.stderr, str(result)
    assert result.left_behind == [], str(result)


def worker_of_its_own(folder: Path, then: str) -> subprocess.Popen[str]:
    """A worker in the background of a program, which then does something else."""
    code = (
        "import atexit, os, signal, threading, time\n"
        "from monarch.actor import start_worker_loop_forever\n"
        "atexit.register(print, 'bye')\n"
        f"worker = start_worker_loop_forever(address='ipc://{folder}/w')\n"
        f"print('listens', flush=True)\n{then}\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "listens\n"
    return process


@pytest.mark.parametrize(
    ("then", "said"),
    [
        ("time.sleep(1000)", "bye\n"),
        ("threading.Event().wait()", "bye\n"),
        ("signal.pause()", "bye\n"),
        ("threading.Thread(target=time.sleep, args=(2,)).start()", "bye\n"),
        ("worker.get(); time.sleep(1.5); print('on')", "on\nbye\n"),
        ("import asyncio; asyncio.run(asyncio.sleep(1000))", "bye\n"),
    ],
)
def test_a_process_that_only_serves_ends_with_status_0_when_its_host_is_shut_down(
    then: str, said: str, tmp_path: Path
) -> None:
    process = worker_of_its_own(tmp_path, then)
    attach_to_workers(workers=[f"ipc://{tmp_path}/w"]).shutdown().get()
    out, _ = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (0, said)


def test_a_process_that_only_serves_ends_with_status_1_when_its_agent_is_killed(
    tmp_path: Path,
) -> None:
    process = worker_of_its_own(
        tmp_path,
        "agent = open(f'/proc/self/task/{os.getpid()}/children').read()\n"
        "os.kill(int(agent), signal.SIGKILL)\ntime.sleep(1000)",
    )
    out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1 and "was ended by signal 9" in out, out
