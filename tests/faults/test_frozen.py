"""Processes that are stopped by a signal, and processes that only look as if they were.

A stopped process counts as lost after `heartbeat_timeout`, and whoever waits for it is told;
continued before, nothing has happened. Threads that hold the interpreter lock, and a client that is
stopped itself, make nobody look dead.

Each test is a program of its own, because the time-out is settled when the host agent starts.
"""

from __future__ import annotations

import signal

import pytest

from helpers.ahead import several_at_a_time
from helpers.effort import shortened
from helpers.scripts import LIMIT, ScriptResult, program, run_program, run_script

START = """
    import ctypes, os, signal, subprocess, sys, threading, time
    import monarch.actor
    from helpers.faults import Faults
    from helpers.processes import agent_of, spawner_of, stopped, wait_stopped
    from helpers.waiting import wait_gone, wait_until
    from monarch.actor import Actor, SupervisionError, endpoint, shutdown_context, this_host
    from monarch.config import configure

    class Worker(Actor):
        @endpoint
        def pid(self):
            return os.getpid()

        @endpoint
        def wait(self):
            time.sleep(600)

        @endpoint
        def ask(self, other, ready):
            call = other.wait.call_one()
            ready.send(True)
            try:
                call.get()
            except SupervisionError as error:
                return f"told: {error}"

        @endpoint
        def hold_the_interpreter(self, seconds):
            hold_the_interpreter(seconds)
            return os.getpid()

    class AsyncWorker(Actor):
        @endpoint
        async def ask(self, other, ready):
            call = other.wait.call_one()
            ready.send(True)
            try:
                await call
            except SupervisionError as error:
                return f"told: {error}"

    def hold_the_interpreter(seconds):
        ctypes.PyDLL(None).usleep(int(seconds * 1e6))  # PyDLL, unlike CDLL, does not let go of it

    def up(count=2, **knobs):
        configure(**{"heartbeat_timeout": "1s", **knobs})
        procs = this_host().spawn_procs(per_host={"g": count}, name="trainers")
        workers = procs.spawn("worker", Worker)
        return procs, workers, list(workers.pid.call().get().values())

    def told(future):
        start = time.monotonic()
        try:
            future.get()
        except SupervisionError as error:
            return time.monotonic() - start, " ".join(str(error).split())
        raise AssertionError("it had an answer")

    monarch.actor.unhandled_fault_hook = faults = Faults()
"""


def run(source: str, *, timeout: float = LIMIT) -> ScriptResult:
    return run_program(START, source, timeout=timeout)


# stopped for good


@several_at_a_time
def test_a_proc_that_stays_stopped_is_ended_and_every_kind_of_caller_is_told() -> None:
    run("""
        procs, workers, pids = up(4)
        askers = this_host().spawn_procs(name="askers")
        asking, asking_async = askers.spawn("asks", Worker), askers.spawn("asks", AsyncWorker)
        frozen = workers.slice(g=3)
        other = procs.slice(g=3).spawn("other", Worker)
        assert other.pid.call_one().get() == pids[3]
        ready, is_ready = monarch.actor.Channel.open()
        waiting = [asking.ask.call_one(frozen, ready), asking_async.ask.call_one(frozen, ready)]
        for _ in waiting:
            assert is_ready.recv().get()
        os.kill(pids[3], signal.SIGSTOP)
        wait_stopped(pids[3])
        one, every, stream = frozen.wait.call_one(), workers.pid.call(), workers.pid.stream()
        ending = other.stop()
        taken, text = told(one)
        assert taken > 0.9, taken
        assert "heartbeat_timeout" in text and "stopped by a signal" in text and "trainers[3]" in text, text
        assert "heartbeat_timeout" in told(every)[1]
        answers = [answer.exception() for answer in stream]
        assert sum(answer is None for answer in answers) == 3, answers
        for answer in waiting:
            assert "heartbeat_timeout" in answer.get(), answer.get()
        ending.get()
        wait_gone(pids[3])
        assert list(workers.slice(g=slice(0, 3)).pid.call().get().values()) == pids[:3]
        assert "heartbeat_timeout" in told(frozen.pid.call_one())[1]
        """)


