"""A program on machines that ssh reaches. Without any it says what it needs.

    python examples/ssh_hosts.py node7 me@node8           what ssh takes, also names of ~/.ssh/config
    python examples/ssh_hosts.py -F my_config a b         with options of ssh before them

The workers end with the program, however that ends, and no port is open.

What to look for:

* ``SSHJob(hosts={"nodes": [...]})``   one worker for each time a host is named; ``state()`` connects and starts them
* ``sums.of.call(numbers)``            actors on each machine call those on all others, by way of this one
* ``setup=["cd data"]``                lines of sh that run before a worker starts, such as for an environment
"""

import shutil
import subprocess
import sys

from monarch.actor import Actor, current_rank, endpoint
from monarch.job import SSHJob


class Number(Actor):
    @endpoint
    def value(self) -> int:
        return current_rank().rank + 1


class Sum(Actor):
    @endpoint
    def of(self, numbers: Number) -> str:
        values = numbers.value.call().get().values()
        return f"rank {current_rank().rank} has the sum {sum(values)}"


# region main
def main(hosts: list[str], ssh_args: list[str]) -> None:
    job = SSHJob(ssh_args=ssh_args, hosts={"nodes": hosts})
    nodes = job.state(cached_path=None).nodes
    procs = nodes.spawn_procs({"gpus": 2})
    numbers, sums = procs.spawn("numbers", Number), procs.spawn("sums", Sum)
    for line in sums.of.call(numbers).get().values():
        print(line)
    job.kill()


# endregion

if __name__ == "__main__":
    options = sys.argv[1:3] if sys.argv[1:2] == ["-F"] else []
    names = sys.argv[1 + len(options) :] or ["localhost"]
    probe = ["ssh", *options, "-oBatchMode=yes", "-oConnectTimeout=5", "-n", names[0], "true"]
    if shutil.which("ssh") is None or subprocess.run(probe, capture_output=True).returncode:
        print(
            f"needs a machine that ssh reaches without a password; {names[0]} is none. Name others"
            " as arguments"
        )
    else:
        main(names, options)
