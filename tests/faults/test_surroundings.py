"""Sandboxes that forbid system calls, and packages that replace what a process is made of."""

from __future__ import annotations

import platform

import pytest

from helpers.scripts import run_script
from helpers.strangers import needs_another_user, with_limited_processes

_BLOCK = '''
import ctypes, struct

def block(number):
    """Have a system call fail with EPERM, here and in all that is started from here: a seccomp filter, as sandboxes have."""
    code = b"".join(struct.pack("HBBI", *line) for line in (
        (0x20, 0, 0, 0),  # load the number
        (0x15, 0, 1, number),  # if it is this one
        (0x06, 0, 0, 0x00050001),  # EPERM
        (0x06, 0, 0, 0x7FFF0000),  # else allow it
    ))
    buffer = ctypes.create_string_buffer(code)
    program = struct.pack("HxxxxxxP", 4, ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0, "PR_SET_NO_NEW_PRIVS"
    assert libc.prctl(22, 2, program, 0, 0) == 0, "PR_SET_SECCOMP"
'''
_PRCTL, _PIDFD_OPEN = 157, 434

needs_numbers = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="the numbers are those of x86-64"
)


@needs_numbers
def test_where_pidfd_open_is_blocked_the_first_use_says_so() -> None:
    result = run_script(
        _BLOCK
        + f"""
from monarch.actor import this_host
block({_PIDFD_OPEN})
for _ in range(2):
    try:
        this_host().spawn_procs()
    except RuntimeError as error:
        print(error)
"""
    )
    lines = result.stdout.splitlines()
    assert len(lines) == 2, str(result)
    assert all("pidfd_open fails here (Operation not permitted)" in line for line in lines)
    assert result.exit_code == 0


@needs_numbers
def test_where_prctl_is_blocked_procs_end_with_their_agent_all_the_same() -> None:
    result = run_script(
        _BLOCK
        + f"""
import os, signal, time
import monarch.actor
from monarch.actor import Actor, endpoint, this_host

class Pids(Actor):
    @endpoint
    def pids(self):
        agent = open(f"/proc/{{os.getppid()}}/stat").read().rpartition(")")[2].split()[1]
        return os.getpid(), int(agent)

def is_there(pid):
    try:
        return open(f"/proc/{{pid}}/stat").read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False

block({_PRCTL})
monarch.actor.unhandled_fault_hook = lambda failure: None
pids = this_host().spawn_procs(per_host={{"g": 3}}).spawn("pids", Pids).pids.call().get().values()
procs, agents = zip(*pids)
assert len(set(agents)) == 1
os.kill(agents[0], signal.SIGKILL)
end = time.monotonic() + 20
while any(map(is_there, procs)) and time.monotonic() < end:
    time.sleep(0.01)
print(sum(map(is_there, procs)), "left")
"""
    )
    assert result.stdout.strip() == "0 left", str(result)
    assert result.exit_code == 0


def test_an_agent_that_can_not_be_started_may_be_tried_again() -> None:
    result = run_script("""
import sys
from monarch.actor import this_host
executable, sys.executable = sys.executable, "/not/there"
for _ in range(2):
    try:
        this_host().spawn_procs()
    except OSError as error:
        print(error)
sys.executable = executable
print(this_host().spawn_procs().initialized.get())
""")
    assert result.stdout.splitlines() == [
        "[Errno 2] No such file or directory: '/not/there'"
    ] * 2 + ["True"], str(result)


@needs_another_user
@pytest.mark.parametrize("limit", [3, 7, 14])  # of the client; of the procs; of their actors
def test_where_ulimit_allows_too_few_processes_the_error_names_it(limit: int) -> None:
    result = with_limited_processes(
        """
        import monarch.actor
        from monarch.actor import Actor, endpoint, this_host

        class Echo(Actor):
            @endpoint
            def say(self):
                pass

        monarch.actor.unhandled_fault_hook = lambda failure: None
        try:
            this_host().spawn_procs({"gpus": 6}).spawn("echo", Echo).say.call().get()
        except Exception as error:
            print(error)
        """,
        limit,
    )
    said = (
        "could not be started: no more processes and threads are allowed here (`ulimit -u` is"
        f" {limit}). Raise the limit"
    )
    assert said in result.stdout, result


_PATCHING = """
import sys, types
monkey = types.ModuleType("gevent.monkey")  # as the real one answers after patch_all
monkey.is_module_patched = lambda name: name in ("thread", "threading", "socket")
"""


def test_a_program_that_gevent_has_patched_gets_one_clear_error() -> None:
    result = run_script(
        _PATCHING
        + """
sys.modules["gevent.monkey"] = monkey
from monarch.actor import this_host
for _ in range(2):
    try:
        this_host().spawn_procs()
    except RuntimeError as error:
        print(error)
"""
    )
    lines = result.stdout.splitlines()
    assert len(lines) == 2, str(result)
    assert all(
        line.startswith("gevent has patched thread, threading, socket in this process")
        for line in lines
    )


def test_an_actor_whose_module_has_gevent_patch_its_process_fails_with_that_error() -> None:
    result = run_script(
        """
from monarch.actor import Actor, SupervisionError, endpoint, this_host
import monarch.actor
monarch.actor.unhandled_fault_hook = lambda failure: None

class Patches:
    def __reduce__(self):
        return exec, (PATCHING,)

class Green(Actor):
    def __init__(self, patches):
        pass

    @endpoint
    def say(self):
        pass

PATCHING = '''"""
        + _PATCHING
        + """
sys.modules["gevent.monkey"] = monkey
'''
try:
    this_host().spawn_procs().spawn("green", Green, Patches()).say.call_one().get()
except SupervisionError as error:
    print(error)
"""
    )
    assert "gevent has patched thread, threading, socket in this process" in result.stdout, str(
        result
    )
