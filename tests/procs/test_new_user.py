"""What a newcomer gets wrong, and what they are told: each case gives a message that says what to
do, and a prompt back.
"""

from __future__ import annotations

import pickle
import signal
import threading
from typing import TYPE_CHECKING, Any

import pytest

from helpers.actors import Counter, Echo, Failing, Ranks
from helpers.scripts import run_script
from monarch.actor import Actor, ActorError, SupervisionError, endpoint, this_host

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Spawn
    from helpers.faults import Faults


# typos


@pytest.mark.parametrize(
    ("typed", "meant"), [("gett", "get"), ("ad", "add"), ("descrbe", "describe")]
)
def test_a_typo_in_an_endpoint_name_is_answered_with_the_nearest_name(
    spawn: Spawn, typed: str, meant: str
) -> None:
    counters: Any = spawn(1).spawn("c", Counter)
    with pytest.raises(AttributeError) as caught:
        getattr(counters, typed)
    assert typed in str(caught.value)
    assert f"'{meant}'" in str(caught.value)
    assert "Counter" in str(caught.value)


def test_a_name_like_no_endpoint_is_answered_with_the_list_of_endpoints(spawn: Spawn) -> None:
    counters: Any = spawn(1).spawn("c", Counter)
    with pytest.raises(AttributeError) as caught:
        counters.zzzzzz
    for name in ("get", "add", "describe"):
        assert name in str(caught.value)


def test_hasattr_on_a_mesh_says_whether_there_is_such_an_endpoint(spawn: Spawn) -> None:
    counters = spawn(1).spawn("c", Counter)
    assert hasattr(counters, "add")
    assert not hasattr(counters, "ad")


def test_calling_an_endpoint_without_an_adverb_says_which_adverbs_there_are(spawn: Spawn) -> None:
    counters: Any = spawn(1).spawn("c", Counter)
    with pytest.raises(TypeError, match="call"):
        counters.add(1)


def test_a_wrong_dimension_name_is_answered_with_the_names_there_are(spawn: Spawn) -> None:
    procs = spawn({"gpus": 2})
    with pytest.raises(TypeError, match="gpu.*gpus"):
        procs.slice(gpu=0)


def test_call_one_on_a_mesh_says_how_to_pick_one_rank(spawn: Spawn) -> None:
    ranks = spawn(2).spawn("r", Ranks)
    with pytest.raises(ValueError, match=r"2(.|\n)*(slice|call)"):
        ranks.pid.call_one()


def test_spawning_an_instance_instead_of_a_class_is_refused(spawn: Spawn) -> None:
    procs: Any = spawn(1)
    with pytest.raises((TypeError, ValueError), match="class"):
        procs.spawn("c", Counter(1))


def test_forgetting_the_name_at_spawn_is_refused(spawn: Spawn) -> None:
    procs: Any = spawn(1)
    with pytest.raises(TypeError, match="name|Class"):
        procs.spawn(Counter)


# what can't be sent


def test_an_unpicklable_argument_is_named(spawn: Spawn) -> None:
    echo = spawn(1).spawn("e", Echo)
    with pytest.raises((TypeError, pickle.PicklingError)) as caught:
        echo.say.call_one({"config": [threading.Lock()]})
    assert "['config'][0], a _thread.lock" in str(caught.value)
    assert "say" in str(caught.value) or any(
        "say" in note for note in getattr(caught.value, "__notes__", [])
    )


def test_an_unpicklable_constructor_argument_is_refused_at_spawn(spawn: Spawn) -> None:
    procs = spawn(1)
    with pytest.raises((TypeError, pickle.PicklingError), match="lock"):
        procs.spawn("f", Failing, threading.Lock())  # type: ignore[arg-type]
    assert procs.spawn("e", Echo).say.call_one(1).get() == 1


# modules that are missing in the child


