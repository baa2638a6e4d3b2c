"""The clusters of the tests, on this machine: a Slurm of three nodes, and an sshd with two
hosts.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.workloads._harness import Measured, latency

_TESTS = Path(__file__).parents[2] / "tests"

CLIENT = """
from monarch import job
from monarch.actor import Actor, endpoint

class Echo(Actor):
    @endpoint
    def echo(self, value):
        return value

if __name__ == "__main__":
    procs = {job}.state().hosts.spawn_procs(per_host={{"procs": 1}})
    assert set(procs.spawn("echo", Echo).echo.call(1).get().values()) == {{1}}
    print("answered", flush=True)
"""


def _time_client(job: str) -> float:
    """Seconds from the start of a client to its first answer."""
    program = [sys.executable, "-c", CLIENT.format(job=job)]
    start = time.perf_counter()
    with subprocess.Popen(
        program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as client:
        assert client.stdout is not None and client.stderr is not None
        for line in client.stdout:
            if "answered" in line:
                return time.perf_counter() - start
        said = client.stderr.read()
    raise AssertionError(
        f"the client ended with status {client.returncode}, without an answer: {said}"
    )


def reuse(job: str, count: int) -> Measured:
    """How long clients take that find the job running; the first one, which starts it, does not
    count.

    Args:
        job: What clients describe, as Python; ``job`` is the module.
        count: Number of them.
    """
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            _time_client(job)
            return latency([_time_client(job) for _ in range(count)], "s")
        finally:
            subprocess.run(
                [sys.executable, "-c", "from monarch.job import job_load; job_load().kill()"],
                check=True,
            )
            os.chdir("/")


@contextmanager
def slurm() -> Iterator[None]:
    """A Slurm of three nodes, which jobs of this process use."""
    sys.path.insert(0, str(_TESTS))
    from helpers.slurm import running_slurm, why_not

    if reason := why_not():
        raise SystemExit(f"skipped: {reason}")
    with running_slurm() as cluster:
        os.environ.update(cluster.environment)
        yield


@contextmanager
def ssh() -> Iterator[str]:
    """Two machines that ssh reaches as ``a`` and ``b``; the path of its configuration."""
    sys.path.insert(0, str(_TESTS))
    from helpers.ssh import running_ssh, why_not

    if reason := why_not():
        raise SystemExit(f"skipped: {reason}")
    with running_ssh() as machines:
        yield machines.config
