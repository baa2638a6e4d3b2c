"""`shutdown_context`: everything ends, in bounded time, whatever state it is in; and Monarch can be
used again.
"""

from __future__ import annotations

import signal

import pytest

from helpers.ahead import several_at_a_time
from helpers.scripts import run_script

PREAMBLE = """
import asyncio, ctypes, os, signal, threading, time
import monarch.actor
from monarch.actor import (
    Actor, Channel, SupervisionError, context, endpoint, get_or_spawn_controller, shutdown_context, this_host, this_proc
)

class Worker(Actor):
    @endpoint
    def pid(self):
        return os.getpid()

    @endpoint
    def agent(self):
        "The process whose child, the spawner, is the parent of this one."
        return int(open(f"/proc/{os.getppid()}/stat").read().rpartition(")")[2].split()[1])

    @endpoint
    def hold_the_gil(self):
        ctypes.PyDLL(None).sleep(60)

    @endpoint
    def fail(self):
        raise ValueError("on purpose")

    def __cleanup__(self, exc):
        print("cleaned up", flush=True)

def gone(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True

def wait_gone(pid):
    end = time.monotonic() + 15
    while not gone(pid):
        assert time.monotonic() < end, f"{pid} still runs"
        time.sleep(0.01)

def works():
    worker = this_host().spawn_procs().spawn("worker", Worker)
    assert worker.pid.call_one().get() > 0
    return worker
"""


def check(source: str, *printed: str) -> None:
    result = run_script(PREAMBLE + source)
    assert result.exit_code == 0, str(result)
    assert result.stderr == "", str(result)
    for text in printed:
        assert text in result.stdout, str(result)
    assert result.left_behind == [], str(result)


@several_at_a_time
def test_it_acts_when_called_and_lets_actors_clean_up() -> None:
    check(
        """
procs = this_host().spawn_procs()
pid = procs.spawn("worker", Worker).pid.call_one().get()
shutdown_context()
wait_gone(pid)
""",
        "cleaned up",
    )


@several_at_a_time
def test_a_program_need_not_wait_for_it() -> None:
    check("works(); shutdown_context()\n", "cleaned up")


@several_at_a_time
def test_later_calls_are_done_at_once_though_the_first_is_not() -> None:
    check("""
assert shutdown_context().done()  # nothing was started
class Slow(Worker):
    def __cleanup__(self, exc):
        time.sleep(0.5)
worker = this_host().spawn_procs().spawn("slow", Slow)
worker.pid.call_one().get()
first = shutdown_context()
second = shutdown_context()
assert second.done() and second.get() is None
assert not first.done()
assert first.get() is None
""")


@several_at_a_time
@pytest.mark.parametrize("wrong", ["-1", "float('nan')", "float('inf')", "2.0**64", "'1s'"])
def test_a_wrong_host_timeout_is_refused_and_nothing_is_shut_down(wrong: str) -> None:
    check(
        f"""
worker = works()
try:
    shutdown_context(host_timeout={wrong})
except ValueError as error:
    print(error)
assert worker.pid.call_one().get() > 0
""",
        "host_timeout",
        "expected a non-negative, finite number of seconds",
    )


@several_at_a_time
@pytest.mark.parametrize(
    "call",
    [
        (
            "async def main():\n    await asyncio.to_thread(works)\n    await"
            " shutdown_context()\nasyncio.run(main())"
        ),
        (
            "works(); thread = threading.Thread(target=lambda: shutdown_context().get());"
            " thread.start(); thread.join()"
        ),
        (
            "thread = threading.Thread(target=works); thread.start(); thread.join();"
            " shutdown_context().get()"
        ),
        ("this_proc().spawn('here', Worker).pid.call_one().get(); shutdown_context().get()"),
        ("get_or_spawn_controller('here', Worker).get(); shutdown_context().get()"),
    ],
    ids=["asyncio", "thread", "of a thread", "actors of this process", "controller"],
)
def test_it_may_be_called_from_anywhere_and_monarch_is_used_again_afterwards(call: str) -> None:
    check(call + "\nprint('shut down', flush=True); works()\n", "cleaned up\nshut down")


STATES = {
    "an endpoint that holds the GIL": "worker.hold_the_gil.broadcast(); time.sleep(0.3)",
    "frozen procs": "for pid in pids: os.kill(pid, signal.SIGSTOP)",
    "a dead proc": "os.kill(pids[0], signal.SIGKILL)",
    "a dead agent": "os.kill(agent, signal.SIGKILL); wait_gone(pids[0])",
    "a frozen agent": "os.kill(agent, signal.SIGSTOP)",
    "procs that are being started": (
        "this_host().spawn_procs(per_host={'n': 8}).spawn('more', Worker)"
    ),
}


