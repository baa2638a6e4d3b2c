"""The program of a worker process: serve at an address, for as long as it is wanted.

Started with two arguments, the address and the path of a file, and the leash (see `launch`) as descriptor 3. It ends

    when a client shuts the host down     and leaves the file, to say that this was in order
    with the program that started it      unless it has been told to stay
    when it is killed

What keeps it from serving is printed as a traceback, and closes the leash.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
from pathlib import Path

from ..actor import start_worker_loop_forever

LEASH = 3
READY = b"r"
KEEP = b"k"


def main() -> None:
    address, goodbye = sys.argv[1:]
    leash = socket.socket(fileno=LEASH)
    leash.set_inheritable(False)
    try:
        serving = start_worker_loop_forever(address=address, ca=None)  # on a unix socket the kernel says who calls
        serving.add_done_callback(lambda _: leash.shutdown(socket.SHUT_RDWR))  # ends the wait for a word
        leash.sendall(READY)
        if leash.recv(1) != KEEP and not serving.done():
            raise ConnectionResetError
    except ConnectionError:
        # Whoever started this is gone and nobody else knows of it: what it runs goes with it.
        shutil.rmtree(Path(goodbye).parent, ignore_errors=True)
        os._exit(0)
    serving.get()
    Path(goodbye).touch()
