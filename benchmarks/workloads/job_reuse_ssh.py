"""As `job_reuse`, on two hosts that ssh reaches, whose workers outlive programs: each client makes connections of its own."""

from __future__ import annotations

from benchmarks.workloads._clusters import folder, ssh, time_client
from benchmarks.workloads._harness import Measured, Options, latency, main
from monarch.job import SSHJob


def measure(options: Options) -> Measured:
    with ssh() as configuration, folder():
        args, hosts = ["-F", configuration], {"hosts": ["a", "b"]}
        job = SSHJob(ssh_args=args, hosts=hosts, detach=True)
        job.state()
        try:
            client = f"job.SSHJob(ssh_args={args!r}, hosts={hosts!r}, detach=True)"
            return latency([time_client(client) for _ in range(options.count(5))], "s")
        finally:
            job.kill()


if __name__ == "__main__":
    main(measure)
