"""Stacks of running programs: of processes that sleep, wait, compute, hold the GIL in C, stand
still, or are gone.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from helpers.actors import Echo
from helpers.processes import stopped
from helpers.terminals import RunningProgram, running
from helpers.waiting import PATIENCE, wait_until
from helpers.workers import SECRET, workers
from monarch._core.plane import Failure, ProcAddress, pickling
from monarch._proc_stat import THREADS, stat_of
from monarch.stacks import dump
from monarch.stacks.gather import _Gathering
from monarch.stacks.kernel import look_at

if TYPE_CHECKING:
    from conftest import Spawn

pytestmark = pytest.mark.processes("stacks of other processes")

ACTORS = """
    import asyncio, ctypes, os, re, signal, sys, threading, time
    from monarch.actor import Actor, attach_to_workers, context, endpoint, this_host

    class Trainer(Actor):
        @endpoint
        def pid(self):
            return os.getpid()
        @endpoint
        def sleeps(self):
            time.sleep(600)
        @endpoint
        def holds_the_gil(self):
            ctypes.PyDLL(None).read(os.pipe()[0], ctypes.create_string_buffer(1), 1)  # goes on after a signal; sleep would not
        @endpoint
        def matches(self):
            re.match("(a+)+$", "a" * 60 + "b")
        @endpoint
        def computes(self):
            while True:
                sum(range(100))
        @endpoint
        def asks(self, other):
            other.sleeps.call().get()  # whichever is first: of different senders, there is no order

    class Waiter(Actor):
        @endpoint
        async def awaits(self):
            await self.deeper()
        async def deeper(self):
            await asyncio.sleep(600)

    def wait_for_input():
        sys.stdin.read()
        os._exit(0)  # its actors never would

    def blocked(trainers):
        print("go", *trainers.pid.call().get().values(), flush=True)
        threading.Thread(target=wait_for_input, daemon=True).start()
    """

HANGS = (
    ACTORS
    + """
    if __name__ == "__main__":
        procs = this_host().spawn_procs({"gpus": 8}, name="trainers")
        trainers, waiters = procs.spawn("trainer", Trainer), procs.spawn("waiter", Waiter)
        blocked(trainers)
        trainers.slice(gpus=[0, 1]).sleeps.broadcast()
        trainers.slice(gpus=2).holds_the_gil.broadcast()
        trainers.slice(gpus=3).matches.broadcast()
        trainers.slice(gpus=4).computes.broadcast()
        trainers.slice(gpus=5).asks.broadcast(trainers.slice(gpus=0))
        waiters.slice(gpus=6).awaits.broadcast()
        trainers.slice(gpus=0).pid.call_one().get()
    """
)

WITHOUT_PY_SPY = """
import importlib.metadata as metadata, shutil
shutil.which = lambda *args, **kwargs: None
def distribution(name):
    raise metadata.PackageNotFoundError(name)
