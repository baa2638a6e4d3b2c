"""What another user of the machine can do to a program: nothing.

Each test is an attack that worked where names were public.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from helpers.strangers import needs_another_user, stranger
from monarch._core.client.client import client
from monarch.actor import Actor, SupervisionError, endpoint
from monarch.supervision import OneForOne

if TYPE_CHECKING:
    from conftest import Spawn

pytestmark = [needs_another_user, pytest.mark.processes("sockets, and who may use them")]

PATIENCE = 30


class Worker(Actor):
    @endpoint
    def pid(self) -> int:
        return os.getpid()

    @endpoint
    def kill_process(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


FLOOD = """
import sys
seen = [name for name in listeners() if sys.argv[1] in name]
got_in = 0
print(len(seen), flush=True)
for _ in range(3000):
    for name in seen:
        with socket.socket(socket.AF_UNIX) as sock:
            got_in += not sock.connect_ex(as_address(name))
print(got_in, flush=True)
"""


def test_who_knocks_at_every_socket_of_a_program_is_not_heard(spawn: Spawn) -> None:
    worker = spawn().spawn("worker", Worker)
    pid = worker.pid.call_one().get(timeout=PATIENCE)
    with stranger(FLOOD, client().hub.address.host) as flood:
        assert flood.stdout is not None
        assert int(flood.stdout.readline()) >= 3  # of the client, the agent, the proc
        while flood.poll() is None:
            assert worker.pid.call_one().get(timeout=PATIENCE) == pid
        assert flood.stdout.read() == "0\n"


SQUAT = """
import sys
seen = set()
while True:
    now = {name for name in listeners() if sys.argv[1] in name}
    for name in seen - now:
        with socket.socket(socket.AF_UNIX) as sock:
            try:
                sock.bind(as_address(name))
                sock.listen()
            except OSError as error:
                print("tried", flush=True)
            else:
                print("took", name, flush=True)
                time.sleep(5)
    seen = now
    if not seen:
        break
    if len(sys.argv) < 3:
        sys.argv.append("")
        print("watches", flush=True)
"""


def test_the_name_of_a_process_that_died_is_not_taken_and_it_starts_again(spawn: Spawn) -> None:
    worker = spawn(restart=OneForOne(max_restarts=100)).spawn("worker", Worker)
    worker.pid.call_one().get(timeout=PATIENCE)
    with stranger(SQUAT, client().hub.address.host) as squatter:
        assert squatter.stdout is not None
        assert squatter.stdout.readline() == "watches\n"
        for _ in range(5):
            with pytest.raises(SupervisionError, match="SIGKILL"):
                worker.kill_process.call_one().get(timeout=PATIENCE)
            assert worker.pid.call_one().get(timeout=PATIENCE)
        squatter.kill()
        assert "took" not in squatter.stdout.read()
