"""Links that break, processes that die: those who wait for them are told, at once, and nobody else
is.
"""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

from helpers.actors import Echo, Gate, open_channel
from helpers.scripts import run_script
from helpers.waiting import is_alive, wait_gone, wait_until
from monarch.actor import Actor, SupervisionError, context, endpoint, send

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Spawn
    from helpers.faults import Faults

pytestmark = pytest.mark.processes("sockets that break")


def test_caller_and_owner_hear_of_a_broken_link_to_a_living_process(
    spawn: Spawn, faults: Faults, tmp_path: Path
) -> None:
    class Cuts(Actor):
        @endpoint
        def cut_the_link_to_the_client(self, door: str) -> str:
            cell: Any = context()
            hub = cell._cell.hub
            for connection in list(hub._inbound):
                if connection.peer.proc.startswith("client"):
                    hub.poller.call_soon(connection.close)
            while not os.path.exists(door):
                time.sleep(0.005)
            return "too late"

        @endpoint
        def pid(self) -> int:
            return os.getpid()

    procs = spawn(1)
    cuts = procs.spawn("cuts", Cuts)
    other = spawn(1).spawn("other", Echo)
    pid = cuts.pid.call_one().get()
    with pytest.raises(SupervisionError, match="connection to the process broke"):
        cuts.cut_the_link_to_the_client.call_one(str(tmp_path / "door")).get()
    assert is_alive(pid)
    faults.wait_for(1)
    assert "connection to the process broke" in faults.reports()
    with pytest.raises(SupervisionError):
        cuts.pid.call_one().get()
    assert other.say.call_one("here").get() == "here"
    (tmp_path / "door").touch()
    procs.stop().get()
    wait_gone(pid)


class Forks(Actor):
    @endpoint
    def ready(self) -> bool:
        return True

    @endpoint
    def fork_a_sleeper(self) -> tuple[int, int]:
        child = os.fork()
        if child == 0:
            os.setsid()  # or it would end with the process that forks it
            time.sleep(60)
            os._exit(0)
        return os.getpid(), child

    @endpoint
    def open_in_a_forked_child(self) -> list[str]:
        """What sockets and event files a child has that this process forks."""
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            found = []
            for fd in os.listdir("/proc/self/fd"):
                try:
                    found.append(os.readlink(f"/proc/self/fd/{fd}"))
                except OSError:
                    continue
            os.write(write, "\n".join(found).encode())
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as file:
            text = file.read()
        os.waitpid(child, 0)
        return text.splitlines()

    @endpoint
    def never(self) -> None:
        time.sleep(600)


class Waits(Actor):
    @endpoint
    def warm_up(self, forks: Any) -> bool:
        return bool(forks.ready.call_one().get())

    @endpoint
    def wait_for(self, forks: Any) -> str:
        try:
            forks.never.call_one().get(timeout=15)
        except BaseException as error:
            return type(error).__name__
        return "no error"


def test_a_forked_child_of_a_proc_has_none_of_its_sockets(spawn: Spawn) -> None:
    forks = spawn(1).spawn("forks", Forks)
    assert spawn(1).spawn("waits", Waits).warm_up.call_one(forks).get()
    found = forks.open_in_a_forked_child.call_one().get()
    assert found
    assert [
        target for target in found if target.startswith(("socket:", "anon_inode:[eventpoll]"))
    ] == []


def test_the_death_of_a_proc_is_told_at_once_though_a_child_that_it_forked_lives_on(
    spawn: Spawn, faults: Faults
) -> None:
    forks = spawn(1, name="p").spawn("forks", Forks)
    early = spawn(1, name="q").spawn("early", Waits)
    late = spawn(1, name="r").spawn("late", Waits)
    assert early.warm_up.call_one(forks).get()
    proc, child = forks.fork_a_sleeper.call_one().get()
    try:
        waiting = early.wait_for.call_one(forks)
        mine = forks.never.call_one()
        with pytest.raises(TimeoutError):
            mine.get(timeout=0.1)
        os.kill(proc, signal.SIGKILL)
        with pytest.raises(SupervisionError, match="9|KILL"):
            mine.get()
        assert waiting.get() == "SupervisionError"
        assert late.wait_for.call_one(forks).get() == "SupervisionError"
        assert is_alive(child)
        faults.wait_for(1)
    finally:
        os.kill(child, signal.SIGKILL)
        wait_gone(child)


def test_a_forked_child_of_the_client_may_end_without_harm_to_the_clients_procs() -> None:
    result = run_script("""
        import asyncio, os, sys
        from monarch.actor import Actor, endpoint, this_host

        class Echo(Actor):
            @endpoint
            def say(self, value):
                return value

        async def read_by_the_io_thread(future):
            return await asyncio.wait_for(future, 20)

        echo = this_host().spawn_procs({"gpus": 2}).spawn("echo", Echo)
        one = echo.slice(gpus=1)
        assert echo.say.call(1).get().values() == [1, 1]
        child = os.fork()
        if child == 0:
            sys.exit(7)
        _, status = os.waitpid(child, 0)
        assert os.WEXITSTATUS(status) == 7
        for _ in range(3):
            assert echo.say.call(2).get().values() == [2, 2]
            assert asyncio.run(read_by_the_io_thread(echo.say.call(3))).values() == [3, 3]
            assert asyncio.run(read_by_the_io_thread(one.say.call_one(4))) == 4
        print(one.say.call_one("still here").get())
        """)
    assert result.exit_code == 0, str(result)
    assert "still here" in result.stdout, str(result)
    assert result.left_behind == []


def test_an_unrelated_death_does_not_answer_what_was_sent_with_a_port(
    spawn: Spawn, faults: Faults, tmp_path: Path
) -> None:
    gate = spawn(1, name="pa").spawn("gate", Gate)
    victim = spawn(1, name="pb").spawn("victim", Echo)
    pid = victim.pid.call_one().get()
    gate.say.call_one(1).get()
    port, receiver = open_channel()
    door = tmp_path / "door"
    send(gate.wait_for_file, (str(door),), {}, port)
    os.kill(pid, signal.SIGKILL)
    faults.wait_for(1)
    door.touch()
    assert receiver.recv().get() == "through"
    with pytest.raises(TimeoutError):
        receiver.recv().get(timeout=0.1)


def test_the_death_of_one_of_several_receivers_is_told_to_those_who_wait_for_it_only(
    spawn: Spawn, faults: Faults, tmp_path: Path
) -> None:
    gates = spawn(3).spawn("gates", Gate)
    victims = spawn(2).spawn("victims", Echo)
    pid = victims.slice(gpus=1).pid.call_one().get()
    door = tmp_path / "door"
    waiting = gates.wait_for_file.call(str(door))
    os.kill(pid, signal.SIGKILL)
    faults.wait_for(1)
    with pytest.raises(SupervisionError):
        victims.say.call(1).get()
    assert not waiting.done()
    door.touch()
    assert waiting.get().values() == ["through"] * 3
    wait_until(lambda: not is_alive(pid), what="the end of the victim")
