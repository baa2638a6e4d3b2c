"""What a parent is told of its children; how the out-of-memory killer's traces are read; who stands
still.

Real children and signals; each test runs in a process of its own where it takes over SIGCHLD.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from helpers.freezer import freezer_group, frozen, why_not
from helpers.processes import wait_stopped
from helpers.waiting import PATIENCE, wait_until
from monarch._child_watch import (
    ChildWatch,
    changes,
    is_held,
    is_stopped,
    unreaped_status,
)
from monarch._core.hub.overdue import TICKS
from monarch._core.net.poller import Poller, Timer
from monarch._core.processes.heartbeat import Pauses, Watchdog
from monarch._oom_killer import OutOfMemory, count_of


@pytest.fixture
def child() -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process.pid
    process.kill()
    process.wait()


@pytest.fixture
def watch() -> Iterator[ChildWatch]:
    watch = ChildWatch()
    yield watch
    ChildWatch.forget()
    os.close(watch.fd)
    os.close(watch._write)


def kinds(pid: int) -> list[str]:
    return [
        "stopped" if os.WIFSTOPPED(status) else "continued" if os.WIFCONTINUED(status) else "ended"
        for _, status in changes(pid)
    ]


def wait_told(watch: ChildWatch) -> None:
    poll = select.poll()
    poll.register(watch.fd, select.POLLIN)
    assert poll.poll(PATIENCE * 1000)
    watch.clear()


def test_a_parent_is_told_that_a_child_is_stopped_goes_on_and_ends(
    watch: ChildWatch, child: int
) -> None:
    for number, kind in (
        (signal.SIGSTOP, "stopped"),
        (signal.SIGCONT, "continued"),
        (signal.SIGKILL, "ended"),
    ):
        os.kill(child, number)
        wait_told(watch)
        assert kinds(child) == [kind]
    assert kinds(child) == []


def test_of_changes_without_a_question_in_between_the_last_is_told(
    watch: ChildWatch, child: int
) -> None:
    for number in (signal.SIGSTOP, signal.SIGCONT, signal.SIGSTOP):
        os.kill(child, number)
    wait_stopped(child)
    assert kinds(child)[-1] == "stopped"
    os.kill(child, signal.SIGCONT)
    os.kill(child, signal.SIGSTOP)
    wait_stopped(child)
    assert kinds(child) == ["stopped"]


def test_a_child_that_ends_while_it_is_stopped_has_ended(watch: ChildWatch, child: int) -> None:
    os.kill(child, signal.SIGSTOP)
    wait_stopped(child)
    os.kill(child, signal.SIGKILL)
    wait_until(lambda: unreaped_status(child) is not None, what="the end of the child")
    assert kinds(child) == ["ended"]


def test_a_stopped_process_is_told_from_one_that_runs_and_one_that_is_gone(child: int) -> None:
    assert not is_stopped(child)
    os.kill(child, signal.SIGSTOP)
    wait_stopped(child)
    assert is_stopped(child)
    assert not is_held(child)
    os.kill(child, signal.SIGCONT)
    wait_until(lambda: not is_stopped(child), what="the child to go on")
    assert not is_stopped(2**22 + 1)


@pytest.mark.parametrize(
    ("code", "status"),
    [("import os; os._exit(3)", 3 << 8), ("import os; os.kill(os.getpid(), 9)", 9), ("pass", 0)],
    ids=["exits", "killed", "ends"],
)
def test_how_a_process_ended_can_be_read_before_its_parent_has_asked(
    code: str, status: int
) -> None:
    pid = os.posix_spawn(sys.executable, [sys.executable, "-S", "-c", code], os.environ)
    wait_until(lambda: unreaped_status(pid) is not None, what="the end of the child")
    assert unreaped_status(pid) == status
    assert os.waitpid(pid, 0)[1] == status
    assert unreaped_status(pid) is None


def test_nothing_is_known_of_how_a_running_process_ended(child: int) -> None:
    assert unreaped_status(child) is None


# the out-of-memory killer


@pytest.mark.parametrize(
    ("text", "kills"),
    [
        ("nr_free_pages 1\noom_kill 7\nzone_reclaim_failed 3\n", 7),
        ("oom_kill 0\n", 0),
        ("drop_pagecache 1\noom_kill_other 9\n", 0),
        ("", 0),
        ("oom_kill\n", 0),
    ],
)
def test_the_kernels_count_of_out_of_memory_kills_is_found(text: str, kills: int) -> None:
    assert count_of(text, "oom_kill") == kills


@pytest.mark.parametrize("version", [1, 2])
def test_the_control_group_that_was_at_its_limit_is_named_with_it(
    version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = tmp_path / ("memory" if version == 1 else "")
    outer, inner = top / "jobs", top / "jobs" / "train"
    inner.mkdir(parents=True)
    unlimited = {1: "9223372036854771712", 2: "max"}[version]
    limit_file = {1: "memory.limit_in_bytes", 2: "memory.max"}[version]

    def at_limit(group: Path, times: int) -> None:
        if version == 1:
            (group / "memory.failcnt").write_text(f"{times}\n")
        else:
            (group / "memory.events.local").write_text(f"max 9\noom {times}\noom_kill 5\n")

    def killed(times: int) -> None:
        (tmp_path / "vmstat").write_text(f"oom_kill {times}\n")

    (tmp_path / "own").write_text({1: "4:memory:/jobs/train\n", 2: "0::/jobs/train\n"}[version])
    for group, limit in ((outer, "300000000"), (inner, unlimited)):
        (group / limit_file).write_text(f"{limit}\n")
        at_limit(group, 3)
    killed(7)
    monkeypatch.setattr("monarch._oom_killer._COUNTERS", tmp_path / "vmstat")
    monkeypatch.setattr("monarch._guards.surroundings._OWN", tmp_path / "own")
    monkeypatch.setattr("monarch._guards.surroundings._GROUPS", tmp_path)
    monkeypatch.setattr("monarch._oom_killer._kernel_log", lambda: b"")
    memory = OutOfMemory()
    assert memory.explain(1, True) == ""
    killed(8)
    assert memory.explain(1, True).startswith("the machine had run out of memory: ")
    killed(9)
    at_limit(outer, 4)
    told = f"the processes of the control group {outer} had used all of the 300 MB that it may have"
    assert memory.explain(1, True).startswith(told)
    assert memory.explain(1, True) == ""


def test_a_kill_for_memory_is_no_reason_of_the_death_of_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, now = b"", 100.0

    def killed(times: int) -> None:
        (tmp_path / "vmstat").write_text(f"oom_kill {times}\n")

    killed(7)
    monkeypatch.setattr("monarch._oom_killer._COUNTERS", tmp_path / "vmstat")
    monkeypatch.setattr("monarch._oom_killer._kernel_log", lambda: log)
    monkeypatch.setattr("monarch._oom_killer.time.monotonic", lambda: now)
    memory = OutOfMemory()
    killed(9)
    assert memory.explain(30, False) == "", "it has ended by itself, at the time of these kills"
    assert "out-of-memory killer" in memory.explain(31, True), "it was one of two, as far as seen"
    now += 60
    assert memory.explain(32, True) == "", "the second is a minute old"
    killed(10)
    looks: list[Callable[[], None]] = []
    memory.watch(lambda seconds, look: looks.append(look))
    now += 60
    looks[0]()
    assert memory.explain(32, True) == "", "that kill was seen a minute ago"
    killed(11)
    monkeypatch.setattr("monarch._oom_killer._INIT", os.readlink("/proc/self/ns/pid"))
    log = b"<3>[1.2] Out of memory: Killed process 331 (python) total-vm:1kB\n"
    assert memory.explain(33, True) == "", "the log names another"
    assert "out-of-memory killer" in memory.explain(331, True)
    killed(12)
    monkeypatch.setattr("monarch._oom_killer._INIT", "the numbers in the log are others")
    assert "out-of-memory killer" in memory.explain(34, True)


# silence


class Clocked:
    """A poller on a thread of its own, and when it ran something."""

    def __init__(self) -> None:
        self.poller = Poller()
        self.thread = threading.Thread(target=self.poller.run, daemon=True)
        self.lost = threading.Event()

    def close(self) -> None:
        self.poller.stop()
        self.thread.join(PATIENCE)
        self.poller.close()


@pytest.fixture
def clocked() -> Iterator[Clocked]:
    clocked = Clocked()
    clocked.thread.start()
    yield clocked
    clocked.close()


def test_silence_is_lost_after_its_timeout(clocked: Clocked) -> None:
    start = time.monotonic()
    Watchdog(clocked.poller, 0.2, clocked.lost.set)
    assert clocked.lost.wait(PATIENCE)
    assert time.monotonic() - start >= 0.2


def test_silence_that_ends_is_not_lost(clocked: Clocked) -> None:
    silence = Watchdog(clocked.poller, 0.1, clocked.lost.set)
    silence.end()
    last = threading.Event()
    Watchdog(clocked.poller, 0.3, last.set)
    assert last.wait(PATIENCE)
    assert not clocked.lost.is_set()


def test_a_poller_that_could_not_run_for_long_loses_no_peer_by_that(clocked: Clocked) -> None:
    timeout = 0.4
    answered = threading.Event()
    # as if stopped, or without the interpreter lock
    clocked.poller.call_soon(lambda: time.sleep(3 * timeout))
    silence = Watchdog(clocked.poller, timeout, clocked.lost.set)

    def answer() -> None:
        silence.end()
        answered.set()

    clocked.poller.call_later(3 * timeout + timeout / TICKS, answer)
    assert answered.wait(PATIENCE)
    assert not clocked.lost.is_set()


class Ticking:
    """In place of a poller: runs the next timer when told."""

    def __init__(self) -> None:
        self.timers: list[Timer] = []

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        self.timers.append(Timer(callback))
        return self.timers[-1]

    def tick(self) -> None:
        callback = self.timers.pop().callback
        if callback is not None:
            callback()


def test_silence_is_lost_at_the_last_tick_and_not_before() -> None:
    ticking, lost = Ticking(), []
    Watchdog(ticking, 1.0, lambda: lost.append(True))  # type: ignore[arg-type]  # as much as it uses
    for _ in range(TICKS - 1):
        ticking.tick()
    assert lost == []
    ticking.tick()
    assert lost == [True] and ticking.timers == []


@pytest.mark.parametrize("ticks", range(TICKS))
def test_a_sign_of_life_counts_up_to_the_last_tick(ticks: int) -> None:
    ticking, lost = Ticking(), []
    silence = Watchdog(ticking, 1.0, lambda: lost.append(True))  # type: ignore[arg-type]
    for _ in range(ticks):
        ticking.tick()
    late = ticking.timers[-1].callback
    silence.end()
    assert ticking.timers[-1].callback is None
    assert late is not None
    late()  # the other thread was about to
    assert lost == [] and len(ticking.timers) == 1


@pytest.mark.skipif(bool(why_not()), reason=why_not())
def test_who_is_stopped_is_lost_though_its_group_was_frozen_as_one_looked(child: int) -> None:
    ticking, lost = Ticking(), []
    os.kill(child, signal.SIGSTOP)
    wait_stopped(child)
    Pauses(ticking, lambda pid, seconds: lost.append(pid)).changed(child, True)  # type: ignore[arg-type]
    with freezer_group() as group, frozen([str(child)], group):
        wait_until(lambda: is_held(child), what="the child to be frozen")
        for _ in range(TICKS):
            ticking.tick()
        assert lost == []
    wait_stopped(child)
    for _ in range(TICKS):
        ticking.tick()
    assert lost == [child]
