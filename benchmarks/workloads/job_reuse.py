"""From the start of a client to its first answer, on the hosts of a job that runs already: one worker process, one proc, one call."""

from __future__ import annotations

from benchmarks.workloads._clusters import folder, time_client
from benchmarks.workloads._harness import Measured, Options, latency, main
from monarch.job import ProcessJob


def measure(options: Options) -> Measured:
    with folder():
        job = ProcessJob({"hosts": 1})
        job.state()
        try:
            return latency([time_client("job.ProcessJob({'hosts': 1})") for _ in range(options.count(5))], "s")
        finally:
            job.kill()


if __name__ == "__main__":
    main(measure)
