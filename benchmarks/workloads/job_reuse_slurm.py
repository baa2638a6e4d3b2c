"""As `job_reuse`, on three nodes of a Slurm on this machine: three workers that listen on TCP, a proc on each, one call to all."""

from __future__ import annotations

from benchmarks.workloads._clusters import folder, slurm, time_client
from benchmarks.workloads._harness import Measured, Options, latency, main
from monarch.job import SlurmJob


def measure(options: Options) -> Measured:
    with slurm(), folder():
        job = SlurmJob({"hosts": 3})
        job.state()
        try:
            return latency([time_client("job.SlurmJob({'hosts': 3})") for _ in range(options.count(5))], "s")
        finally:
            job.kill()


if __name__ == "__main__":
    main(measure)
