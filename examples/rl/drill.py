"""What goes wrong on purpose, and what came of it."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from monarch.elastic import Report as StepReport

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


@dataclass
class Event:
    what: str
    act: Callable[[], str]  # returns what it has done
    said: str = ""
    began: float = 0.0
    recovered: float = 0.0  # seconds until the next step was done


class Drill:
    """Does one thing after some steps, if the last one is repaired: with all trainers there."""

    def __init__(self, roles: Roles, plan: Plan) -> None:
        self.roles, self.plan = roles, plan
        self.trainers: list[int] = []
        self.events = [
            Event("a generator is killed", self._kill_generator),
            Event("a verifier is killed", self._kill_verifier),
            Event("the last trainer is killed", lambda: kill(self.trainers[-1])),
            Event("the first trainer is killed", lambda: kill(self.trainers[0])),
            Event("the buffer is killed", self._kill_buffer),
            Event("the disk is full", self._fill_disk),
            Event("a generator takes ten times as long", self._slow_generator),
            Event(f"the generators' host is cut off for {CUT:.0f} s", self._cut),
            Event("the disk has room again", self._free_disk),
        ]
        self.done: list[Event] = []
        self.every = self.due = max(1, plan.steps // (len(self.events) + 5))

    def after(self, report: StepReport) -> None:
        """A step is done."""
        value: Report = report.value
        self.trainers = value.pids
        if self.done and not self.done[-1].recovered:
            self.done[-1].recovered = time.perf_counter() - self.done[-1].began
        are_all_there = len(self.trainers) == self.plan.trainers
        if report.step >= self.due and are_all_there and len(self.done) < len(self.events):
            self.due = report.step + self.every
            event = self.events[len(self.done)]
            event.said, event.began = event.act(), time.perf_counter()
            self.done.append(event)

    def report(self, reports: dict[int, Report]) -> None:
        """Print what was done, and check what must hold."""
        print("\ndrill")
        for event in self.done:
            print(f"  {event.what}: {event.said}; next step after {event.recovered:.2f} s")
        used = [number for step in sorted(reports) for number in reports[step].used]
        print(f"  each {self.plan.malice}th checker hung, crashed, or wanted all memory")
        assert sorted(reports) == list(range(self.plan.steps)), "steps are missing"
        assert len(used) == len(set(used)), "a group was used twice"
        assert self.done == self.events, f"not done: {self.events[len(self.done) :]}"
        print(f"  all {len(reports)} steps done, {len(used)} groups used, none of them twice")

    def _kill_generator(self) -> str:
        return kill(self.roles.generators.pid.call_one().get())

    def _kill_verifier(self) -> str:
        return kill(self.roles.verifiers.pid.call_one().get())

    def _kill_buffer(self) -> str:
        items = self.roles.buffer.statistics().get().items
        [store] = self.roles.store.statistics().get().values()
        return f"{kill(store.pid)}, with {items} groups"

    def _slow_generator(self) -> str:
        self.roles.generators.slow_down.call_one(10.0).get()
        return "to the end"

    def _cut(self) -> str:
        pids = list(self.roles.generators.pid.call().get().values())
        # the agent of their host, which answers for it, and its procs
        stopped = [*{parent_of(pid) for pid in pids}, *pids]
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)

        def mend() -> None:
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)

        threading.Timer(CUT, mend).start()
        return f"{len(stopped)} processes stand still"

    def _fill_disk(self) -> str:
        folder = self.plan.checkpoint
        if folder is None or not os.path.ismount(folder):
            return "left out, as no file system can be mounted here"
        try:
            with (folder / "filling").open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(1 << 12))
        except OSError as error:
            return str(error)

    def _free_disk(self) -> str:
        if self.plan.checkpoint is not None:
            (self.plan.checkpoint / "filling").unlink(missing_ok=True)
        return "the next checkpoint is whole"


def kill(pid: int) -> str:
    os.kill(pid, signal.SIGKILL)
    return f"process {pid}"


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
