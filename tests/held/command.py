"""Runs a command while threads and processes below it are held at random, each for a moment: races
show that need one of them to be late, as on a machine that is busy with other things.

    python -m tests.held .venv/bin/pytest -n 4 --dist loadfile tests/faults
    python -m tests.held --slots 2 --longest 1 python program.py

Unlike by SIGSTOP, nobody is told: the freezer of control groups (version 1, as root) does it. Tests
that count wake-ups or calls fail under it (`test_idle_procs`, `test_slow_path`, the idle process of
`test_black_boxes`), as may a bound of time that is tighter than it needs to be.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from monarch._proc_stat import PARENT, stat_of

FREEZER = Path("/sys/fs/cgroup/freezer")
USUAL = 0.04  # seconds for which something is held, on the average
WHOLE = 0.4  # how often a whole process is held, and not one thread of it


def below(root: int) -> list[int]:
    """The processes that descend from one, which is not among them."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (fields := stat_of(int(entry))):
            children.setdefault(int(fields[PARENT]), []).append(int(entry))
    found = [root]
    for pid in found:  # which grows
        found += children.get(pid, ())
    return found[1:]


def threads_of(pid: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/task")
    except OSError:  # it has ended
        return []


def hold(threads: Sequence[str], group: Path, seconds: float) -> None:
    """Hold threads, by their numbers; those that have ended are no matter."""
    try:
        for thread in threads:
            with suppress(OSError):
                (group / "tasks").write_text(thread)
        (group / "freezer.state").write_text("FROZEN")
        time.sleep(seconds)
    finally:
        (group / "freezer.state").write_text("THAWED")
        # and what they have forked
        while left := (group / "tasks").read_text().split():
            for thread in left:
                with suppress(OSError):
                    (group.parent / "tasks").write_text(thread)
            time.sleep(0.001)


@contextmanager
def holding(root: int, *, slots: int, longest: float, seed: int) -> Iterator[None]:
    """A block in which what is below a process is held at random.

    Args:
        root: The process.
        slots: How many things may be held at a time.
        longest: Seconds for which one is, at most.
        seed: Of the choice, which also depends on what there is at the time.
    """
    over = threading.Event()
    taken: set[int] = set()  # a thread that is moved to another group goes on
    taking = threading.Lock()
    groups = [FREEZER / f"monarch-held-{os.getpid()}-{slot}" for slot in range(slots)]

    def hold_at_random(group: Path, seed: int) -> None:
        choice = random.Random(seed)
        while not over.wait(choice.uniform(0, 0.1)):
            pid = choice.choice([root, *below(root)])
            with taking:
                if pid in taken:
                    continue
                taken.add(pid)
            threads = threads_of(pid)
            if threads and choice.random() > WHOLE:
                threads = [choice.choice(threads)]
            hold(threads, group, min(longest, choice.expovariate(1 / USUAL)))
            taken.discard(pid)

    for group in groups:
        group.mkdir()
    threads = [
        threading.Thread(target=hold_at_random, args=(group, seed + slot))
        for slot, group in enumerate(groups)
    ]
    try:
        for thread in threads:
            thread.start()
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()
        for group in groups:
            group.rmdir()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        "python -m tests.held",
        description="Runs a command while what is below it is held at random.",
    )
    parser.add_argument("--slots", type=int, default=4, help="held at a time (default: 4)")
    parser.add_argument(
        "--longest", type=float, default=0.3, help="seconds that something is held (default: 0.3)"
    )
    parser.add_argument("--seed", type=int, default=None, help="of what is held")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    given = parser.parse_args(arguments)
    command = given.command[given.command[:1] == ["--"] :]
    if not command:
        parser.error("what command?")
    if not os.access(FREEZER / "tasks", os.W_OK):
        parser.error(f"needs the freezer of control groups, version 1, in {FREEZER}, and root")
    seed = random.randrange(2**32) if given.seed is None else given.seed
    print(f"seed {seed}", file=sys.stderr)
    process = subprocess.Popen(command)
    with holding(process.pid, slots=given.slots, longest=given.longest, seed=seed):
        while True:
            with suppress(KeyboardInterrupt):  # the command has it, too
                status = process.wait()
                break
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main())
