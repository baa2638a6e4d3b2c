"""How actors and procs end: on request, with their cleanup, children first, leaving nothing."""

from __future__ import annotations

import asyncio
import os
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from helpers.actors import Cleaner, Echo, Gate, open_channel
from helpers.scripts import run_script
from helpers.waiting import is_alive, wait_gone
from monarch.actor import Actor, Port, SupervisionError, context, endpoint, this_host

if TYPE_CHECKING:
    from conftest import Spawn
    from helpers.faults import Faults

pytestmark = pytest.mark.both


def test_stopping_an_actor_mesh_runs_the_cleanup_of_every_rank(spawn: Spawn) -> None:
    port, receiver = open_channel()
    cleaners = spawn(3).spawn("c", Cleaner, "name", port)
    cleaners.ready.call().get()
    cleaners.stop().get()
    assert [receiver.recv().get() for _ in range(3)] == [("name", None)] * 3


def test_stopping_an_actor_mesh_acts_when_called(spawn: Spawn) -> None:
    port, receiver = open_channel()
    cleaner = spawn(1).spawn("c", Cleaner, "name", port)
    cleaner.ready.call_one().get()
    cleaner.stop()
    assert receiver.recv().get() == ("name", None)


def test_stopping_procs_acts_when_called(spawn: Spawn) -> None:
    port, receiver = open_channel()
    procs = spawn(2)
    procs.spawn("c", Cleaner, "name", port).ready.call().get()
    pids = procs.spawn("e", Echo).pid.call().get().values()
    procs.stop()
    assert [receiver.recv().get() for _ in range(2)] == [("name", None)] * 2
    for pid in pids:
        wait_gone(pid)


def test_stopping_procs_runs_cleanups_and_ends_the_processes(spawn: Spawn) -> None:
    port, receiver = open_channel()
    procs = spawn(2)
    procs.spawn("c", Cleaner, "name", port).ready.call().get()
    pids = procs.spawn("e", Echo).pid.call().get().values()
    assert procs.stop().get() is None
    assert [receiver.recv().get() for _ in range(2)] == [("name", None)] * 2
    assert not any(is_alive(pid) for pid in pids)


@pytest.mark.processes("the end of an interpreter, and threads that never end")
def test_the_interpreter_of_a_stopped_proc_ends_in_order(spawn: Spawn, tmp_path: Path) -> None:
    class AtExit(Actor):
        def __init__(self, path: str) -> None:
            import atexit

            atexit.register(lambda: open(path, "w").close())

        @endpoint
        def ready(self) -> None: ...

    procs = spawn(1)
    procs.spawn("a", AtExit, str(tmp_path / "at_exit_ran")).ready.call().get()
    procs.stop().get()
    assert (tmp_path / "at_exit_ran").exists()


@pytest.mark.processes("the end of an interpreter, and threads that never end")
def test_what_the_modules_of_a_stopped_proc_hold_is_told_of_its_end(
    spawn: Spawn, tmp_path: Path
) -> None:
    (tmp_path / "held_by_a_module.py").write_text(
        textwrap.dedent("""
            class Told:
                def __init__(self, path):
                    self.path = path
                    self.itself = self  # a cycle

                def __del__(self, open=open):
                    open(self.path, "w").close()

            told = []
            """)
    )

    class Importer(Actor):
        def __init__(self, folder: str) -> None:
            import sys

            sys.path.append(folder)
            import held_by_a_module as module  # type: ignore[import-not-found]

            module.told.append(module.Told(f"{folder}/told"))

        @endpoint
        def ready(self) -> None: ...

    procs = spawn(1)
    procs.spawn("i", Importer, str(tmp_path)).ready.call().get()
    procs.stop().get()
    assert (tmp_path / "told").exists()


@pytest.mark.processes("the end of an interpreter, and threads that never end")
def test_a_daemon_thread_neither_delays_the_end_of_a_proc_nor_hears_of_it(
    spawn: Spawn, tmp_path: Path
) -> None:
    class Threaded(Actor):
        def __init__(self, path: str) -> None:
            import sys
            import threading

            # for the interpreter to close
            sys.left_open = open(path, "w")  # type: ignore[attr-defined]  # noqa: SIM115
            sys.left_open.write("kept")  # type: ignore[attr-defined]
            threading.Thread(target=threading.Event().wait, daemon=True).start()

        @endpoint
        def ready(self) -> None: ...

    procs = spawn(1)
    procs.spawn("t", Threaded, str(tmp_path / "file")).ready.call().get()
    procs.stop().get()
    assert (tmp_path / "file").read_text() == "kept"


