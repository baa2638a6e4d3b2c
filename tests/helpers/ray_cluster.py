"""A real Ray cluster of four nodes on this machine, as a program: it prints the address, and for
each line that it reads, kills a node.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from helpers.leaks import OF_SESSION, describe
from helpers.waiting import wait_until

NODES = 4
CPUS = 2  # of each node
_MARK = "MONARCH_TEST_RAY"


@dataclass(frozen=True)
class Ray:
    """Attributes:
    address: Of the cluster.
    """

    address: str
    program: subprocess.Popen[str]

    def kill_busy_node(self) -> None:
        """End a node that has no free CPUs, other than the head, with all that runs there."""
        assert self.program.stdin is not None and self.program.stdout is not None
        print("kill", file=self.program.stdin, flush=True)
        assert self.program.stdout.readline() == "killed\n"

    def workers(self) -> list[int]:
        """All that jobs run in this cluster: workers, with what runs there."""
        return [pid for pid in _marked() if "MONARCH_SECRET" in _environment(pid)]


@contextmanager
def running_ray() -> Iterator[Ray]:
    """A cluster; at the end nothing is left of it, and of what ran there."""
    folder = tempfile.mkdtemp(prefix="mr", dir="/tmp")  # sockets are there, so its path is short
    log = Path(folder, "cluster.log")
    with log.open("w") as errors:
        program = subprocess.Popen(
            [sys.executable, "-m", "helpers.ray_cluster", folder],
            env={
                **os.environ,
                "RAY_USAGE_STATS_ENABLED": "0",
                _MARK: "1",
                **dict([OF_SESSION.split("=")]),
            },
            cwd=os.path.dirname(os.path.dirname(__file__)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    assert program.stdout is not None and program.stdin is not None
    try:
        address = program.stdout.readline().strip()
        if not address:  # it gives its own processes half a minute, whatever else the machine does
            pytest.skip(
                f"Ray itself does not start here: {log.read_text().strip().splitlines()[-1:]}"
            )
        yield Ray(address, program)
    finally:
        program.stdin.close()
        program.wait(timeout=60)
        program.stdout.close()
        wait_until(lambda: not _marked(), what=f"the end of {[*map(describe, _marked())]}")
        shutil.rmtree(folder)


def _marked() -> list[int]:
    pids = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
    return [pid for pid in pids if _environment(pid).get(_MARK) == "1"]


def _environment(pid: int) -> dict[str, str]:
    try:
        with open(f"/proc/{pid}/environ", errors="replace") as file:
            return dict(entry.partition("=")[::2] for entry in file.read().split("\0"))
    except OSError:
        return {}


def main() -> None:
    from ray.cluster_utils import Cluster

    head = {"num_cpus": CPUS, "include_dashboard": False, "temp_dir": sys.argv[1]}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    nodes = [cluster.add_node(num_cpus=CPUS) for _ in range(NODES - 1)]
    cluster.wait_for_nodes()
    print(cluster.address, flush=True)
    for _ in sys.stdin:
        import ray
        from ray._private.state import available_resources_per_node

        ray.init(address=cluster.address, log_to_driver=False)
        free = {
            node
            for node, left in available_resources_per_node().items()
            if left.get("CPU", 0) == CPUS
        }
        ray.shutdown()
        cluster.remove_node(
            next(
                node for node in nodes if node.node_id not in free and node is not cluster.head_node
            )
        )
        print("killed", flush=True)
    cluster.shutdown()


if __name__ == "__main__":
    main()
