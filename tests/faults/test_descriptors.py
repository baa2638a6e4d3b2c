"""Processes that run out of file descriptors, and programs that keep many large messages."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from helpers.scripts import ScriptResult, run_script
from monarch.actor import Actor, endpoint

if TYPE_CHECKING:
    from conftest import Spawn

pytestmark = pytest.mark.processes("descriptors of processes, and segments")

LARGE = 400_000  # bytes: such buffers travel as shared memory, whose descriptor is passed on
KEPT = 150


def ask_for_many_procs(count: int) -> ScriptResult:
    return run_script(f"""
        import resource
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        import monarch.actor
        from monarch.actor import Actor, endpoint, this_host
        from monarch.config import configure

        class Echo(Actor):
            @endpoint
            def say(self, value):
                return value

        monarch.actor.unhandled_fault_hook = lambda failure: None
        configure(cleanup_timeout="500ms", process_exit_timeout="500ms")
        echo = this_host().spawn_procs(name="others").spawn("echo", Echo)
        assert echo.say.call_one(1).get() == 1
        procs = this_host().spawn_procs(name="too_many", per_host={{"g": {count}}})
        try:
            procs.initialized.get(timeout=5)
            print("all up")
        except Exception as error:
            print("error:", error)
        print("others:", echo.say.call_one("fine").get())
        procs.stop().get()
        print("others:", echo.say.call_one("fine").get())
        again = this_host().spawn_procs(name="again").spawn("echo", Echo)
        print("again:", again.say.call_one("fine").get())
        """)


# 20: the agent has no room for what it is passed; 55: the spawner cannot fork them all; 70: it
# cannot even listen for all
@pytest.mark.parametrize("count", [20, 55, 70])
def test_a_spawn_without_descriptors_names_the_reason_and_harms_no_others(
    count: int,
) -> None:
    result = ask_for_many_procs(count)
    assert result.exit_code == 0, str(result)
    error, *rest = result.stdout.splitlines()
    assert error.startswith("error:") and "too_many" in error and "Too many open files" in error, (
        str(result)
    )
    assert rest == ["others: fine", "others: fine", "again: fine"], str(result)
    assert result.left_behind == []


EXHAUSTED = """
    import os, resource
    from monarch.actor import Actor, endpoint, this_host

    class Fills(Actor):
        @endpoint
        def fill(self):
            resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
            self.files = []
            try:
                while True:
                    self.files.append(os.open(os.devnull, os.O_RDONLY))
            except OSError:
                return len(self.files)

        @endpoint
        def length(self, data):
            return len(data)

    fills = this_host().spawn_procs().spawn("fills", Fills)
    assert fills.fill.call_one().get() > 50
    for size in (1, 100_000, 1 << 20):
        print("size:", fills.length.call_one(bytearray(size)).get())
"""


def test_an_actor_whose_process_has_no_descriptor_left_still_answers() -> None:
    result = run_script(EXHAUSTED)
    assert result.exit_code == 0, str(result)
    assert result.stdout.splitlines() == ["size: 1", "size: 100000", "size: 1048576"], str(result)


def test_a_process_that_has_no_descriptor_left_reports_no_errors_of_the_engines_own() -> None:
    result = run_script(EXHAUSTED)
    assert "Exception ignored" not in result.stderr, str(result)
    assert "Traceback" not in result.stderr, str(result)


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def mapped_messages() -> int:
    return sum(
        "memfd:monarch " in line for line in Path("/proc/self/maps").read_text().splitlines()
    )


class Keeps(Actor):
    """Keeps what it gets."""

    def __init__(self) -> None:
        self.kept: list[Any] = []

    @endpoint
    def make(self) -> Any:
        import numpy

        return numpy.zeros(LARGE, dtype=numpy.uint8)

    @endpoint
    def keep(self, data: Any) -> None:
        self.kept.append(data)

    @endpoint
    def count(self) -> tuple[int, int]:
        return open_descriptors(), mapped_messages()

    @endpoint
    def drop(self) -> None:
        self.kept.clear()
        gc.collect()


@pytest.fixture(scope="session")
def numpy() -> Any:
    """Imported before the leak check takes its picture: numpy starts threads."""
    return pytest.importorskip("numpy")


def test_keeping_many_large_arguments_takes_no_descriptors(numpy: Any, spawn: Spawn) -> None:
    keeps = spawn(1).spawn("keeps", Keeps)
    data = numpy.ones(LARGE, dtype=numpy.uint8)
    keeps.keep.call_one(data).get()
    before, _ = keeps.count.call_one().get()
    for _ in range(KEPT):
        keeps.keep.broadcast(data)
    after, mapped = keeps.count.call_one().get()
    assert mapped >= KEPT, "they did not come as shared memory, so this test shows nothing"
    assert after <= before + 5
    keeps.drop.call_one().get()
    _, mapped = keeps.count.call_one().get()
    assert mapped <= 2


def test_keeping_many_large_results_takes_no_descriptors(numpy: Any, spawn: Spawn) -> None:
    keeps = spawn(1).spawn("keeps", Keeps)
    kept = [keeps.make.call_one().get()]
    before, mapped_before = open_descriptors(), mapped_messages()
    kept += [keeps.make.call_one().get() for _ in range(KEPT)]
    assert mapped_messages() - mapped_before >= KEPT, (
        "they did not come as shared memory, so this test shows nothing"
    )
    assert open_descriptors() <= before + 5
    assert sum(int(array.sum()) for array in kept) == 0
    kept.clear()
    gc.collect()
    assert mapped_messages() <= mapped_before


def test_a_call_waiting_for_a_descriptor_does_not_spin_and_goes_out() -> None:
    result = run_script("""
        import os, resource, time
        from monarch.actor import Actor, endpoint, this_host

        class Calls(Actor):
            @endpoint
            def say(self, value):
                return value

            @endpoint
            def call_without_descriptors(self, other):
                resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
                files = []
                try:
                    while True:
                        files.append(os.open(os.devnull, os.O_RDONLY))
                except OSError:
                    pass
                before = time.process_time()
                call = other.say.call_one("there")
                try:
                    call.get(timeout=1)
                except TimeoutError:
                    pass
                used = time.process_time() - before
                for file in files:
                    os.close(file)
                return call.get(), used

        calls = this_host().spawn_procs(name="calls").spawn("calls", Calls)
        other = this_host().spawn_procs(name="other").spawn("other", Calls)
        assert other.say.call_one(1).get() == calls.say.call_one(1).get() == 1
        answer, used = calls.call_without_descriptors.call_one(other).get()
        assert answer == "there"
        assert used < 0.2, f"{used:.2f} s of processor time in 1 s of waiting"
        """)
    assert result.exit_code == 0, str(result)


def test_procs_have_as_many_descriptors_as_the_system_allows() -> None:
    result = run_script("""
        import resource
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, 900))
        from monarch.actor import Actor, endpoint, this_host

        class Asks(Actor):
            @endpoint
            def limit(self):
                return resource.getrlimit(resource.RLIMIT_NOFILE)

        print(this_host().spawn_procs().spawn("asks", Asks).limit.call_one().get())
        print(resource.getrlimit(resource.RLIMIT_NOFILE))
        """)
    assert result.stdout.splitlines() == ["(900, 900)", "(128, 900)"], str(result)


def test_a_process_may_have_more_actors_than_files() -> None:
    result = run_script("""
        import resource
        resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
        from monarch.actor import Actor, endpoint, this_host

        class Calls(Actor):
            @endpoint
            def say(self, value):
                return value

            @endpoint
            def ask(self, other, value):
                return other.say.call_one(value).get()

        procs = this_host().spawn_procs()
        other = this_host().spawn_procs(name="other").spawn("other", Calls)
        actors = [procs.spawn(f"a{number}", Calls) for number in range(150)]
        for _ in range(3):
            calls = [actor.say.call_one(number) for number, actor in enumerate(actors)]
            assert [call.get() for call in calls] == list(range(150))
            calls = [actor.ask.call_one(other, number) for number, actor in enumerate(actors)]
            assert [call.get() for call in calls] == list(range(150))
        """)
    assert result.exit_code == 0, str(result)


_GREEDY = """
import os, resource
from monarch.actor import Actor, SupervisionError, endpoint, this_host
import monarch.actor
monarch.actor.unhandled_fault_hook = lambda failure: None

