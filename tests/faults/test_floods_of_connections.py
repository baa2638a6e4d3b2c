"""A program of the same user floods another's processes: heartbeats get through, and calls go on.

Other users can't connect at all (`test_other_users`).
"""

from __future__ import annotations

import os

import pytest

from helpers.scripts import TESTS, package_path, run_script

PROGRAM = """
    import subprocess, sys, textwrap, time
    from helpers.actors import Echo
    from monarch._core.client.client import client
    from monarch._core.net import unix
    from monarch._core.wire import pickling
    from monarch._core.wire.address import SYSTEM
    from monarch._core.wire.frame import CALL, HELLO, PROTOCOL_VERSION, URGENT, Frame, encode
    from monarch.actor import this_host
    from monarch.config import configure

    START = '''
        import os, socket
        def connect():
            sock = socket.socket(socket.AF_UNIX)
            sock.settimeout(1)
            while True:
                try:
                    sock.connect(PATH)
                    return sock
                except BlockingIOError:  # the backlog is full
                    pass
        connect()
        print("floods", flush=True)
        kept = []
    '''
    FLOODS = {
        "knocks": '''
            while True:
                connect().close()
        ''',
        "stays": '''
            while True:
                try:
                    kept.append(connect())
                except OSError:  # no descriptor is left
                    kept.clear()
        ''',
        "garbage": '''
            while True:
                with connect() as sock:
                    try:
                        sock.sendall(b"\\\\xff" * 4096)
                    except OSError:
                        pass
        ''',
        "messages": '''
            while True:
                with connect() as sock:
                    try:
                        sock.sendall(HELLO)
                        while True:
                            sock.sendall(MESSAGES)
                            sock.recv(1 << 20, socket.MSG_DONTWAIT)
                    except OSError:
                        pass
        ''',
    }

    def flood(kind, address, method):
        hello = encode(Frame(HELLO, PROTOCOL_VERSION, 0, 0, 0, 0, b"stranger\\0client-1.0", b""))[0]
        call = encode(Frame(CALL, URGENT, 0, SYSTEM, 0, 1, method, pickling.dumps_call((), {})[0]))[0]
        names = f"PATH, HELLO, MESSAGES = {unix.path_of(address)!r}, {hello!r}, {call!r} * 100\\n"
        script = names + textwrap.dedent(START) + textwrap.dedent(FLOODS[kind])
        program = subprocess.Popen([sys.executable, "-I", "-S", "-c", script], stdout=subprocess.PIPE)
        assert program.stdout.readline() == b"floods\\n"
        return program

    if __name__ == "__main__":
        configure(heartbeat_timeout="2s")
        echo = this_host().spawn_procs().spawn("echo", Echo)
        agent = client().hub.address.agent
        proc = next(address for address in client().hub.peers if address != agent) if echo.say.call_one(1).get() else None
        floods = [flood(KIND, agent, b"ping"), flood(KIND, proc, b"statistics")]
        end = time.monotonic() + 5  # more than two time-outs
        while time.monotonic() < end:
            assert echo.say.call_one(1).get() == 1
        assert [flood.poll() for flood in floods] == [None, None], "they flood to the end"
        this_host().spawn_procs().spawn("echo", Echo).say.call_one(1).get()  # the agent serves, too
        for program in floods:
            program.kill()
            program.communicate()
        print("alive")
"""


@pytest.mark.parametrize("kind", ["knocks", "stays", "garbage", "messages"])
@pytest.mark.slow
def test_heartbeats_and_calls_survive_a_flood_by_who_may_connect(kind: str) -> None:
    ran = run_script(
        f"    KIND = {kind!r}\n" + PROGRAM,
        timeout=90,
        env={"PYTHONPATH": f"{TESTS}{os.pathsep}{package_path()}"},
    )
    assert (ran.exit_code, ran.stdout) == (0, "alive\n"), ran
