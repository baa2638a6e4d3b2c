"""How long it takes until a caller who waits is told of a death: from the event to the exception.

Each time is the best of several real deaths, and is held beside that in which the kernel tells a
parent of the end of a plain child, so that a busy machine does not decide; `pytest -s` prints the
table, with medians.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import select
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from helpers.actors import Echo
from helpers.scripts import run_program
from helpers.waiting import wait_until
from monarch._oom_killer import count_of
from monarch.actor import Actor, ActorError, Channel, Port, SupervisionError, endpoint

if TYPE_CHECKING:
    from conftest import Spawn
    from helpers.faults import Faults

pytestmark = pytest.mark.both

TRIES = 5
PROC_BOUND = 0.1
HOST_BOUND = 1.0


class Victim(Actor):
    """Ends its process in several ways, and says when it began to."""

    @endpoint
    def ready(self) -> int:
        return os.getpid()

    @endpoint
    def die(self, how: str, last_words: str) -> None:
        with open(last_words, "w") as file:
            file.write(str(time.monotonic()))
        if how == "os._exit":
            os._exit(3)
        elif how == "abort in C":
            ctypes.CDLL(None).abort()
        else:
            os.kill(os.getpid(), getattr(signal, how))
            time.sleep(600)

    @endpoint
    def use_up_memory(self, limit: int | None, last_words: str) -> int:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        with open(last_words, "w") as file:
            file.write(str(time.monotonic()))
        hoard = []
        while True:
            hoard.append(bytearray(b"x") * (16 << 20))

    @endpoint
    def join_group(self, folder: str) -> None:
        Path(folder, "cgroup.procs").write_text(str(os.getpid()))


class Waiter(Actor):
    @endpoint
    def wait_for(self, victim: Any, how: str, last_words: str, port: Port[float]) -> str:
        call = victim.die.call_one(how, last_words)
        try:
            call.get()
        except SupervisionError as error:
            port.send(time.monotonic())
            return str(error)
        return "no error"


class AsyncWaiter(Actor):
    @endpoint
    async def wait_for(self, victim: Any, how: str, last_words: str, port: Port[float]) -> str:
        try:
            await victim.die.call_one(how, last_words)
        except SupervisionError as error:
            port.send(time.monotonic())
            return str(error)
        return "no error"


@pytest.fixture(scope="module")
def table() -> Iterator[Callable[[str, list[float]], None]]:
    rows: list[tuple[str, list[float]]] = []
    yield lambda event, seconds: rows.append((event, seconds))
    print(f"\n{'event':34} {'best':>9} {'median':>9} {'worst':>9}")
    for event, seconds in rows:
        print(
            f"{event:34}"
            + "".join(
                f"{x * 1e3:7.1f} ms"
                for x in (min(seconds), statistics.median(seconds), max(seconds))
            )
        )


Table = Callable[[str, list[float]], None]


def kernel_tells() -> float:
    """Seconds from the death of a plain child to the wake-up of whoever polls for it."""
    child = subprocess.Popen(
        [sys.executable, "-S", "-c", "import time; print(flush=True); time.sleep(600)"],
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None
    child.stdout.readline()
    pidfd = os.pidfd_open(child.pid)
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    start = time.monotonic()
    child.kill()
    assert poll.poll(20_000)
    told = time.monotonic()
    child.wait()
    child.stdout.close()
    os.close(pidfd)
    return told - start


class Stopwatch:
    """Takes the time of deaths, each beside that of a plain child of which the kernel tells."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self._kernel: list[float] = []

    def note(self, seconds: float) -> None:
        self.times.append(seconds)
        self._kernel.append(kernel_tells())

    def best_is_within(self, bound: float) -> bool:
        """On a machine that is busy the bound grows with what the kernel takes there."""
        return min(self.times) < max(bound, 50 * statistics.median(self._kernel))


CALLERS: dict[str, Callable[[Any, str, str], Any]] = {
    "call_one": lambda victims, how, words: victims.slice(gpus=0).die.call_one(how, words),
    "call": lambda victims, how, words: victims.die.call(how, words),
    "stream": lambda victims, how, words: next(victims.slice(gpus=0).die.stream(how, words)),
    "choose": lambda victims, how, words: victims.slice(gpus=0).die.choose(how, words),
}