@pytest.mark.processes("modules that a process can import")
def test_a_module_that_is_missing_in_the_child_is_named(spawn: Spawn, faults: Faults) -> None:
    import sys
    import types

    module = types.ModuleType("only_in_the_client")
    exec(  # the class must believe that it was imported
        "from monarch.actor import Actor, endpoint\n"
        "class Homebound(Actor):\n"
        "    @endpoint\n"
        "    def work(self): return 1\n"
        "def function(): return 1\n",
        module.__dict__,
    )
    sys.modules["only_in_the_client"] = module
    try:
        procs = spawn(1)
        echo = procs.spawn("e", Echo)
        with pytest.raises(ActorError, match="only_in_the_client"):
            echo.say.call_one(module.function).get()
        assert echo.say.call_one(1).get() == 1
        homebound: Any = procs.spawn("h", module.Homebound)
        with pytest.raises(SupervisionError, match="only_in_the_client"):
            homebound.work.call_one().get()
        faults.wait_for(1)
        assert "only_in_the_client" in faults.reports()
    finally:
        del sys.modules["only_in_the_client"]


def test_an_import_that_fails_inside_an_endpoint_is_an_ordinary_error(spawn: Spawn) -> None:
    class Imports(Actor):
        @endpoint
        def work(self) -> None:
            import no_such_module_at_all  # type: ignore[import-not-found]  # noqa: F401

    with pytest.raises(ActorError, match="no_such_module_at_all") as caught:
        spawn(1).spawn("i", Imports).work.call_one().get()
    assert isinstance(caught.value.exception, ModuleNotFoundError)


# leaving


WAITS_FOR_EVER = """
from monarch.actor import Actor, endpoint, this_host
import threading

class Waits(Actor):
    @endpoint
    def for_ever(self):
        print("endpoint runs", flush=True)
        threading.Event().wait()

    @endpoint
    def alive(self):
        return True

class WaitsAsync(Actor):
    @endpoint
    async def for_ever(self):
        import asyncio
        print("endpoint runs", flush=True)
        await asyncio.Event().wait()

class Spins(Actor):
    @endpoint
    def for_ever(self):
        print("endpoint runs", flush=True)
        while True:
            pass

class Deaf(Actor):
    @endpoint
    def for_ever(self):
        import signal
        print("endpoint runs", flush=True)
        while True:
            try:
                threading.Event().wait()
            except BaseException:
                pass

procs = this_host().spawn_procs(per_host={"gpus": 2})
"""


@pytest.mark.parametrize("actor", ["Waits", "WaitsAsync", "Spins", "Deaf"])
def test_control_c_ends_a_call_that_never_returns_promptly_and_quietly(
    actor: str,
) -> None:
    result = run_script(
        WAITS_FOR_EVER + f"procs.spawn('w', {actor}).for_ever.call().get()\n",
        signal_after=("endpoint runs", signal.SIGINT),
    )
    assert result.exit_code == -signal.SIGINT, str(result)
    assert result.after_signal is not None
    assert result.left_behind == [], str(result)
    assert result.stderr.count("Traceback (most recent call last)") == 1, str(result)
    assert result.stderr.count("KeyboardInterrupt") == 1, str(result)


def test_control_c_during_an_await_ends_the_script_promptly_and_quietly() -> None:
    result = run_script(
        WAITS_FOR_EVER
        + "async def main():\n    await procs.spawn('w', Waits).for_ever.call()\nimport"
        " asyncio\nasyncio.run(main())\n",
        signal_after=("endpoint runs", signal.SIGINT),
    )
    assert result.exit_code == -signal.SIGINT, str(result)
    assert result.after_signal is not None
    assert result.left_behind == [], str(result)
    assert result.stdout.count("Traceback") == 0, str(result)


def test_control_c_that_the_script_catches_leaves_it_in_working_order() -> None:
    result = run_script(
        WAITS_FOR_EVER
        + """
try:
    procs.slice(gpus=0).spawn('w', WaitsAsync).for_ever.call_one().get()
except KeyboardInterrupt:
    print("caught", flush=True)
print(procs.spawn('a', Waits).alive.call().get().values())
procs.stop().get()
""",
        signal_after=("endpoint runs", signal.SIGINT),
    )
    assert result.exit_code == 0, str(result)
    assert "caught\n[True, True]" in result.stdout, str(result)
    assert result.stderr == "", str(result)
    assert result.left_behind == [], str(result)


def test_a_script_that_ends_while_an_endpoint_runs_ends_promptly() -> None:
    result = run_script(
        WAITS_FOR_EVER
        + """
from monarch.actor import Channel, Port
class Begins(Actor):
    @endpoint
    def for_ever(self, port):
        port.send(1)
        threading.Event().wait()
port, receiver = Channel.open()
procs.spawn('w', Begins).for_ever.broadcast(port)
receiver.recv().get()
"""
    )
    assert result.exit_code == 0, str(result)
    assert result.left_behind == [], str(result)
    assert result.stderr == "", str(result)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_client_that_is_killed_leaves_no_process(number: signal.Signals) -> None:
    result = run_script(
        WAITS_FOR_EVER + "procs.spawn('w', Waits).for_ever.call().get()\n",
        signal_after=("endpoint runs", number),
    )
    assert result.exit_code == -number, str(result)
    assert result.left_behind == [], str(result)


