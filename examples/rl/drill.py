"""What goes wrong on purpose, and what came of it."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from .plan import Plan
from .roles import Roles
from .trainer import Report

CUT = 2.0  # seconds that a host is cut off for


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system of 32 MiB, if one may be mounted here; otherwise the folder itself."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=32m", "none", str(folder)]
    is_mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    try:
        yield folder
    finally:
        if is_mounted:
            subprocess.run(["umount", "-l", str(folder)], check=True)


class Drill:
    """Does one thing after some steps, if the last one is repaired: with all trainers there."""

    def __init__(self, roles: Roles, plan: Plan, disk: Path) -> None:
        self.roles, self.plan, self.filling = roles, plan, disk / "filling"
        self.trainers: list[int] = []  # their process ids
        [store] = roles.store.statistics().get().values()
        kill = partial(send, signal.SIGKILL)
        self.left: list[tuple[str, Callable[[], object]]] = [
            ("a generator is killed", lambda: kill(roles.generators.pid.call_one().get())),
            ("a verifier is killed", lambda: kill(roles.verifiers.pid.call_one().get())),
            ("the last trainer is killed", lambda: kill(self.trainers[-1])),
            ("the first trainer is killed", lambda: kill(self.trainers[0])),
            ("the buffer is killed", lambda: kill(store.pid)),
            ("the disk is full", self._fill_disk),
            (
                "a generator is ten times as slow",
                lambda: roles.generators.slow_down.call_one(10.0).get(),
            ),
            (f"the generators' host is cut off for {CUT:.0f} s", self._cut),
            ("the disk has room again", lambda: self.filling.unlink(missing_ok=True)),
        ]
        self.told: list[str] = []
        self.began: float | None = None  # what was done last, and no step since
        self.every = self.due = max(1, plan.steps // (len(self.left) + 5))

    def after(self, step: int, report: Report) -> None:
        """A step is done."""
        self.trainers = report.pids
        if self.began is not None:
            self.told[-1] += f"; next step after {time.perf_counter() - self.began:.2f} s"
            self.began = None
        if self.left and step >= self.due and len(self.trainers) == self.plan.trainers:
            self.due = step + self.every
            what, act = self.left.pop(0)
            self.told.append(f"{what}: {act() or 'done'}")
            self.began = time.perf_counter()

    def report(self, reports: dict[int, Report]) -> None:
        """Print what was done, and check what must hold."""
        print("\ndrill", *self.told, sep="\n  ")
        used = [number for step in sorted(reports) for number in reports[step].used]
        print(f"  each {self.plan.malice}th checker hung, crashed, or wanted all memory")
        assert sorted(reports) == list(range(self.plan.steps)), "steps are missing"
        assert len(used) == len(set(used)), "a group was used twice"
        assert not self.left, f"not done: {self.left}"
        print(f"  all {len(reports)} steps done, {len(used)} groups used, none of them twice")

    def _cut(self) -> str:
        pids = list(self.roles.generators.pid.call().get().values())
        # the agent of their host, which answers for it, and its procs
        stopped = [*{parent_of(pid) for pid in pids}, *pids]
        threading.Timer(CUT, send, (signal.SIGCONT, *stopped)).start()
        return send(signal.SIGSTOP, *stopped)

    def _fill_disk(self) -> str:
        if not os.path.ismount(self.filling.parent):
            return "left out, as no file system can be mounted here"
        with suppress(OSError):
            self.filling.write_bytes(bytes(1 << 25))
        return f"{self.filling.stat().st_size} bytes had room"


def send(what: signal.Signals, *pids: int) -> str:
    for pid in pids:
        with suppress(ProcessLookupError):  # it has ended meanwhile, and the others go on
            os.kill(pid, what)
    return f"{what.name} to {', '.join(map(str, pids))}"


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
