"""From the start of a client to its first answer, on the hosts of a job that runs already: one worker process, one proc, one call."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time

from benchmarks.workloads._harness import Measured, Options, latency, main
from monarch.job import ProcessJob

CLIENT = """
from monarch.actor import Actor, endpoint
from monarch.job import ProcessJob

class Echo(Actor):
    @endpoint
    def echo(self, value):
        return value

if __name__ == "__main__":
    procs = ProcessJob({"hosts": 1}).state().hosts.spawn_procs(per_host={"procs": 1})
    assert procs.spawn("echo", Echo).echo.call(1).get()
    print("answered", flush=True)
"""


def measure(options: Options) -> Measured:
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        job = ProcessJob({"hosts": 1})
        job.state()
        try:
            return latency([_time_client() for _ in range(options.count(5))], "s")
        finally:
            job.kill()
            os.chdir("/")


def _time_client() -> float:
    start = time.perf_counter()
    with subprocess.Popen([sys.executable, "-c", CLIENT], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as client:
        assert client.stdout is not None
        for line in client.stdout:
            if b"answered" in line:
                return time.perf_counter() - start
    raise AssertionError(f"the client ended with status {client.returncode}, without an answer")


if __name__ == "__main__":
    main(measure)