metadata.distribution = distribution
"""


def stacks(program: RunningProgram, *options: str) -> str:
    result = program.monarch("stacks", "-p", str(program.pid), *options)
    assert result.returncode == 0, result.stderr
    return result.stdout


def until(program: RunningProgram, *texts: str, options: tuple[str, ...] = ()) -> str:
    """What the command shows once all these texts are in it: the actors take a moment to get
    there.
    """
    shown = ""

    def there() -> bool:
        nonlocal shown
        shown = stacks(program, *options)
        return all(text in shown for text in texts)

    try:
        wait_until(there, what="stacks", timeout=60)
    except AssertionError as error:
        missing = [text for text in texts if text not in shown]
        raise AssertionError(f"missing: {missing}\n{shown}") from error
    return shown


def test_ranks_that_hang_in_different_ways_are_told_apart_from_another_terminal(
    tmp_path: Path,
) -> None:
    with running(HANGS, tmp_path) as program:
        pids = program.wait_for("go").split()[1:]
        os.kill(int(pids[7]), signal.SIGSTOP)
        shown = until(
            program,
            "trainers (8 ranks)",
            "2 ranks [0-1]: sleeps at train.py:",
            f"1 rank [2], process {pids[2]}: holds_the_gil at train.py:",
            f"1 rank [3], process {pids[3]}: matches: match at train.py:",
            "[4], process",
            "computes at train.py:",
            "[5], process",
            "asks: get at train.py:",
            "waits for trainer.sleeps()",
            "[6], process",
            "awaits: sleep at train.py:",
            f"[7], process {pids[7]}: is stopped",
        )
        # whose main thread is blocked
        assert (
            shown.startswith("client\n") and f"  process {program.pid}: get at train.py:" in shown
        )
        assert "(C code holds the GIL)" in shown
        assert "> deeper" in shown and "> awaits" in shown


PICKED = """
    from monarch import programs
    from monarch.stacks.gather import of_program

    def shown(*picked):
        return str(of_program(connection, *picked).get())

    with programs.connect(int(sys.argv[1])) as connection:
        while "2 ranks [0-1]: sleeps" not in shown(None, "gpus=0:2"):
            pass
        picked = shown("trainers", "0-1")
        assert picked.startswith("trainers (8 ranks)\\n  2 ranks [0-1]: sleeps at train.py:"), picked
        assert "client" not in picked and "[2]" not in picked, picked
        assert shown("client").startswith("client\\n")
        assert "no process is of this mesh" in shown("nobody")
        everything = of_program(connection, "trainers", "0").get().lines(everything=True)
        assert any("sync_cell.py" in line for _, line in everything)
    """


@pytest.mark.slow
def test_a_mesh_and_its_ranks_can_be_picked_and_shown_as_json(tmp_path: Path) -> None:
    with running(HANGS, tmp_path) as program:
        program.wait_for("go")
        picked = program.other(PICKED, str(program.pid))
        assert picked.returncode == 0, picked.stderr
        [found] = json.loads(stacks(program, "--rank", "1", "--json"))["classes"]
        assert (found["ranks"], found["endpoint"], found["lines"][0]["kind"]) == (
            [1],
            "sleeps",
            "user",
        )
        wrong = program.monarch("stacks", "-p", str(program.pid), "--rank", "one")
        assert wrong.returncode == 1 and wrong.stderr.startswith(
            "error: 'one' does not say which ranks"
        )


def test_a_program_asks_for_its_own_stacks_and_those_of_a_slice(tmp_path: Path) -> None:
    source = (
        ACTORS
        + """
    if __name__ == "__main__":
        procs = this_host().spawn_procs({"gpus": 3}, name="trainers")
        trainers = procs.spawn("trainer", Trainer)
        assert len(trainers.pid.call().get().values()) == 3
        trainers.slice(gpus=[0, 2]).sleeps.broadcast()
        def headlines(mesh):
            return [(each.mesh, each.ranks, each.headline) for each in mesh.stacks().get().classes]
        wanted = ("trainers", (2,), "sleeps at train.py")
        while [each[:2] + (each[2].partition(":")[0],) for each in headlines(procs.slice(gpus=2))] != [wanted]:
            pass
        assert headlines(procs.slice(gpus=1)) == [("trainers", (1,), "waits for a message")]
        found = this_host().stacks().get()
        assert {proc.mesh for proc in found.procs} == {"client", "trainers"} and not found.silent
        assert "2 ranks [0,2]: sleeps at train.py:" in str(found), found
        print("go", flush=True)
        os._exit(0)
    """
    )
    with running(source, tmp_path) as program:
        program.wait_for("go")


def test_a_client_that_holds_the_gil_is_seen_by_its_agent(tmp_path: Path) -> None:
    source = (
        ACTORS
        + """
    def crunch():
        ctypes.PyDLL(None).read(os.pipe()[0], ctypes.create_string_buffer(1), 1)  # goes on after a signal; sleep would not

    if __name__ == "__main__":
        trainers = this_host().spawn_procs(name="trainers").spawn("trainer", Trainer)
        print("go", *trainers.pid.call().get().values(), flush=True)
        crunch()
    """
    )
    with running(source, tmp_path) as program:
        program.wait_for("go")
        shown = until(program, "crunch at train.py:")
        assert (
            f"process {program.pid}: crunch at train.py:" in shown
            and "(C code holds the GIL)" in shown
        )
        program.process.kill()


def test_stacks_of_attached_hosts_name_a_silent_one(
    tmp_path: Path,
) -> None:
    # a host that is silent for so long is lost: whoever looks may need longer to start
    patient = {"HYPERACTOR_CHANNEL_RECONNECT_TIMEOUT": "2m", "MONARCH_HEARTBEAT_TIMEOUT": "2m"}
    with workers(2, env=patient) as attached:
        source = (
            ACTORS
            + f"""
    if __name__ == "__main__":
        hosts = attach_to_workers(workers={attached.addresses!r})
        trainers = hosts.spawn_procs({{"gpus": 2}}, name="far").spawn("trainer", Trainer)
        blocked(trainers)
        trainers.slice(hosts=1, gpus=0).holds_the_gil.broadcast()
        trainers.slice(hosts=0).sleeps.broadcast()
        trainers.slice(hosts=0).pid.call().get()
    """
        )
        with running(source, tmp_path, {"MONARCH_SECRET": SECRET, **patient}) as program:
            program.wait_for("go")
            until(
                program,
                "far (4 ranks)\n  2 ranks [0-1]: sleeps at train.py:",
                "1 rank [2], process",
                "holds_the_gil at train.py:",
                "1 rank [3], process",
                "waits for a message",
                options=("--mesh", "far"),
            )
            worker = str(attached.processes[1].pid)
            shown = program.monarch("stacks", "-p", worker, "--mesh", "far").stdout
            # what runs on its host
            assert "[2]" in shown and "[3]" in shown and "[0-1]" not in shown
            with stopped(attached.agent(1)):
                shown = stacks(program, "--mesh", "far")
            assert (
                f"host {attached.addresses[1]} did not answer" in shown
                and "2 ranks [0-1]: sleeps" in shown
            )


def _child(code: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["/bin/sh", "-c", code])


@pytest.mark.parametrize(
    ("after", "state"), [("kill -STOP $$; sleep 600", "is stopped"), ("exec sleep 600", "")]
)
def test_the_state_of_a_process_is_told_and_one_without_the_signal_left_alone(
    after: str, state: str
) -> None:
    child = _child(after)
    try:
        wait_until(lambda: state in dump.state_of(child.pid), what=state)
        assert dump.by_signal([child.pid]) == {}
        assert child.poll() is None  # a process that does not take the signal would end by it
    finally:
        child.kill()
        child.wait()
    assert dump.state_of(child.pid) == "has ended"


def test_without_py_spy_a_stopped_process_is_still_said_to_be_stopped(tmp_path: Path) -> None:
    source = (
        ACTORS
        + """
    if __name__ == "__main__":
        trainers = this_host().spawn_procs(name="trainers").spawn("trainer", Trainer)
        blocked(trainers)
        trainers.pid.call_one().get()
        sys.stdin.read()
    """
    )
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_PY_SPY)
    with running(source, tmp_path, {"PYTHONPATH": str(tmp_path)}) as program:
        pid = program.wait_for("go").split()[1]
        with stopped(int(pid)):
            shown = stacks(program)
        assert f"1 rank [0], process {pid}: is stopped (SIGSTOP, or Ctrl-Z)\n" in shown


def test_a_process_whose_name_is_cut_in_the_middle_of_a_letter_is_looked_at(spawn: Spawn) -> None:
    pid = spawn(1, name="тренермодели").spawn("beside", Echo).pid.call_one().get()
    assert Path(f"/proc/{pid}/comm").read_text().strip() == "тренерм"
    cut = (
        "open('/proc/self/comm', 'wb').write('тренермодели'.encode()[:15]); print(flush=True);"
        " input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", cut], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdin is not None and other.stdout is not None
        other.stdout.readline()
        assert len(stat_of(other.pid)) > THREADS
        assert look_at(other.pid) is not None
        assert dump.by_signal([other.pid]) == {}  # has no handler
        other.communicate(b"\n", timeout=60)


def test_several_who_look_at_a_process_at_once_see_the_same(spawn: Spawn) -> None:
    pid = spawn(1).spawn("s", Echo).pid.call_one().get(timeout=PATIENCE)

    def look(_: int) -> int:
        return len(dump.by_signal([pid]).get(pid, ()))

    # its thread comes to rest a moment after its answer
    wait_until(lambda: look(0) == look(1), what="two looks that are the same")
    alone = look(0)
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(look, range(40))) == [alone] * 40


def test_a_host_that_is_lost_after_it_has_answered_leaves_out_no_other() -> None:
    agents = [ProcAddress(host, "").agent for host in ("a", "b", "c")]
    gathering = _Gathering(agents)
    answer = pickling.dumps([])[0]
    gathering.reply(SimpleNamespace(rank=0, flags=0, payload=answer, buffers=()))
    assert not gathering.peer_failed(agents[0], Failure("lost", "the connection was lost"))
    assert not gathering.reply(SimpleNamespace(rank=1, flags=0, payload=answer, buffers=()))
    assert not gathering.future.done()
    assert gathering.peer_failed(agents[2], Failure("lost", "the host was lost"))
    assert gathering.future.get(timeout=PATIENCE).silent == {"c": "the host was lost"}
