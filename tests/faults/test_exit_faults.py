"""An unhandled fault ends the program: a report, exit status 1, whatever the program is doing and
however it objects.
"""

from __future__ import annotations

import pytest

from helpers.ahead import several_at_a_time
from helpers.scripts import run_script

PREAMBLE = """
import asyncio, atexit, ctypes, io, os, select, signal, subprocess, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
import monarch.actor
from monarch.actor import Actor, MeshFailure, endpoint, shutdown_context, this_host
from monarch.config import configure

class Fragile(Actor):
    @endpoint
    def ready(self):
        return os.getpid()

    @endpoint
    def fail(self):
        print("this is what it said")
        raise ValueError("nobody handles this")

    @endpoint
    def sleep(self):
        time.sleep(600)

    def __cleanup__(self, exc):
        print("cleaned up" if exc is None else "cleaned up after an error")

class Slow(io.RawIOBase):
    def writable(self):
        return True

    def write(self, data):
        time.sleep(2)
        return len(data)

configure(fault_grace="1s")  # only programs that do not unwind take that long
procs = this_host().spawn_procs(per_host={"gpus": 2})
fragile = procs.spawn("fragile", Fragile)
fragile.ready.call().get()
fault = fragile.slice(gpus=1).fail.broadcast
"""

WAITS = {
    "sleep": "fault(); time.sleep(600)",
    "event": "fault(); threading.Event().wait()",
    "lock": "lock = threading.Lock(); lock.acquire(); fault(); lock.acquire()",
    "get": "call = fragile.slice(gpus=0).sleep.call_one(); fault(); call.get()",
    "asyncio": "async def main():\n    fault()\n    await asyncio.sleep(600)\nasyncio.run(main())",
    "await": (
        "async def main():\n    fault()\n    await"
        " fragile.slice(gpus=0).sleep.call_one()\nasyncio.run(main())"
    ),
    "select": "fault(); select.select([], [], [], 600)",
    "input": "fault(); input()",
    "subprocess": "fault(); subprocess.run(['sleep', '600'])",
    "thread": (
        "thread = threading.Thread(target=time.sleep, args=(8,)); thread.start(); fault();"
        " thread.join()"
    ),
    "computing": "fault()\nwhile True:\n    pass",
}
FOR_A_THREAD = (
    "with ThreadPoolExecutor(2) as pool:\n    pool.submit(fault)\n"
    "    pool.submit(lambda: fragile.slice(gpus=0).sleep.call_one().get()).result()"
)
SLOW_FILE = "file = io.BufferedWriter(Slow()); file.write(b'late')"
OBJECTIONS = {
    "swallows it": "try:\n    fault(); time.sleep(600)\nexcept BaseException:\n    pass",
    "swallows it again and again": (
        "fault()\nwhile True:\n    try:\n        time.sleep(600)\n    except KeyboardInterrupt:\n  "
        "      pass"
    ),
    "exits with 0": "try:\n    fault(); time.sleep(600)\nfinally:\n    sys.exit(0)",
    "shuts down": (
        "try:\n    fault(); time.sleep(600)\nexcept KeyboardInterrupt:\n   "
        " shutdown_context().get()"
    ),
    "shuts down while it unwinds": (
        "try:\n    fault(); time.sleep(600)\nfinally:\n    shutdown_context().get()"
    ),
    "waits in C": (  # a lock that is taken twice: interrupted, the call waits on
        "mutex = ctypes.create_string_buffer(128); library = ctypes.CDLL(None)\n"
        "library.pthread_mutex_lock(mutex); fault(); library.pthread_mutex_lock(mutex)"
    ),
    "waits for a thread that waits": FOR_A_THREAD,
    "is through before its end by force": (
        "main = threading.current_thread()\n"
        f"atexit.register(lambda: threading.current_thread() is main or time.sleep(2))\n{FOR_A_THREAD}"
    ),
    "is through while its files are written": f"{SLOW_FILE}\n{FOR_A_THREAD}",
    "ignores Ctrl-C": "signal.signal(signal.SIGINT, signal.SIG_IGN); fault(); time.sleep(600)",
    "dies of Ctrl-C": "signal.signal(signal.SIGINT, signal.SIG_DFL); fault(); time.sleep(600)",
    "is at its end": "fault()",
    "is in an exit handler": (
        "atexit.register(lambda: (fault(), time.sleep(0.5), print('exit handler ran')))"
    ),
    "leaves an exit handler while its files are written": (
        f"{SLOW_FILE}\natexit.register(lambda: (fault(), time.sleep(3)))"
    ),
    "stays in an exit handler": "atexit.register(lambda: (fault(), time.sleep(600)))",
}


@several_at_a_time
@pytest.mark.parametrize(
    "program", [*WAITS.values(), *OBJECTIONS.values()], ids=[*WAITS, *OBJECTIONS]
)
def test_an_unhandled_fault_ends_a_program_with_status_1_and_one_report_though_it(
    program: str,
) -> None:
    result = run_script(PREAMBLE + program + "\n")
    assert result.exit_code == 1, str(result)
    for word in (
        "<root>",
        "fragile{'gpus': 1/2}",
        "ValueError: nobody handles this",
        "in fail",
        "pid ",
    ):
        assert result.stderr.count(word) == 1, str(result)
    assert result.stderr.count("Unhandled monarch error") == 1, str(result)
    assert not any(
        noise in result.stderr for noise in ("KeyboardInterrupt", "Exception ignored")
    ), str(result)
    assert result.stdout.count("this is what it said") == 1, str(result)
    assert "cleaned up after an error" in result.stdout, str(result)
    if "exit handler ran" in program:
        assert "exit handler ran" in result.stdout, str(result)
    assert result.left_behind == [], str(result)