@several_at_a_time
def test_the_owner_of_a_proc_that_stays_stopped_hears_once_what_it_was() -> None:
    run("""
        procs, workers, pids = up(2)
        os.kill(pids[1], signal.SIGSTOP)
        (failure,) = faults.wait_for(1)
        assert (failure.cause, failure.ranks, failure.mesh_name) == ("frozen", [1], "worker"), failure
        assert failure.event.pid == pids[1]
        assert "within 1s (heartbeat_timeout)" in failure.report(), failure.report()
        procs.stop().get()
        assert len(faults) == 1, faults.reports()
        """)


@several_at_a_time
@pytest.mark.parametrize("who", ["spawner", "agent"])
def test_a_host_whose_own_processes_stay_stopped_is_lost_as_a_whole(who: str) -> None:
    run(f"""
        procs, workers, pids = up(2)
        victim = {who}_of(pids[0])
        waiting = workers.wait.call()
        asks = workers.slice(g=0)
        os.kill(victim, signal.SIGSTOP)
        taken, text = told(waiting)
        assert taken > 0.9, taken
        assert "the host agent is gone" in text and "heartbeat_timeout" in text, text
        for pid in (victim, *pids):
            wait_gone(pid)
        assert {{failure.cause for failure in faults.wait_for(2)}} == {{"host"}}, faults.reports()
        assert "heartbeat_timeout" in told(workers.pid.call())[1]
        assert "heartbeat_timeout" in told(this_host().spawn_procs().initialized)[1]
        start = time.monotonic()
        procs.stop().get()
        shutdown_context().get()
        procs, workers, pids = up(1)
        assert workers.pid.call_one().get() == pids[0]
        """)


@several_at_a_time
@pytest.mark.slow
def test_a_circle_of_waits_ends_though_the_agent_stays_stopped() -> None:
    run("""
        procs, workers, pids = up(2)
        ready, is_ready = monarch.actor.Channel.open()
        waiting = workers.slice(g=0).ask.call_one(workers.slice(g=1), ready)
        assert is_ready.recv().get()
        os.kill(agent_of(pids[0]), signal.SIGSTOP)
        wait_stopped(agent_of(pids[0]))
        os.kill(pids[1], signal.SIGKILL)  # of which nobody can tell the actor that waits
        try:
            text = waiting.get()  # it may be told, and pass it on, in the moment before it ends itself
        except SupervisionError as error:
            text = str(error)
        assert "the host agent is gone" in text, text
        """)


@several_at_a_time
@pytest.mark.parametrize("who", ["spawner", "agent"])
@pytest.mark.parametrize("number", ["SIGSTOP", "SIGKILL"])
def test_procs_that_are_being_spawned_when_their_host_is_lost_are_not_waited_for(
    who: str, number: str
) -> None:
    run(f"""
        procs, workers, pids = up(1, host_spawn_ready_timeout="1h")
        victim = {who}_of(pids[0])
        os.kill(victim, signal.SIGSTOP)
        wait_stopped(victim)
        more = this_host().spawn_procs(per_host={{"g": 2}})
        calling = more.spawn("worker", Worker).pid.call()
        if {number!r} == "SIGKILL":
            os.kill(victim, signal.SIGKILL)
        assert "the host agent is gone" in told(more.initialized)[1]
        assert "the host agent is gone" in told(calling)[1]
        """)


@several_at_a_time
def test_an_agent_that_is_stopped_before_it_has_come_up_is_not_waited_for() -> None:
    source = """
        from helpers.leaks import descendants
        configure(heartbeat_timeout="500ms", host_spawn_ready_timeout="2s")
        procs = this_host().spawn_procs()
        agent = next(iter(descendants(os.getpid())))
        os.kill(agent, signal.SIGSTOP)
        wait_stopped(agent)
        if len(descendants(os.getpid())) > 1:
            print("it has come up")
            os.kill(agent, signal.SIGCONT)
        else:
            taken, text = told(procs.initialized)
            assert "the host agent is gone" in text and taken > 1.5, (taken, text)
        """
    for _ in range(5):  # a machine that is busy with others may let the agent be the first
        if not run(source).stdout:
            return
    pytest.skip("the agent was too fast each time")


@several_at_a_time
def test_who_is_blocked_because_a_stopped_proc_does_not_read_is_told() -> None:
    run("""
        configure(send_buffer_limit="1 MiB", message_delivery_timeout="1m")
        procs, workers, pids = up(1)
        class Sink(Actor):
            @endpoint
            def take(self, data):
                return len(data)
        sink = procs.spawn("sink", Sink)
        assert sink.take.call_one(b"").get() == 0
        os.kill(pids[0], signal.SIGSTOP)
        wait_stopped(pids[0])
        calls = [sink.take.call_one(bytes(10_000)) for _ in range(1000)]
        assert "heartbeat_timeout" in told(calls[-1])[1]
        """)


