"""The program that is ended: ``program.py WAY SECONDS THREADS``.

Its threads use the API without end, as daemons; with none of them its main thread does. `WAY` is
how it ends after so many seconds; a way that is not among `WAYS` is of another process.

What forks has no such threads: an import, say, that another thread is in the midst of at a fork is
one for ever in the child, and waits for ever if it needs the same.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import partial

from monarch.actor import Actor, SupervisionError, endpoint, shutdown_context, this_host

PAYLOAD = bytearray(2_000_000)  # several ranks get it as shared memory


class Worker(Actor):
    @endpoint
    def weigh(self, payload: bytearray) -> int:
        return len(payload)


def work_once() -> None:
    procs = this_host().spawn_procs({"n": 2})
    worker = procs.spawn("worker", Worker)
    worker.weigh.call(PAYLOAD).get()
    worker.weigh.broadcast(PAYLOAD)
    procs.stop().get()


def work(again_after_loss: bool) -> None:
    while True:
        try:
            work_once()
        except SupervisionError:
            if not again_after_loss:
                raise


def in_a_thread(act: Callable[[], object]) -> None:
    thread = threading.Thread(target=act)
    thread.start()
    thread.join()


def fork(in_child: Callable[[], object]) -> None:
    work_once()
    if os.fork() == 0:
        in_child()
        sys.exit(0)


def stop_and_end() -> None:
    shutdown_context().get()


def fail() -> None:
    raise RuntimeError("mine")


WAYS: dict[str, Callable[[], object]] = {
    "end": lambda: None,
    "exit": lambda: sys.exit(3),
    "raise": fail,
    "os._exit": lambda: os._exit(4),
    "exit in a thread": partial(in_a_thread, lambda: sys.exit(5)),
    "raise in a thread": partial(in_a_thread, fail),
    "shut down": stop_and_end,
    "fork that exits": partial(fork, lambda: None),
    "fork that is a client": partial(fork, work_once),
    "abort": os.abort,
    "kill itself": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "interrupt itself": lambda: signal.raise_signal(signal.SIGINT),
}


if __name__ == "__main__":
    way, seconds, threads = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    if way == "SIGTERM that exits":
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))
    for _ in range(threads):
        threading.Thread(target=work, args=(way == "shut down",), daemon=True).start()
    if way not in WAYS:
        if not threads:
            work(again_after_loss=False)
        time.sleep(600)
    time.sleep(seconds)
    WAYS[way]()
