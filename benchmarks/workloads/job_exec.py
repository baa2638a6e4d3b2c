"""A command on the host of a job that runs already, from the call to its exit status; the client is
attached.
"""

from __future__ import annotations

import os
import tempfile

from benchmarks.workloads._harness import Measured, Options, latency, main, time_each
from monarch.job import ProcessJob, exec_command


def measure(options: Options) -> Measured:
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        job = ProcessJob({"hosts": 1})
        hosts = job.state().hosts
        try:
            exec_command(hosts, ["true"]).get()
            return latency(
                time_each(lambda: exec_command(hosts, ["true"]).get(), options.count(20)), "ms"
            )
        finally:
            job.kill()
            os.chdir("/")


if __name__ == "__main__":
    main(measure)
