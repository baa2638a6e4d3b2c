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

from .roles import Plan, Roles
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


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


@dataclass
class Event:
    what: str
    act: Callable[[], str]  # returns what it has done
    said: str = ""
    began: float = 0.0
    recovered: float = 0.0  # seconds until the next step was done


class Drill:
    """Does one thing after each sixth step, or so."""

    def __init__(self, roles: Roles, plan: Plan) -> None:
        self.roles, self.plan = roles, plan
        self.trainers: list[int] = []
        self.filling: Path | None = None
        self.pending: Event | None = None
        self.events = [
            Event("a generator is killed", self._kill_generator),
            Event("a verifier is killed", self._kill_verifier),
            Event("trainer 1 is killed", lambda: self._kill_trainer(1)),
            Event("trainer 0 is killed", lambda: self._kill_trainer(0)),
            Event("the buffer is killed", self._kill_buffer),
            Event("the board is killed", self._kill_board),
            Event("the disk is full", self._fill_disk),
            Event("a generator takes ten times as long", self._slow_generator),
            Event(f"the generators' host is cut off for {CUT:.0f} s", self._cut),
            Event("the disk has room again", self._free_disk),
        ]
        every = max(1, plan.train.steps // (len(self.events) + 1))
        self.due = {every * (number + 1): event for number, event in enumerate(self.events)}

    def after(self, report: StepReport) -> None:
        """A step is done."""
        value: Report = report.value
        self.trainers = value.pids
        if self.pending is not None:
            self.pending.recovered = time.perf_counter() - self.pending.began
            self.pending = None
        if (event := self.due.pop(report.step, None)) is not None:
            event.said, event.began = event.act(), time.perf_counter()
            self.pending = event

    def report(self, reports: dict[int, Report]) -> None:
        """Print what was done, and check what must hold."""
        print("\ndrill")
        for event in self.events:
            print(f"  {event.what}: {event.said}; next step after {event.recovered:.2f} s")
        used = [number for step in sorted(reports) for number in reports[step].used]
        print(f"  each {self.plan.rollout.malice}th checker hung, crashed, or wanted all memory")
        assert sorted(reports) == list(range(self.plan.train.steps)), "steps are missing"
        assert len(used) == len(set(used)), "a group was used twice"
        assert not self.due, f"not done: {[event.what for event in self.due.values()]}"
        print(f"  all {len(reports)} steps done, {len(used)} groups used, none of them twice")

    def _kill_generator(self) -> str:
        pid = next(iter(self.roles.generators.pid.call().get().values()))
        kill(pid)
        return f"process {pid}"

    def _kill_verifier(self) -> str:
        pid = self.roles.verifiers.pid.options(retries=3).call_one().get()
        kill(pid)
        return f"process {pid}"

    def _kill_trainer(self, rank: int) -> str:
        kill(self.trainers[rank])
        return f"process {self.trainers[rank]}"

    def _kill_buffer(self) -> str:
        pid = self.roles.buffer_pid.pid.call_one().get()
        items = self.roles.buffer.statistics().get().items
        kill(pid)
        self.roles.rollouts.buffer_was_lost.call_one().get()
        return f"process {pid}, with {items} groups"

    def _kill_board(self) -> str:
        pid = self.roles.board.pid.call_one().get()
        kill(pid)
        return f"process {pid}"

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
        folder = self.plan.train.checkpoint
        if folder is None or not os.path.ismount(folder):
            return "left out, as no file system can be mounted here"
        self.filling = folder / "filling"
        try:
            with self.filling.open("wb") as file:
                while True:
                    file.write(bytes(1 << 12))
                    file.flush()
        except OSError as error:
            return str(error)

    def _free_disk(self) -> str:
        if self.filling is None:
            return "it always had"
        self.filling.unlink()
        return "the next checkpoint is whole"


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