# stopped for a while


@several_at_a_time
def test_who_goes_on_before_the_timeout_has_never_been_away() -> None:
    run("""
        procs, workers, pids = up(2, heartbeat_timeout="2s")
        everybody = (pids[0], spawner_of(pids[0]), agent_of(pids[0]))
        calling = workers.hold_the_interpreter.call(0)
        for _ in range(2):  # more than the time-out together
            for pid in everybody:
                with stopped(pid):
                    time.sleep(1.2)
        time.sleep(2)
        assert list(calling.get().values()) == pids
        assert list(workers.pid.call().get().values()) == pids
        assert this_host().spawn_procs().initialized.get()
        assert len(faults) == 0, faults.reports()
        """)


@several_at_a_time
def test_without_a_timeout_a_stopped_process_is_waited_for() -> None:
    run("""
        procs, workers, pids = up(1, heartbeat_timeout=0)
        for pid in (pids[0], spawner_of(pids[0]), agent_of(pids[0])):
            with stopped(pid):
                time.sleep(0.5)
        assert workers.pid.call_one().get() == pids[0]
        assert len(faults) == 0, faults.reports()
        """)


@several_at_a_time
def test_a_client_that_was_stopped_itself_takes_no_peer_for_dead() -> None:
    run("""
        procs, workers, pids = up(1)
        me = os.getpid()
        subprocess.run(["sh", "-c", f"(sleep 0.3; kill -STOP {me}; sleep 3; kill -CONT {me}) > /dev/null 2>&1 &"])
        start = time.monotonic()
        while time.monotonic() - start < 3:  # not counted while it is stopped, or it would not get that far
            time.sleep(0.01)
        time.sleep(1.5)
        assert workers.pid.call_one().get() == pids[0]
        assert len(faults) == 0, faults.reports()
        """)


@several_at_a_time
def test_a_program_of_which_every_process_was_stopped_goes_on_as_if_nothing_had_been() -> None:
    run("""
        procs, workers, pids = up(2, heartbeat_timeout="2s")
        me, host, ours = os.getpid(), (agent_of(pids[0]), spawner_of(pids[0])), " ".join(map(str, pids))
        freeze = f"kill -STOP {ours}; sleep 0.1; kill -STOP {host[1]} {host[0]}; sleep 0.8; kill -STOP {me}"
        thaw = f"kill -CONT {me}; sleep 0.2; kill -CONT {host[0]}; sleep 0.2; kill -CONT {host[1]} {ours}"  # each before those it watches
        subprocess.run(["sh", "-c", f"(sleep 0.3; {freeze}; sleep 4; {thaw}) > /dev/null 2>&1 &"])
        start = time.monotonic()
        while time.monotonic() - start < 5:
            time.sleep(0.01)
        time.sleep(2.5)
        assert list(workers.pid.call().get().values()) == pids
        assert len(faults) == 0, faults.reports()
        """)


@several_at_a_time
@pytest.mark.parametrize("stopped_before", [False, True])
def test_who_is_held_by_a_debugger_is_left_alone(stopped_before: bool) -> None:
    result = run(f"""
        procs, workers, pids = up(1)
        if {stopped_before}:
            os.kill(pids[0], signal.SIGSTOP)
            wait_stopped(pids[0])
        debugger = '''
        import ctypes, os, sys, time
        ptrace, pid = ctypes.CDLL(None).ptrace, int(sys.argv[1])
        ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
        if ptrace(16, pid, None, None):
            print("refused", flush=True)
        else:
            os.waitpid(pid, 0)
            print("attached", flush=True)
            time.sleep(2.5)
            ptrace(17, pid, None, None)
        '''
        import textwrap
        tracer = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(debugger), str(pids[0])], stdout=subprocess.PIPE, text=True
        )
        if tracer.stdout.readline() == "refused\\n":
            print("refused")
            raise SystemExit
        assert tracer.wait(20) == 0
        os.kill(pids[0], signal.SIGCONT)
        time.sleep(1.5)
        assert workers.pid.call_one().get() == pids[0]
        assert len(faults) == 0, faults.reports()
        """)
    if "refused" in result.stdout:
        pytest.skip("this system does not let one process trace another")


# busy, not stopped

