"""What code of a proc of `monarch.testing.local` finds in its process: a pid, signals, an end, time."""

import asyncio
import logging
import os
import signal
import threading
import time
from typing import Any

import pytest

from monarch.actor import Actor, MeshFailure, SupervisionError, endpoint, this_host
from monarch.supervision import OneForOne
from monarch.testing import LocalHosts, local

pytestmark = pytest.mark.timeout(60)


class Victim(Actor):
    def __init__(self) -> None:
        self.calls = 0

    @endpoint
    def pid(self) -> int:
        self.calls += 1
        return os.getpid()

    @endpoint
    def leave(self, status: int) -> None:
        os._exit(status)

    @endpoint
    def signal(self, number: int) -> str:
        os.kill(os.getpid(), number)
        return "alive"

    @endpoint
    def sleep(self, seconds: float) -> str:
        time.sleep(seconds)
        return "slept"


class AsyncVictim(Actor):
    @endpoint
    async def leave(self, status: int) -> None:
        os._exit(status)


class Owner(Actor):
    """Remembers how its victims ended."""

    def __init__(self, kind: type[Any] = Victim) -> None:
        self.told: list[MeshFailure] = []
        self.victims = this_host().spawn_procs({"gpus": 2}).spawn("victims", kind)

    def __supervise__(self, failure: MeshFailure) -> bool:
        self.told.append(failure)
        return True

    @endpoint
    def lose(self, how: str, argument: int) -> None:
        with pytest.raises(SupervisionError):
            getattr(self.victims.slice(gpus=1), how).call_one(argument).get()

    @endpoint
    def ends(self) -> list[tuple[Any, ...]]:
        events: list[Any] = [failure.event for failure in self.told]
        return [
            (failure.ranks, event.cause, event.exit_code, event.signal)
            for failure, event in zip(self.told, events, strict=True)
        ]

    @endpoint
    def alive(self) -> int:
        pid: int = self.victims.slice(gpus=0).pid.call_one().get()
        return pid


def how_it_ended(hosts: LocalHosts, owner: Any, how: str, argument: int) -> tuple[Any, ...]:
    owner.lose.call_one(how, argument).get()
    while not (ends := owner.ends.call_one().get()):
        hosts.advance(0.1)
    (end,) = ends
    return end  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("how", "argument", "cause", "code", "number"),
    [
        ("leave", 3, "exited", 3, None),
        ("leave", 0, "exited", 0, None),
        ("signal", signal.SIGKILL, "killed", None, signal.SIGKILL),
        ("signal", signal.SIGSEGV, "killed", None, signal.SIGSEGV),
        ("signal", signal.SIGTERM, "killed", None, signal.SIGTERM),
    ],
)
def test_a_proc_that_ends_itself_is_the_failure_that_a_process_would_be(
    monarch_local: LocalHosts, how: str, argument: int, cause: str, code: Any, number: Any
) -> None:
    owner = monarch_local.slice(hosts=1).spawn_procs().spawn("owner", Owner)
    assert how_it_ended(monarch_local, owner, how, argument) == ([1], cause, code, number)
    assert owner.alive.call_one().get()


def test_an_async_actor_that_leaves_takes_its_proc_along(monarch_local: LocalHosts) -> None:
    owner = monarch_local.slice(hosts=1).spawn_procs().spawn("owner", Owner, AsyncVictim)
    assert how_it_ended(monarch_local, owner, "leave", 5) == ([1], "exited", 5, None)


def test_procs_have_pids_which_no_process_has(monarch_local: LocalHosts) -> None:
    victims = monarch_local.spawn_procs({"gpus": 2}).spawn("victims", Victim)
    pids = victims.pid.call().get().values()
    assert len({os.getpid(), *pids}) == 5
    assert all(not os.path.exists(f"/proc/{pid}") for pid in pids)
    for pid in pids:
        os.kill(pid, 0)
    monarch_local.spawn_procs()
    victims.stop().get()


def test_a_killed_proc_starts_again_with_another_pid_and_the_old_one_is_gone(
    monarch_local: LocalHosts,
) -> None:
    procs = monarch_local.spawn_procs(restart=OneForOne())
    victim = procs.spawn("victims", Victim).slice(hosts=0)
    before = victim.pid.call_one().get()
    os.kill(before, signal.SIGKILL)
    after = victim.pid.call_one().get()
    assert after != before
    with pytest.raises(ProcessLookupError):
        os.kill(before, 0)


