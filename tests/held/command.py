"""The command: see the docstring of the package."""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from helpers.freezer import freezer_group, frozen, why_not
from helpers.leaks import descendants

USUAL = 0.04  # seconds for which something is held, on the average
WHOLE = 0.4  # how often a whole process is held, and not one thread of it


def threads_of(pid: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/task")
    except OSError:  # it has ended
        return []


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

    def hold_at_random(group: Path, seed: int) -> None:
        choice = random.Random(seed)
        while not over.wait(choice.uniform(0, 0.1)):
            pid = choice.choice([root, *descendants(root)])
            with taking:
                if pid in taken:
                    continue
                taken.add(pid)
            threads = threads_of(pid)
            if threads and choice.random() > WHOLE:
                threads = [choice.choice(threads)]
            with frozen(threads, group):
                time.sleep(min(longest, choice.expovariate(1 / USUAL)))
            taken.discard(pid)

    with ExitStack() as groups:
        threads = [
            threading.Thread(
                target=hold_at_random, args=(groups.enter_context(freezer_group()), seed + slot)
            )
            for slot in range(slots)
        ]
        try:
            for thread in threads:
                thread.start()
            yield
        finally:
            over.set()
            for thread in threads:
                thread.join()


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
    if reason := why_not():
        parser.error(reason)
    seed = random.randrange(2**32) if given.seed is None else given.seed
    print(f"seed {seed}", file=sys.stderr)
    process = subprocess.Popen(command)
    with holding(process.pid, slots=given.slots, longest=given.longest, seed=seed):
        while True:
            with suppress(KeyboardInterrupt):  # the command has it, too
                status = process.wait()
                break
    return status if status >= 0 else 128 - status
