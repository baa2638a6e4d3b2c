"""What a test left behind: processes, file descriptors, threads, shared-memory segments.

The client keeps a host agent and a spawner for as long as it lives. So a leak is what was not there
before the test and does not go away soon after it; the descriptors of the machinery that stays are
counted as well as our own.

Only what belongs to this test counts, as other programs share the machine, and other workers of
pytest are other programs: processes that descend from this one, their descriptors, the threads of
this process, and segments that one of the family has mapped, or that have its process id in their
name, as those of torch and of these tests do.
"""

from __future__ import annotations

import gc
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from monarch._proc_stat import PARENT, STARTED, STATE, stat_of

SETTLE_SECONDS = 15.0
OF_SESSION = "MONARCH_TEST_SESSION=1"
"""In the environment of daemons that tests share, and may replace: their owner sees to their
end.
"""

_COMPUTING = b"from monarch.admin.child import"
"""In the command of a child of a helper, which ends by itself when it is not asked for a while."""

_EVENTFD = "anon_inode:[eventfd]"


@dataclass(frozen=True)
class Snapshot:
    processes: dict[int, str]
    descriptors: dict[int, list[str]]
    threads: dict[int, str]
    segments: frozenset[str]
    computing: int = 0
    """Children of helpers, each with a connection to its helper, and one to the program."""


def _stat(pid: int) -> tuple[int, str] | None:
    """(parent, start time) of a process, None if it is gone."""
    fields = stat_of(pid)
    return (int(fields[PARENT]), fields[STARTED]) if fields else None


def _is_of_session(pid: int) -> bool:
    try:
        return OF_SESSION.encode() in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


def _computes(pid: int) -> bool:
    try:
        return _COMPUTING in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def descendants(root: int) -> dict[int, str]:
    """Every living or unreaped descendant of `root`, with its start time."""
    children: dict[int, list[tuple[int, str]]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (known := _stat(int(entry))) is not None:
            children.setdefault(known[0], []).append((int(entry), known[1]))
    found: dict[int, str] = {}
    todo = [root]
    while todo:
        for pid, started in children.get(todo.pop(), []):
            found[pid] = started
            todo.append(pid)
    return found


def describe(pid: int) -> str:
    try:
        command = (
            Path(f"/proc/{pid}/cmdline")
            .read_bytes()
            .replace(b"\0", b" ")
            .decode(errors="replace")
            .strip()
        )
    except OSError:
        return f"process {pid} (gone)"
    state = stat_of(pid)[STATE : STATE + 1]
    return f"process {pid} [{''.join(state)}] {command[:160]}"


def open_descriptors(pid: int) -> list[str]:
    targets = []
    try:
        for fd in os.listdir(f"/proc/{pid}/fd"):
            try:
                targets.append(os.readlink(f"/proc/{pid}/fd/{fd}"))
            except OSError:
                continue  # the descriptor of this very listing, or one just closed
    except OSError:
        return []
    return [target for target in targets if target != f"/proc/{pid}/fd"]


def _without_waiters(pid: int, targets: list[str]) -> list[str]:
    """Each thread that has waited for a connection keeps an eventfd.

    Whether it has depends on how fast the answers came.
    """
    try:
        threads = len(os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return targets
    waiters = [target for target in targets if target == _EVENTFD]
    return [target for target in targets if target != _EVENTFD] + waiters[threads:]


def os_threads() -> dict[int, str]:
    """Every thread of this process by its kernel id, whoever started it; the Python name where
    there is one.
    """
    names = {t.native_id: t.name for t in threading.enumerate() if t.native_id is not None}
    found = {}
    for entry in os.listdir("/proc/self/task"):
        tid = int(entry)
        try:
            comm = Path(f"/proc/self/task/{tid}/comm").read_text(errors="replace").strip()
        except OSError:
            continue
        found[tid] = names.get(tid, comm)
    return found


def segments(family: Iterable[int]) -> frozenset[str]:
    """The files of ``/dev/shm`` that these processes have mapped, or named after themselves."""
    ids = {str(pid) for pid in family}
    found = {name for name in os.listdir("/dev/shm") if not ids.isdisjoint(re.split(r"\D+", name))}
    for pid in ids:
        try:
            mapped = Path(f"/proc/{pid}/maps").read_text(errors="replace")
        except OSError:
            continue  # it has ended
        found.update(re.findall(r" /dev/shm/([^/\n]+)$", mapped, re.MULTILINE))
    return frozenset(found)


def take_snapshot() -> Snapshot:
    processes = {
        pid: begun for pid, begun in descendants(os.getpid()).items() if not _is_of_session(pid)
    }
    computing = set(filter(_computes, processes))
    processes = {pid: begun for pid, begun in processes.items() if pid not in computing}
    watched = [os.getpid(), *processes]
    descriptors = {pid: open_descriptors(pid) for pid in watched}
    return Snapshot(processes, descriptors, os_threads(), segments(watched), len(computing))


def leaks_since(
    before: Snapshot, *, threads_may_stay: bool = False, descriptors_may_stay: bool = False
) -> list[str]:
    """One line for each thing that is there now, was not there at `before`, and should not be."""
    now = take_snapshot()
    found = [
        f"left running: {describe(pid)}"
        for pid, started in now.processes.items()
        if before.processes.get(pid) != started
    ]
    for pid in before.descriptors:
        targets, new = (
            _without_waiters(pid, snapshot.descriptors.get(pid, [])) for snapshot in (before, now)
        )
        if len(new) > len(targets) + now.computing and not descriptors_may_stay:
            extra = Counter(new) - Counter(targets)
            whose = "this process" if pid == os.getpid() else describe(pid)
            found.append(
                f"descriptors of {whose}: {len(targets)} before, {len(new)} now, new: {dict(extra)}"
            )
    if len(now.threads) > len(before.threads) and not threads_may_stay:
        names = [name for tid, name in now.threads.items() if tid not in before.threads]
        found.append(f"threads: {len(before.threads)} before, {len(now.threads)} now, new: {names}")
    found += [f"shared-memory segment /dev/shm/{name}" for name in now.segments - before.segments]
    return found


def wait_settled(
    before: Snapshot,
    *,
    timeout: float = SETTLE_SECONDS,
    threads_may_stay: bool = False,
    descriptors_may_stay: bool = False,
) -> list[str]:
    """Waits until nothing is left over, or returns what still is after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    gc.collect()
    while True:
        found = leaks_since(
            before, threads_may_stay=threads_may_stay, descriptors_may_stay=descriptors_may_stay
        )
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.02)


@contextmanager
def nothing_left() -> Iterator[None]:
    """A block that leaves nothing behind."""
    before = take_snapshot()
    yield
    left = wait_settled(before)
    assert not left, left