REASONS = {
    "SIGKILL": "SIGKILL",
    "SIGSEGV": "SIGSEGV",
    "SIGTERM": "SIGTERM",
    "os._exit": "code 3",
    "abort in C": "SIGABRT",
}


@pytest.mark.processes("a process that crashes in C")
@pytest.mark.parametrize(
    ("how", "caller"),
    [
        *((how, "call_one") for how in REASONS),
        *(("SIGKILL", caller) for caller in CALLERS if caller != "call_one"),
    ],
)
def test_a_caller_is_told_of_the_death_of_a_proc_at_once(
    how: str, caller: str, spawn: Spawn, faults: Faults, tmp_path: Path, table: Table
) -> None:
    watch = Stopwatch()
    for number in range(TRIES):
        procs = spawn(2)
        victims = procs.spawn("victim", Victim)
        victims.ready.call().get()
        words = str(tmp_path / f"{number}")
        with pytest.raises(SupervisionError, match=REASONS[how]):
            CALLERS[caller](victims, how, words).get()
        watch.note(time.monotonic() - float(Path(words).read_text()))
        procs.stop()
    table(f"proc: {how}, {caller}", watch.times)
    assert watch.best_is_within(PROC_BOUND)
    faults.wait_for(TRIES)


@pytest.mark.processes("how soon a death is told, beside a load")
@pytest.mark.parametrize("kind", [Waiter, AsyncWaiter])
def test_an_actor_that_waits_is_told_of_the_death_of_another_proc_at_once(
    kind: type[Any], spawn: Spawn, faults: Faults, tmp_path: Path, table: Table
) -> None:
    waiter = spawn(1).spawn("waiter", kind)
    watch = Stopwatch()
    for number in range(TRIES):
        victim = spawn(1).spawn("victim", Victim)
        victim.ready.call_one().get()
        port, told = Channel[float].open()
        words = str(tmp_path / f"{number}")
        text = waiter.wait_for.call_one(victim, "SIGKILL", words, port).get()
        assert "SIGKILL" in text
        watch.note(told.recv().get() - float(Path(words).read_text()))
    table(f"proc: SIGKILL, {kind.__name__} in a proc", watch.times)
    assert watch.best_is_within(PROC_BOUND)
    faults.wait_for(TRIES)


@pytest.mark.processes("how soon a death is told, beside a load")
def test_the_death_of_a_proc_is_told_at_once_while_others_are_being_spawned(
    spawn: Spawn, faults: Faults, tmp_path: Path, table: Table
) -> None:
    watch = Stopwatch()
    for number in range(3):
        victim = spawn(1).spawn("victim", Victim)
        pid = victim.ready.call_one().get()
        crowd = spawn(16)
        words = str(tmp_path / f"{number}")
        with pytest.raises(SupervisionError, match=f"pid {pid}"):
            victim.die.call_one("SIGKILL", words).get()
        watch.note(time.monotonic() - float(Path(words).read_text()))
        assert crowd.initialized.get()
        crowd.stop().get()
    table("proc: SIGKILL, 16 being spawned", watch.times)
    assert watch.best_is_within(
        HOST_BOUND
    )  # the two cores of a small machine have 16 processes to start
    faults.wait_for(3)


# the host's own processes

HOST_SCRIPT = """
    import json, os, signal, sys, threading, time
    import monarch.actor
    from helpers.processes import agent_of, spawner_of
    from monarch.actor import Actor, SupervisionError, endpoint, shutdown_context, this_host

    class Worker(Actor):
        @endpoint
        def pid(self):
            return os.getpid()

        @endpoint
        def wait(self):
            time.sleep(600)

    monarch.actor.unhandled_fault_hook = lambda failure: None
    times = []
    for _ in range({tries}):
        workers = this_host().spawn_procs(per_host={{"g": 2}}).spawn("worker", Worker)
        victim = {who}_of(workers.slice(g=0).pid.call_one().get())
        waiting = workers.wait.call()
        workers.slice(g=1).pid.call_one()
        killed = []
        def kill():
            killed.append(time.monotonic())
            os.kill(victim, signal.{number})
        threading.Timer(0.2, kill).start()
        try:
            waiting.get()
        except SupervisionError as error:
            times.append(time.monotonic() - killed[0])
            assert "the host agent is gone" in str(error), error
        shutdown_context().get()
    print(json.dumps(times))
"""


