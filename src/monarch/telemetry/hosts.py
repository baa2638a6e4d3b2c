"""The rows of a host agent: its host, and the processes on it, ended ones included.

It reads ``/proc``, and reads it when it is asked. What the kernel does not tell a process of its
host is missing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from .._core.plane import SYSTEM
from .._guards.surroundings import read
from .._proc_stat import RESIDENT, STATE, SYSTEM_TICKS, THREADS, USER_TICKS, VIRTUAL, stat_of
from . import dead, gpus
from .host_history import Figures, HostHistory, begin
from .ids import actor_id, host_id, mesh_id, proc_id
from .processes import status_events
from .registry import AGENT, Asked, produces
from .rows import shape_json

Row = tuple[Any, ...]


@produces("actor_status_events", AGENT)
def _status_events(asked: Asked) -> Iterator[Row]:
    yield from status_events(asked)
    yield from dead.status_events(asked)


_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_LOCAL = ("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "overlay", "tmpfs")
_STATES = {
    "T": "stopped", "t": "traced", "Z": "ended", "D": "disk", "R": "running", "S": "sleeping",
}  # fmt: skip


@produces("hosts", AGENT)
def _hosts(asked: Asked) -> Iterator[Row]:
    description = asked.description
    _begun(asked)  # a reader of hosts will want earlier values, too
    memory, disk, booted = _memory(), _disk(), _stat().get("btime")
    now = _figures(disk)
    yield (
        host_id(description.agent.host), asked.now_us, description.agent.host, description.machine, description.pid,
        os.cpu_count() or 1, now.load, memory.get("MemTotal"), memory.get("MemAvailable"), now.swap, now.cpu, now.received, now.sent,
        1_000_000 * int(booted[0]) if booted else None, *disk,
    )  # fmt: skip


@produces("host_history", AGENT)
def _history(asked: Asked) -> Iterator[Row]:
    host = host_id(asked.description.agent.host)
    for at, *figures in _begun(asked).rows():
        yield at, host, *figures


def _begun(asked: Asked) -> HostHistory:
    return begin(asked, _figures, lambda: gpus.figures if gpus.present() else None)


@produces("meshes", AGENT)
def _host_meshes(asked: Asked) -> Iterator[Row]:
    description = asked.description
    host, shape = description.agent.host, shape_json({"hosts": 1})
    yield host_id(host), asked.now_us, "Host", description.machine, host, shape, None, None, None


@produces("actors", AGENT)
def _agents(asked: Asked) -> Iterator[Row]:
    """The agents that run hosts and procs, which are actors to Monarch 0.7."""
    description = asked.description
    agent, machine = description.agent, description.machine
    yield (
        actor_id(agent, SYSTEM), asked.now_us, host_id(agent.host), 0, f"<host {machine}>", machine, "host_agent", None,
        proc_id(agent), description.pid, "Idle", None, 0, 0, 0, None,
    )  # fmt: skip
    for proc in description.procs:
        label = f"{proc.mesh}[{proc.rank}]"
        status = ("Stopped" if proc.end.is_stop else "Failed") if proc.end is not None else "Idle"
        yield (
            actor_id(proc.address, SYSTEM), asked.now_us, mesh_id(proc.mesh_id), proc.rank, f"<proc {label}>", label, "proc_agent",
            None, proc_id(proc.address), proc.pid, status, None, 0, 0, 0, None,
        )  # fmt: skip
    yield from dead.actors(asked)


@produces("procs", AGENT)
def _procs(asked: Asked) -> Iterator[Row]:
    description = asked.description
    root = description.root
    if root.is_client:
        yield (
            proc_id(root), asked.now_us, mesh_id(root.mesh), "client", 0, 1, "{}",
            host_id(description.agent.host), description.root_pid, "up", None, None, None, *_process(description.root_pid),
        )  # fmt: skip
    for proc in description.procs:
        end = proc.end
        ended = (
            ("ended", end.reason, end.exit_code, end.signal)
            if end is not None
            else (proc.state, None, None, None)
        )
        seen = _process(proc.pid) if end is None and proc.pid else (None,) * 6
        yield (
            proc_id(proc.address), asked.now_us, mesh_id(proc.mesh_id), proc.mesh, proc.rank, proc.size,
            json.dumps(proc.coordinates), host_id(description.agent.host), proc.pid, *ended, *seen,
        )  # fmt: skip


def _process(pid: int) -> Row:
    """CPU seconds, resident and virtual bytes, threads, descriptors, state.

    It is empty for a process that has just ended.
    """
    stat = stat_of(pid)
    try:
        descriptors = len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        stat = []
    if not stat:
        return (None,) * 6
    cpu = (int(stat[USER_TICKS]) + int(stat[SYSTEM_TICKS])) / _TICK
    rss, state = int(stat[RESIDENT]) * _PAGE, stat[STATE]
    return cpu, rss, int(stat[VIRTUAL]), int(stat[THREADS]), descriptors, _STATES.get(state, state)


def _figures(disk: tuple[str | None, int | None, int | None] | None = None) -> Figures:
    memory, load, cpu = _memory(), None, None
    with suppress(OSError):
        load = os.getloadavg()[0]
    if len(times := [*map(int, _stat().get("cpu", ())[:8])]) > 4:
        cpu = (sum(times) - times[3] - times[4]) / _TICK
    used, swap = _used(memory, "MemTotal", "MemAvailable"), _used(memory, "SwapTotal", "SwapFree")
    _, size, free = disk or _disk()
    full = 100 * (size - free) / size if size and free is not None else None
    return Figures(load, used, swap, cpu, *_network(), full)


def _used(memory: dict[str, int], all_of_it: str, free: str) -> int | None:
    total, left = memory.get(all_of_it), memory.get(free)
    return total - left if total is not None and left is not None else None


def _disk() -> tuple[str | None, int | None, int | None]:
    """The fullest of the disks below this folder, TMPDIR and /dev/shm: where, bytes, available ones.

    Local ones alone: a network file system that is gone would hold up the agent for ever.
    """
    found = []
    mounts = read("/proc/self/mounts").splitlines()
    kinds = {where: kind for _, where, kind, *_ in map(str.split, mounts)}
    with suppress(OSError):
        for path in map(Path, (os.getcwd(), os.environ.get("TMPDIR", "/tmp"), "/dev/shm")):
            where = next((each for each in map(str, (path, *path.parents)) if each in kinds), "")
            if kinds.get(where) in _LOCAL and (disk := os.statvfs(where)).f_blocks:
                used = disk.f_blocks - disk.f_bfree  # as `df` counts: less what root alone may use
                size, free = used + disk.f_bavail, disk.f_bavail
                found.append((where, size * disk.f_frsize, free * disk.f_frsize))
    return min(found, key=lambda each: each[2] / each[1], default=(None, None, None))


def _stat() -> dict[str, list[str]]:
    """The numbers of ``/proc/stat`` by the names of its lines; none where it can't be read."""
    return {name: numbers for name, *numbers in map(str.split, read("/proc/stat").splitlines())}


def _memory() -> dict[str, int]:
    """The bytes that ``/proc/meminfo`` names."""
    pairs = map(str.split, read("/proc/meminfo").splitlines())
    return {words[0].rstrip(":"): int(words[1]) * 1024 for words in pairs if len(words) == 3}


def _network() -> tuple[int | None, int | None]:
    """Bytes that all devices but the loopback have received, and sent."""
    lines = [line.partition(":") for line in read("/proc/net/dev").splitlines()[2:]]
    if not lines:
        return None, None
    numbers = [list(map(int, rest.split())) for name, _, rest in lines if name.strip() != "lo"]
    return sum(each[0] for each in numbers), sum(each[8] for each in numbers)