class Greedy(Actor):
    @endpoint
    def take_all(self):
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
        self.files = []
        try:
            while True:
                self.files.append(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            pass

    @endpoint
    def say(self, value):
        return len(value)

class Caller(Actor):
    @endpoint
    def ask(self, other, value):
        return other.say.call_one(value).get()

greedy = this_host().spawn_procs(name="greedy").spawn("greedy", Greedy)
greedy.take_all.call_one().get()
"""


def test_a_process_without_descriptors_is_called_and_stopped_by_means_of_its_reserve() -> None:
    result = run_script(
        _GREEDY
        + """
callers = this_host().spawn_procs(name="callers", per_host={"g": 4}).spawn("callers", Caller)
assert callers.ask.call(greedy, "xxx").get().values() == [3] * 4
greedy.stop().get()
"""
    )
    assert result.exit_code == 0, str(result)


def test_a_caller_of_a_process_without_descriptors_is_told_so() -> None:
    result = run_script(
        _GREEDY
        + """
callers = this_host().spawn_procs(name="callers", per_host={"g": 12}).spawn("callers", Caller)
calls = [callers.slice(g=g).ask.call_one(greedy, "xxx") for g in range(12)]
errors = [str(call.exception()) for call in calls]
refused = [error for error in errors if error != "None"]
assert 2 <= len(refused) <= 8, errors
assert all("no descriptor is left in the process (limit 128" in error for error in refused), refused[0]
"""
    )
    assert result.exit_code == 0, str(result)


def test_a_large_message_without_a_descriptor_names_the_reason() -> None:
    result = run_script(
        _GREEDY
        + """
try:
    greedy.say.call_one(bytes(50_000_000)).get()
except SupervisionError as error:
    print(error)
"""
    )
    assert "no descriptor is left in the process (limit 128" in result.stdout, str(result)


def test_more_procs_than_the_limit_of_files_allows_fail_at_spawn_with_the_limit() -> None:
    result = run_script("""
        import resource
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
        import monarch.actor
        from monarch.actor import Actor, endpoint, this_host

        class Prints(Actor):
            @endpoint
            def say(self):
                print("said by all", flush=True)

        monarch.actor.unhandled_fault_hook = lambda failure: None
        procs = this_host().spawn_procs(per_host={"gpus": 40})
        try:
            procs.initialized.get()
        except Exception as error:
            print(error)
        few = this_host().spawn_procs(per_host={"gpus": 2})
        procs.stop().get()
        few.spawn("prints", Prints).say.call().get()
        """)
    told = "the host agent has {} processes here, takes 5 files for each, and may have 128"
    assert any(told.format(count) in result.stdout for count in range(10, 20)), str(result)
    assert "Raise `ulimit -Hn`" in result.stdout and "Broken pipe" not in str(result)
    assert result.exit_code == 0, str(result)