@several_at_a_time
@pytest.mark.parametrize("state", STATES.values(), ids=STATES)
def test_it_is_bounded_with(state: str) -> None:
    check(f"""
monarch.actor.unhandled_fault_hook = lambda failure: None
worker = this_host().spawn_procs(per_host={{"n": 2}}).spawn("worker", Worker)
pids = worker.pid.call().get().values()
agent = worker.slice(n=0).agent.call_one().get()
waiting = worker.slice(n=0).hold_the_gil.call_one()
{state}
shutdown_context(host_timeout=0.5).get()
for pid in [*pids, agent]:
    wait_gone(pid)
assert isinstance(waiting.exception(), SupervisionError)
works()
""")


@several_at_a_time
def test_old_handles_say_that_the_context_was_shut_down_and_never_hang() -> None:
    check("""
def refused(use):
    try:
        use()
    except (SupervisionError, EOFError) as error:
        assert "its context was shut down" in str(error), error
    else:
        raise AssertionError("not refused")

host = this_host()
procs = host.spawn_procs(per_host={"n": 2})
worker = procs.spawn("worker", Worker)
worker.pid.call().get()
here = this_proc().spawn("here", Worker)
here.pid.call_one().get()
waiting = worker.hold_the_gil.call()
port, receiver = Channel.open()
received = receiver.recv()
shutdown_context(host_timeout=0.1).get()
for _ in range(2):
    refused(lambda: waiting.get())
    refused(lambda: worker.pid.call().get())
    refused(lambda: worker.slice(n=1).pid.call_one().get())
    refused(lambda: worker.pid.choose().get())
    refused(lambda: worker.pid.broadcast())
    refused(lambda: next(worker.pid.stream()).get())
    refused(lambda: here.pid.call_one().get())
    refused(lambda: procs.spawn("another", Worker).pid.call().get())
    refused(lambda: host.spawn_procs().spawn("another", Worker).pid.call_one().get())
    refused(lambda: received.get())
    refused(lambda: receiver.recv().get())
    port.send(1)
    works()  # boots anew
worker.stop().get()
procs.stop().get()
refused(lambda: worker.pid.call().get())
""")


@several_at_a_time
def test_shutting_down_ten_times_leaves_no_descriptor_no_thread_and_no_process() -> None:
    check("""
def left():
    return len(os.listdir("/proc/self/fd")), threading.active_count()

told = threading.Event()
monarch.actor.unhandled_fault_hook = lambda failure: told.set()
old = []

def use_and_shut_down():
    worker = works()
    old.append((worker, Channel.open()))
    get_or_spawn_controller("controller", Worker).get().pid.call_one().get()
    told.clear()
    worker.fail.broadcast()
    assert told.wait(20)
    shutdown_context().get()

def wait_left(wanted):
    end = time.monotonic() + 10
    while left() != wanted and time.monotonic() < end:
        time.sleep(0.01)
    assert left() == wanted, (wanted, left(), [thread.name for thread in threading.enumerate()])

use_and_shut_down()
end = time.monotonic() + 10
while left()[1] > 1 and time.monotonic() < end:
    time.sleep(0.01)
before = left()
for _ in range(10):
    use_and_shut_down()
wait_left(before)
""")


@several_at_a_time
def test_interrupts_while_the_machinery_starts_leave_it_in_working_order() -> None:
    check("""
interrupts = 0
for microseconds in range(0, 30_000, 1_500):
    go = threading.Event()

    def interrupt():
        go.wait()
        time.sleep(microseconds / 1e6)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        try:
            go.set()
            worker = this_host().spawn_procs().spawn("worker", Worker)
        finally:
            thread.join()
            time.sleep(0)
    except KeyboardInterrupt:
        interrupts += 1
    works()
    shutdown_context(host_timeout=0.2).get()
assert interrupts == 20
""")


@several_at_a_time
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_program_that_is_signalled_while_it_shuts_down_leaves_nothing(
    number: signal.Signals,
) -> None:
    result = run_script(
        PREAMBLE
        + """
class Slow(Worker):
    def __cleanup__(self, exc):
        print("cleaning up", flush=True)
        time.sleep(60)
worker = this_host().spawn_procs().spawn("slow", Slow)
worker.pid.call_one().get()
shutdown_context().get()
""",
        signal_after=("cleaning up", number),
    )
    assert result.exit_code == -number, str(result)
    assert result.left_behind == [], str(result)
