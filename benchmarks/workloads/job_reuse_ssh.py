"""As `job_reuse`, on two hosts that ssh reaches, whose workers outlive programs: each client makes
connections of its own.
"""

from __future__ import annotations

from benchmarks.workloads._clusters import reuse, ssh
from benchmarks.workloads._harness import Measured, Options, main


def measure(options: Options) -> Measured:
    with ssh() as configuration:
        job = (
            f"job.SSHJob(ssh_args=['-F', {configuration!r}], hosts={{'hosts': ['a', 'b']}},"
            " detach=True)"
        )
        return reuse(job, options.count(5))


if __name__ == "__main__":
    main(measure)
