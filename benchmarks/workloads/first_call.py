"""From after the import to the first result of a fresh interpreter: one process, one actor, one
call.

No warm-up and no repetition: the runner's rounds are the repetitions. The import's own time stands
beside it.
"""

from __future__ import annotations

import time

from benchmarks.workloads._harness import Measured, Options, main

IMPORT_STARTED = time.perf_counter()
# the import is part of what is measured
from monarch.actor import Actor, endpoint, this_host  # noqa: E402

IMPORTED = time.perf_counter()


class Echo(Actor):
    @endpoint
    def echo(self, value: int) -> int:
        return value


def measure(options: Options) -> Measured:
    start = time.perf_counter()
    procs = this_host().spawn_procs(per_host={"procs": 1})
    actor = procs.spawn("echo", Echo)
    reply = actor.echo.call_one(1).get()
    seconds = time.perf_counter() - start
    if reply != 1:
        raise AssertionError(f"wanted 1, got {reply}")
    procs.stop().get()
    imported = IMPORTED - IMPORT_STARTED
    return Measured(seconds, "s", {"import_s": imported, "import_and_call_s": imported + seconds})


if __name__ == "__main__":
    main(measure)