def test_a_stopped_proc_does_nothing_until_it_goes_on(monarch_local: LocalHosts) -> None:
    victim = monarch_local.spawn_procs().spawn("victims", Victim).slice(hosts=0)
    pid = victim.pid.call_one().get()
    os.kill(pid, signal.SIGSTOP)
    answer = victim.pid.call_one()
    monarch_local.advance(5)
    assert not answer.done()
    os.kill(pid, signal.SIGCONT)
    assert answer.get() == pid
    monarch_local.advance(3600)  # and is not taken for frozen later
    assert victim.pid.call_one().get() == pid


def test_an_actor_that_stops_its_own_proc_goes_on_where_it_was(monarch_local: LocalHosts) -> None:
    victim = monarch_local.spawn_procs().spawn("victims", Victim).slice(hosts=0)
    pid = victim.pid.call_one().get()
    answer = victim.signal.call_one(signal.SIGSTOP)
    monarch_local.advance(5)
    assert not answer.done()
    os.kill(pid, signal.SIGCONT)
    assert answer.get() == "alive"


def test_a_proc_that_stands_still_for_the_heartbeat_timeout_is_a_failure(
    monarch_local: LocalHosts,
) -> None:
    owner = monarch_local.slice(hosts=1).spawn_procs().spawn("owner", Owner)
    end = how_it_ended(monarch_local, owner, "signal", signal.SIGSTOP)
    assert end == ([1], "frozen", None, signal.SIGKILL)


def test_ctrl_c_is_not_for_procs(monarch_local: LocalHosts) -> None:
    victim = monarch_local.spawn_procs().spawn("victims", Victim).slice(hosts=0)
    assert victim.signal.call_one(signal.SIGINT).get() == "alive"


def test_time_sleep_lets_the_time_of_the_hosts_pass(monarch_local: LocalHosts) -> None:
    victims = monarch_local.spawn_procs().spawn("victims", Victim)
    answers = victims.sleep.call(3600)
    time.sleep(1800)
    assert not answers.done()
    assert monarch_local.now == 1800
    assert list(answers.get().values()) == ["slept", "slept"]
    assert monarch_local.now == 3600
    with pytest.raises(ValueError, match="non-negative"):
        time.sleep(-1)


def test_a_loop_that_sleeps_until_something_is_there_lets_others_make_it(
    monarch_local: LocalHosts,
) -> None:
    answer = monarch_local.spawn_procs().spawn("victims", Victim).slice(hosts=0).pid.call_one()
    while not answer.done():
        time.sleep(0)
    assert answer.get()


def test_an_event_loop_of_the_test_awaits_answers_and_time(monarch_local: LocalHosts) -> None:
    victims = monarch_local.spawn_procs().spawn("victims", Victim)

    async def main() -> list[str]:
        answers = victims.sleep.stream(60)
        await asyncio.sleep(30)
        return [await answer for answer in answers]

    assert asyncio.run(main()) == ["slept", "slept"]
    assert monarch_local.now == 60


def test_an_event_loop_of_the_test_reads_real_sockets(monarch_local: LocalHosts) -> None:
    async def main() -> bytes:
        async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"hello")
            writer.close()

        server = await asyncio.start_server(greet, "127.0.0.1", 0)
        async with server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            said = await reader.read()
            writer.close()
        return said

    assert asyncio.run(main()) == b"hello"


def test_other_threads_and_what_comes_after_the_block_have_the_real_functions() -> None:
    before = os.getpid, os.kill, os._exit, time.sleep, asyncio.new_event_loop
    pids: list[int] = []
    with local() as hosts:
        thread = threading.Thread(target=lambda: pids.append(os.getpid()))
        thread.start()
        thread.join()
        hosts.spawn_procs().spawn("victims", Victim).pid.call().get()
    assert pids == [os.getpid()]
    assert (os.getpid, os.kill, os._exit, time.sleep, asyncio.new_event_loop) == before


class Stuck(Actor):
    @endpoint
    def wait(self) -> None:
        doors[0].acquire()


doors: list[threading.Lock] = []


def test_the_level_of_the_root_logger_is_as_before_after_the_block() -> None:
    before = logging.root.level
    with local() as hosts:
        procs = hosts.spawn_procs({"gpus": 1})
        procs.logging_option(level=logging.CRITICAL).get()
        assert logging.root.level == logging.CRITICAL
    assert logging.root.level == before


def test_a_block_that_can_not_end_says_which_actor_waits_where(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("monarch.testing.in_process.turns._END_BOUND", 0.2)
    doors[:] = [threading.Lock()]
    doors[0].acquire()
    why = r"(?s)local\(\) can't end.*monarch-actor-stuck.*doors\[0\]"
    with pytest.raises(RuntimeError, match=why), local() as hosts:
        hosts.spawn_procs().spawn("stuck", Stuck).wait.broadcast()
    doors[0].release()