@several_at_a_time
def test_exit_functions_registered_before_the_import_run_after_a_fault() -> None:
    result = run_script(
        "import atexit; atexit.register(print, 'first of all')\n"
        + PREAMBLE
        + "fault(); time.sleep(60)\n"
    )
    assert result.exit_code == 1, str(result)
    assert "first of all" in result.stdout, str(result)


@several_at_a_time
def test_a_report_says_how_a_process_ended_and_what_it_printed_last() -> None:
    result = run_script(
        PREAMBLE
        + """
class Dies(Actor):
    @endpoint
    def die(self):
        print("my last words", flush=True)
        os._exit(77)

procs.spawn("dies", Dies).slice(gpus=1).die.broadcast()
time.sleep(60)
"""
    )
    assert result.exit_code == 1, str(result)
    for word in ("dies{'gpus': 1/2}", "code 77", "last output", "my last words"):
        assert word in result.stderr, str(result)


@several_at_a_time
@pytest.mark.parametrize(
    ("deaths", "reason"),
    [
        ("many.fail.broadcast()", "nobody handles this"),
        ("for pid in many.ready.call().get().values(): os.kill(pid, signal.SIGKILL)", "SIGKILL"),
    ],
    ids=["errors", "killed"],
)
def test_ranks_dying_of_one_cause_are_one_report_and_each_reaches_the_hook(
    deaths: str, reason: str
) -> None:
    result = run_script(
        PREAMBLE
        + f"""
def hook(failure):
    for rank in range(64):  # on a busy machine they die at their leisure
        many.slice(gpus=rank).ready.call_one().exception()
    os.write(1, f"hook: {{failure.ranks}}\\n".encode())
    sys.exit(1)

many = this_host().spawn_procs(per_host={{"gpus": 64}}).spawn("many", Fragile)
many.ready.call().get()
monarch.actor.unhandled_fault_hook = hook
{deaths}
time.sleep(600)
"""
    )
    assert result.exit_code == 1, str(result)
    assert sorted(line for line in result.stdout.splitlines() if "hook:" in line) == sorted(
        f"hook: [{rank}]" for rank in range(64)
    )
    # once, unless the machine was so busy that it took seconds
    assert result.stderr.count(reason) <= 4, str(result)
    if result.stderr.count("Unhandled monarch error") == 1:
        assert "64 ranks of many failed for this reason: 0-63" in result.stderr, str(result)
    assert len(result.stderr.splitlines()) < 60, str(result)


@several_at_a_time
def test_two_faults_at_once_are_both_reported() -> None:
    result = run_script(
        PREAMBLE
        + """
class Other(Fragile):
    @endpoint
    def fail(self):
        raise KeyError("another problem")

other = this_host().spawn_procs().spawn("other", Other)
other.ready.call_one().get()
other.fail.broadcast()
fault()
time.sleep(600)
"""
    )
    assert result.exit_code == 1, str(result)
    assert "nobody handles this" in result.stderr, str(result)
    assert "another problem" in result.stderr, str(result)
    assert result.stderr.count("set monarch.actor.unhandled_fault_hook") == 1, str(result)


@several_at_a_time
@pytest.mark.parametrize(
    ("hook", "status", "said"),
    [
        ("raise KeyError('a bug in the hook')", 1, "a bug in the hook"),
        ("sys.exit(5)", 5, ""),
        ("sys.exit()", 1, ""),
        ("raise KeyboardInterrupt", 1, ""),
    ],
)
def test_a_hook_that_raises_ends_the_program(hook: str, status: int, said: str) -> None:
    result = run_script(
        PREAMBLE
        + f"def hook(failure):\n    {hook}\n\nmonarch.actor.unhandled_fault_hook = hook\nfault();"
        " time.sleep(600)\n"
    )
    assert result.exit_code == status, str(result)
    assert "nobody handles this" in result.stderr, str(result)
    assert said in result.stderr, str(result)


@several_at_a_time
def test_a_hook_may_call_actors_and_the_program_goes_on() -> None:
    result = run_script(
        PREAMBLE
        + """
def hook(failure):
    assert isinstance(failure, MeshFailure) and failure.ranks == [1]
    assert threading.current_thread() is not threading.main_thread()
    spare = this_host().spawn_procs().spawn("spare", Fragile)
    print("spare:", spare.ready.call_one().get() > 0, flush=True)
    heard.set()

heard = threading.Event()
monarch.actor.unhandled_fault_hook = hook
fault()
assert heard.wait(20)
print("goes on:", fragile.slice(gpus=0).ready.call_one().get() > 0)
"""
    )
    assert result.exit_code == 0, str(result)
    assert result.stderr == "", str(result)
    assert "spare: True" in result.stdout, str(result)
    assert "goes on: True" in result.stdout, str(result)


@several_at_a_time
def test_faults_after_the_first_reach_the_hook_and_are_reported() -> None:
    result = run_script(
        PREAMBLE
        + """
fault()
try:
    time.sleep(600)
except KeyboardInterrupt:
    pass
fragile.slice(gpus=0).fail.broadcast()
"""
    )
    assert result.exit_code == 1, str(result)
    assert "fragile{'gpus': 1/2}" in result.stderr, str(result)
    assert "fragile{'gpus': 0/2}" in result.stderr, str(result)


@several_at_a_time
def test_a_fault_counts_where_the_system_has_no_thread_to_give_when_it_happens() -> None:
    result = run_script(
        PREAMBLE
        + """
def refuse(thread):
    raise RuntimeError("can't start new thread")

threading.Thread.start = refuse  # as the kernel does, but for root, too
fault()
time.sleep(600)
"""
    )
    assert result.exit_code == 1, str(result)
    assert result.stderr.count("ValueError: nobody handles this") == 1, str(result)
    assert "this is what it said" in result.stdout, str(result)