@pytest.mark.parametrize("who", ["spawner", "agent"])
@pytest.mark.parametrize("number", ["SIGKILL", "SIGSEGV"])
def test_a_caller_is_told_of_the_loss_of_the_host_within_a_second(
    who: str, number: str, table: Table
) -> None:
    result = run_program(HOST_SCRIPT.format(tries=3, who=who, number=number))
    watch = Stopwatch()
    for seconds in json.loads(result.stdout):
        watch.note(seconds)
    table(f"{who}: {number}", watch.times)
    assert len(watch.times) == 3
    assert watch.best_is_within(HOST_BOUND)


# memory


def memory_group() -> Path | None:
    """A new control group with a limit on memory; None where none can be made."""
    for parent, limit in (
        (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
        (Path("/sys/fs/cgroup"), "memory.max"),
    ):
        folder = parent / f"monarch-test-{os.getpid()}"
        try:
            folder.mkdir()
        except OSError:
            continue
        try:
            (folder / limit).write_text(str(256 << 20))
            return folder
        except OSError:
            folder.rmdir()
    return None


@pytest.fixture
def group() -> Iterator[Path]:
    folder = memory_group()
    if folder is None:
        pytest.skip("no control group with a memory limit can be made here")
    yield folder
    wait_until(
        lambda: not (folder / "cgroup.procs").read_text().strip(),
        what="the control group to be empty",
    )
    folder.rmdir()


def kills_for_memory() -> int:
    """How many the kernel has counted, of this whole machine."""
    return count_of(Path("/proc/vmstat").read_text(), "oom_kill")


KILLS = kills_for_memory()  # before any host of these tests counts


@pytest.mark.processes("the memory of a process")
def test_the_report_on_a_proc_that_ran_out_of_memory_says_so(
    spawn: Spawn, faults: Faults, tmp_path: Path, group: Path
) -> None:
    victim = spawn(1).spawn("victim", Victim)
    other = spawn(1).spawn("victim", Victim)
    victim.join_group.call_one(str(group)).get()
    with pytest.raises(SupervisionError, match=r"(?s)SIGKILL.*out-of-memory killer"):
        victim.use_up_memory.call_one(None, str(tmp_path / "words")).get()
    with pytest.raises(SupervisionError) as later:  # somebody else's SIGKILL
        other.die.call_one("SIGKILL", str(tmp_path / "other")).get()
    if kills_for_memory() == KILLS + 1:  # no other program had one since the host counts
        assert "memory" not in str(later.value)
    faults.wait_for(2)
    assert "out-of-memory killer" in faults.failures[0].report()


@pytest.mark.processes("the memory of a process")
def test_a_memory_error_in_an_endpoint_is_an_ordinary_error(spawn: Spawn, tmp_path: Path) -> None:
    victim = spawn(1).spawn("victim", Victim)
    pid = victim.ready.call_one().get()
    with pytest.raises(ActorError) as caught:
        victim.use_up_memory.call_one(1 << 30, str(tmp_path / "words")).get()
    assert isinstance(caught.value.exception, MemoryError)
    assert victim.ready.call_one().get() == pid


# spawning


def test_who_waits_for_procs_to_start_is_told_that_one_of_them_died(
    spawn: Spawn, faults: Faults
) -> None:
    procs = spawn(2, bootstrap=lambda: os.kill(os.getpid(), signal.SIGKILL))
    call = procs.spawn("echo", Echo).say.call(1)
    with pytest.raises(SupervisionError, match="SIGKILL"):
        procs.initialized.get()
    with pytest.raises(SupervisionError, match="SIGKILL"):
        call.get()
    faults.wait_for(1)