def test_a_thread_of_a_library_that_has_logged_does_not_cut_short_the_end_of_a_proc() -> None:
    result = run_script("""
        import _thread
        import pathlib
        import threading
        from monarch.actor import Actor, endpoint, this_host

        class Threaded(Actor):
            @endpoint
            def start(self):
                global kept
                kept = open("file", "w")
                kept.write("kept")
                known = threading.Event()

                def run():
                    threading.current_thread()  # as `logging` does
                    known.set()
                    threading.Event().wait()

                _thread.start_new_thread(run, ())
                known.wait()

        procs = this_host().spawn_procs()
        procs.spawn("t", Threaded).start.call_one().get()
        procs.stop().get()
        print(pathlib.Path("file").read_text())
        """)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "kept\n", ""), str(result)


@pytest.mark.processes("the end of an interpreter, and threads that never end")
def test_what_a_proc_leaves_in_an_open_file_is_written_when_it_is_stopped(
    spawn: Spawn, tmp_path: Path
) -> None:
    class Writer(Actor):
        def __init__(self, path: str) -> None:
            import sys

            # for the interpreter to close
            sys.left_open = open(path, "w")  # type: ignore[attr-defined]  # noqa: SIM115
            sys.left_open.write("kept")  # type: ignore[attr-defined]

        @endpoint
        def ready(self) -> None: ...

    procs = spawn(1)
    procs.spawn("w", Writer, str(tmp_path / "file")).ready.call().get()
    procs.stop().get()
    assert (tmp_path / "file").read_text() == "kept"


def test_stopping_twice_is_harmless(spawn: Spawn) -> None:
    procs = spawn(1)
    echo = procs.spawn("e", Echo)
    assert echo.stop().get() in (None, ())
    assert echo.stop().get() in (None, ())
    assert procs.stop().get() is None
    assert procs.stop().get() is None


def test_the_result_of_a_stop_is_none(spawn: Spawn) -> None:
    assert spawn(1).spawn("e", Echo).stop().get() is None


def test_calling_a_stopped_mesh_raises_and_harms_no_other(spawn: Spawn) -> None:
    procs = spawn(2)
    stopped = procs.spawn("stopped", Echo)
    other = procs.spawn("other", Echo)
    stopped.say.call(1).get()
    stopped.stop().get()
    for _ in range(3):
        with pytest.raises(SupervisionError, match="stopped"):
            stopped.say.call(1).get()
        with pytest.raises(SupervisionError, match="stopped"):
            stopped.slice(gpus=0).say.call_one(1).get()
    assert other.say.call(2).get().values() == [2, 2]


def test_calling_actors_of_stopped_procs_raises_and_harms_no_other(spawn: Spawn) -> None:
    procs, survivors = spawn(2), spawn(1)
    echo = procs.spawn("e", Echo)
    echo.say.call(1).get()
    procs.stop("enough for today").get()
    for _ in range(3):
        with pytest.raises(SupervisionError, match="stopped"):
            echo.say.call(1).get()
    assert survivors.spawn("e", Echo).say.call_one(2).get() == 2


def test_an_actor_that_calls_a_stopped_mesh_gets_the_error_and_serves_on(spawn: Spawn) -> None:
    class Tries(Actor):
        @endpoint
        def attempt(self, echo: Echo) -> str:
            try:
                echo.say.call(1).get()
            except SupervisionError as e:
                return f"refused: {e}"
            return "worked"

    procs = spawn(1)
    echo = procs.spawn("e", Echo)
    tries = procs.spawn("t", Tries)
    assert tries.attempt.call_one(echo).get() == "worked"
    echo.stop().get()
    assert tries.attempt.call_one(echo).get().startswith("refused")
    assert tries.attempt.call_one(echo).get().startswith("refused")