HOLD = """
    procs, workers, pids = up(2, heartbeat_timeout={timeout!r})
    holding = workers.slice(g=0).hold_the_interpreter.call_one({seconds})
    hold_the_interpreter({seconds})
    assert holding.get() == pids[0]
    time.sleep(1.5)
    assert list(workers.pid.call().get().values()) == pids
    assert len(faults) == 0, faults.reports()
"""


@several_at_a_time
def test_holding_the_interpreter_lock_for_long_kills_no_process() -> None:
    run(HOLD.format(timeout="1s", seconds=4))


@several_at_a_time
def test_holding_the_interpreter_lock_for_more_than_the_usual_limit_kills_no_process() -> None:
    run(HOLD.format(timeout=shortened("10s", "2s"), seconds=shortened(60, 7)), timeout=150)


@several_at_a_time
def test_holding_the_interpreter_lock_again_and_again_kills_no_process() -> None:
    run("""
        procs, workers, pids = up(1, heartbeat_timeout="400ms")
        for _ in range(8):
            hold_the_interpreter(0.6)
        assert workers.pid.call_one().get() == pids[0]
        assert len(faults) == 0, faults.reports()
        """)


# stopping what stands still


@several_at_a_time
def test_procs_of_which_one_is_stopped_end_within_the_bound_of_stop() -> None:
    run("""
        procs, workers, pids = up(2, heartbeat_timeout="1h", cleanup_timeout="500ms", process_exit_timeout="500ms")
        os.kill(pids[1], signal.SIGSTOP)
        wait_stopped(pids[1])
        procs.stop().get()
        for pid in pids:
            wait_gone(pid)
        assert len(faults) == 0, faults.reports()
        """)


@several_at_a_time
def test_the_timeout_ends_a_stop_sooner_than_its_bound() -> None:
    run("""
        procs, workers, pids = up(2, heartbeat_timeout="500ms", process_exit_timeout="1h")
        os.kill(pids[1], signal.SIGSTOP)
        wait_stopped(pids[1])
        procs.stop().get()
        """)


@several_at_a_time
def test_procs_can_be_stopped_and_their_deaths_are_told_while_the_spawner_is_stopped() -> None:
    run("""
        procs, workers, pids = up(2, heartbeat_timeout="1h", process_exit_timeout="1h")
        more = this_host().spawn_procs()
        # the spawner, which does one thing after the other, has told the agent of the pids of `more`
        assert this_host().spawn_procs().initialized.get()
        with stopped(spawner_of(pids[0])):
            waiting = workers.wait.call()
            os.kill(pids[1], signal.SIGKILL)
            _, text = told(waiting)
            assert "SIGKILL" in text and "trainers[1]" in text, text
            more.stop().get()
        procs.stop().get()
        """)


@several_at_a_time
@pytest.mark.parametrize("who", ["spawner", "agent"])
def test_a_program_ends_although_its_host_stands_still(who: str) -> None:
    run(f"""
        procs, workers, pids = up(2, heartbeat_timeout="1h")
        os.kill({who}_of(pids[0]), signal.SIGSTOP)
        """)


@several_at_a_time
@pytest.mark.parametrize("who", ["spawner", "agent"])
@pytest.mark.parametrize("before", [True, False], ids=["before", "meanwhile"])
def test_shutdown_ends_although_the_host_stands_still(who: str, before: bool) -> None:
    run(f"""
        procs, workers, pids = up(2, heartbeat_timeout="1h")
        waiting = workers.wait.call()
        victim = {who}_of(pids[0])
        if {before}:
            os.kill(victim, signal.SIGSTOP)
            wait_stopped(victim)
        ending = shutdown_context(host_timeout=0.5)
        if not {before}:
            os.kill(victim, signal.SIGSTOP)
        ending.get()
        told(waiting)
        for pid in (victim, *pids):
            wait_gone(pid)
        """)


@several_at_a_time
def test_a_proc_that_is_stopped_does_not_outlive_a_client_that_is_killed() -> None:
    source = """
        procs, workers, pids = up(2, heartbeat_timeout="1m")
        for pid in (pids[1], agent_of(pids[0])):
            os.kill(pid, signal.SIGSTOP)
            wait_stopped(pid)
        os.kill(agent_of(pids[0]), signal.SIGCONT)
        print("now", flush=True)
        workers.wait.call().get()
        """
    result = run_script(
        program(START, source),
        signal_after=("now", signal.SIGKILL),
        settle=10.0,
    )
    assert result.left_behind == [], str(result)