def test_a_script_that_raises_shows_its_own_traceback_and_leaves_nothing() -> None:
    result = run_script("""
        from monarch.actor import Actor, endpoint, this_host

        class Worker(Actor):
            @endpoint
            def fail(self):
                raise ValueError("the remote problem")

        this_host().spawn_procs(per_host={"gpus": 2}).spawn("w", Worker).fail.call().get()
        """)
    assert result.exit_code == 1, str(result)
    assert "the remote problem" in result.stderr
    assert "ActorError" in result.stderr
    assert result.left_behind == [], str(result)


def test_a_fault_at_the_very_end_of_the_script_is_not_lost() -> None:
    result = run_script("""
        from monarch.actor import Actor, endpoint, this_host

        class Fragile(Actor):
            @endpoint
            def fail(self):
                raise ValueError("the last statement failed")

        this_host().spawn_procs().spawn("fragile", Fragile).fail.broadcast()
        """)
    assert result.exit_code == 1, str(result)
    assert "the last statement failed" in result.stderr, str(result)
    assert result.left_behind == [], str(result)


def test_a_fault_of_procs_that_take_long_to_start_is_not_lost_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "takes_long_to_import.py").write_text("import time\ntime.sleep(2)\n")
    result = run_script(f"""
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        from monarch.actor import Actor, endpoint, this_host
        from monarch.config import configure

        class Fragile(Actor):
            @endpoint
            def fail(self):
                raise ValueError("the last statement failed")

        configure(preload=["takes_long_to_import"])
        this_host().spawn_procs().spawn("fragile", Fragile).fail.broadcast()
        """)
    assert result.exit_code == 1, str(result)
    assert "the last statement failed" in result.stderr, str(result)


def test_an_unhandled_fault_runs_the_finally_blocks_and_exit_handlers_of_the_program() -> None:
    result = run_script("""
        import atexit, time
        from monarch.actor import Actor, endpoint, this_host

        class Fragile(Actor):
            @endpoint
            def fail(self):
                raise ValueError("nobody handles this")

        atexit.register(lambda: print("exit handler ran"))
        fragile = this_host().spawn_procs().spawn("fragile", Fragile)
        try:
            fragile.fail.broadcast()
            time.sleep(600)
        finally:
            print("finally ran")
        """)
    assert result.exit_code == 1, str(result)
    assert "finally ran" in result.stdout, str(result)
    assert "exit handler ran" in result.stdout, str(result)


def test_the_fault_hook_is_looked_up_when_a_fault_arrives() -> None:
    result = run_script("""
        import threading
        import monarch.actor
        from monarch.actor import Actor, endpoint, this_host

        class Fragile(Actor):
            @endpoint
            def fail(self):
                raise ValueError("for the hook")

        heard = threading.Event()

        def hook(failure):
            print("hook:", "for the hook" in failure.report())
            heard.set()

        fragile = this_host().spawn_procs().spawn("fragile", Fragile)
        monarch.actor.unhandled_fault_hook = hook
        fragile.fail.broadcast()
        assert heard.wait(20)
        """)
    assert (result.exit_code, result.stdout.strip()) == (0, "hook: True"), str(result)


# asking at the wrong place


def test_negative_and_zero_sizes_name_the_dimension() -> None:
    for size in (0, -2):
        with pytest.raises((ValueError, OverflowError), match="gpus"):
            this_host().spawn_procs(per_host={"gpus": size})


def test_sizes_that_are_no_numbers_are_refused() -> None:
    for size in ("2", 2.5, None):
        with pytest.raises((TypeError, ValueError)):
            this_host().spawn_procs(per_host={"gpus": size})  # type: ignore[dict-item]


def test_an_unknown_configuration_key_is_answered_with_the_nearest_one() -> None:
    from monarch.config import configure

    with pytest.raises(ValueError, match="cleanup_timeout"):
        configure(cleanup_timeot="3s")