def test_a_caller_that_waits_when_the_mesh_is_stopped_is_released(
    spawn: Spawn, tmp_path: Path
) -> None:
    port, receiver = open_channel()
    gate = spawn(1).spawn("g", Gate)
    first = gate.wait_for_file.call_one(str(tmp_path / "open"), port)
    second = gate.say.call_one("queued behind")
    receiver.recv().get()
    stop = gate.stop()
    with pytest.raises(SupervisionError):
        second.get()
    (tmp_path / "open").touch()
    stop.get()
    error = first.exception()
    assert error is None or isinstance(error, SupervisionError)


def test_the_message_in_progress_of_a_sync_actor_is_finished_before_its_cleanup(
    spawn: Spawn, tmp_path: Path
) -> None:
    class Works(Actor):
        def __init__(self, port: Port[str], door: str) -> None:
            self.port = port
            self.door = door

        @endpoint
        def work(self) -> None:
            import time

            self.port.send("begun")
            while not os.path.exists(self.door):
                time.sleep(0.005)
            self.port.send("finished")

        def __cleanup__(self, exc: Exception | None) -> None:
            self.port.send("cleaned")

    port, receiver = open_channel()
    works = spawn(1).spawn("w", Works, port, str(tmp_path / "open"))
    works.work.broadcast()
    assert receiver.recv().get() == "begun"
    stop = works.stop()
    (tmp_path / "open").touch()
    stop.get()
    assert [receiver.recv().get() for _ in range(2)] == ["finished", "cleaned"]


def test_an_async_cleanup_runs_in_the_loop_of_its_actor(spawn: Spawn) -> None:
    class Works(Actor):
        def __init__(self, port: Port[Any]) -> None:
            self.port = port
            self.loop = asyncio.get_running_loop()

        @endpoint
        async def ready(self) -> None: ...

        async def __cleanup__(self, exc: Exception | None) -> None:
            await asyncio.sleep(0)
            self.port.send((asyncio.get_running_loop() is self.loop, exc))

    port, receiver = open_channel()
    works = spawn(1).spawn("w", Works, port)
    works.ready.call_one().get()
    works.stop().get()
    assert receiver.recv().get() == (True, None)


def test_stopping_an_actor_stops_the_procs_and_actors_it_spawned_children_first(
    spawn: Spawn,
) -> None:
    port, receiver = open_channel()
    parent = spawn(1).spawn("p", Cleaner, "parent", port)
    parent.spawn_child.call_one("child").get()
    parent.stop().get()
    assert receiver.recv().get() == ("child", None)
    assert receiver.recv().get() == ("parent", None)


def test_stopping_an_actor_stops_what_it_spawned_on_procs_of_others(spawn: Spawn) -> None:
    port, receiver = open_channel()
    procs = spawn(1)
    parent = spawn(1).spawn("p", Cleaner, "parent", port)
    parent.spawn_child_on.call_one(procs, "child").get()
    parent.stop().get()
    assert receiver.recv().get() == ("child", None)
    assert receiver.recv().get() == ("parent", None)
    assert procs.spawn("e", Echo).say.call_one(1).get() == 1


def test_stopping_procs_ends_the_procs_that_their_actors_spawned(spawn: Spawn) -> None:
    class Parent(Actor):
        def __init__(self) -> None:
            self.procs = this_host().spawn_procs(per_host={"n": 2})
            self.pids = self.procs.spawn("e", Echo).pid.call().get().values()

        @endpoint
        def child_pids(self) -> list[int]:
            return self.pids

    procs = spawn(2)
    pids = [
        pid for pids in procs.spawn("p", Parent).child_pids.call().get().values() for pid in pids
    ]
    assert len(set(pids)) == 4
    procs.stop().get()
    for pid in pids:
        wait_gone(pid)


def test_an_actor_may_stop_itself_and_the_owner_hears_of_no_failure(spawn: Spawn) -> None:
    class Leaves(Actor):
        def __init__(self, port: Port[Any]) -> None:
            self.port = port

        @endpoint
        def leave(self) -> str:
            context().actor_instance.stop("my work is done")
            return "goodbye"

        def __cleanup__(self, exc: Exception | None) -> None:
            self.port.send(exc)

    port, receiver = open_channel()
    procs = spawn(1)
    leaves = procs.spawn("l", Leaves, port)
    assert leaves.leave.call_one().get() == "goodbye"
    assert receiver.recv().get() is None
    with pytest.raises(SupervisionError, match="my work is done"):
        leaves.leave.call_one().get()
    assert procs.spawn("e", Echo).say.call_one(1).get() == 1


