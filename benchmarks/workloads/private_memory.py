"""Private memory of an idle process: one actor, called once, nothing going on.

MB (10**6 bytes), median over eight.

Private is what the process alone has mapped (USS), so what it costs to add one. Pages shared with
others, and processes that are there only to serve (not to run actors), are reported beside it.
"""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path

from benchmarks.workloads._harness import Measured, Options, main
from monarch.actor import Actor, endpoint, this_host

SETTLE_S = 1.0


class Idle(Actor):
    @endpoint
    def pid(self) -> int:
        return os.getpid()


def memory_of(pid: int) -> dict[str, float]:
    """Private, shared and resident megabytes of a process, from the kernel's own sums."""
    kib: dict[str, int] = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        key, amount = line.split()[:2]
        kib[key.rstrip(":")] = int(amount)
    private = kib["Private_Clean"] + kib["Private_Dirty"]
    shared = kib["Shared_Clean"] + kib["Shared_Dirty"]
    sums = {"private": private, "shared": shared, "rss": kib["Rss"]}
    return {name: amount * 1024 / 1e6 for name, amount in sums.items()}


def descendants_of(root: int) -> set[int]:
    """All processes below `root`, by the parent that /proc names."""
    children: dict[int, list[int]] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(status.read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            continue  # it ended meanwhile
        children.setdefault(parent, []).append(int(status.parent.name))
    found: set[int] = set()
    waiting = [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        found.update(below)
        waiting.extend(below)
    return found


def measure(options: Options) -> Measured:
    procs = this_host().spawn_procs(per_host={"procs": options.count(8, least=2)})
    pids = list(procs.spawn("idle", Idle).pid.call().get().values())
    time.sleep(SETTLE_S)
    usage = [memory_of(pid) for pid in pids]
    median = {
        name: statistics.median(each[name] for each in usage)
        for name in ("private", "shared", "rss")
    }
    helpers = [memory_of(pid)["private"] for pid in descendants_of(os.getpid()) - set(pids)]
    client = memory_of(os.getpid())["private"]
    procs.stop().get()
    return Measured(
        median["private"],
        "MB",
        {
            "shared_mb": median["shared"],
            "rss_mb": median["rss"],
            "client_private_mb": client,
            "helper_processes": len(helpers),
            "helpers_private_mb": sum(helpers),
        },
    )


if __name__ == "__main__":
    main(measure)