def test_dropping_every_reference_to_a_mesh_does_not_stop_it(spawn: Spawn) -> None:
    import gc

    class Ticks(Actor):
        def __init__(self, port: Port[str]) -> None:
            self.port = port

        @endpoint
        def tick(self) -> None:
            self.port.send("tick")

        def __cleanup__(self, exc: Exception | None) -> None:
            self.port.send("cleaned")

    port, receiver = open_channel()
    procs = spawn(1)
    ticks = procs.spawn("t", Ticks, port)
    tick = ticks.tick
    tick.call_one().get()
    assert receiver.recv().get() == "tick"
    del ticks
    gc.collect()
    tick.call_one().get()
    assert receiver.recv().get() == "tick"


def test_a_cleanup_that_raises_does_not_stop_the_stop(spawn: Spawn, faults: Faults) -> None:
    class Clumsy(Actor):
        @endpoint
        def ready(self) -> None: ...

        def __cleanup__(self, exc: Exception | None) -> None:
            raise ValueError("clumsy cleanup")

    procs = spawn(1)
    clumsy = procs.spawn("c", Clumsy)
    clumsy.ready.call_one().get()
    clumsy.stop().get()
    assert procs.spawn("e", Echo).say.call_one(1).get() == 1


@pytest.mark.processes("the end of an interpreter, and threads that never end")
def test_a_constructor_that_never_returns_does_not_block_the_stop_of_its_procs(
    spawn: Spawn,
) -> None:
    class Endless(Actor):
        def __init__(self, port: Port[int]) -> None:
            import threading

            port.send(os.getpid())
            threading.Event().wait()

        @endpoint
        def work(self) -> None: ...

    port, receiver = open_channel()
    procs = spawn(1)
    procs.spawn("e", Endless, port)
    pid = receiver.recv().get()
    procs.stop().get()
    wait_gone(pid)


@pytest.mark.processes("the end of an interpreter, and threads that never end")
def test_stopping_busy_procs_ends_them_within_the_grace_time_and_is_no_fault(spawn: Spawn) -> None:
    class Busy(Actor):
        @endpoint
        def work(self, port: Port[int]) -> None:
            import threading

            port.send(os.getpid())
            threading.Event().wait()

    port, receiver = open_channel()
    procs = spawn(1)
    procs.spawn("b", Busy).work.broadcast(port)
    pid = receiver.recv().get()
    procs.stop().get()
    wait_gone(pid)


def test_meshes_can_be_made_and_stopped_again_and_again() -> None:
    for i in range(10):
        procs = this_host().spawn_procs(per_host={"n": 2})
        assert procs.spawn("e", Echo).say.call(i).get().values() == [i, i]
        procs.stop().get()


def test_a_mesh_may_be_stopped_before_it_is_up() -> None:
    procs = this_host().spawn_procs(per_host={"n": 4})
    procs.stop().get()
    procs = this_host().spawn_procs(per_host={"n": 2})
    procs.spawn("e", Echo)
    procs.stop().get()


def test_an_agent_that_was_asked_something_before_its_start_is_of_use_later() -> None:
    result = run_script("""
        from monarch._core.plane import DescribeHost, current_hub
        from monarch.actor import Actor, SupervisionError, endpoint, this_host
        from monarch.programs import ask

        class Echo(Actor):
            @endpoint
            def say(self, text):
                print(text)
                return text

        hub = current_hub()
        agent = hub.address.agent
        for _ in range(2):
            assert isinstance(ask(hub, agent, DescribeHost()).exception(), SupervisionError)
        echo = this_host().spawn_procs().spawn("echo", Echo)
        assert echo.say.call_one("hello").get() == "hello"
        assert len(ask(hub, agent, DescribeHost()).get().procs) == 1
        """)
    assert (result.stdout, result.exit_code) == ("hello\n", 0), str(result)
