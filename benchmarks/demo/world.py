"""The simulated world: members, progress, and the place of each rank at a time.

All but what was stopped or started again is computed from the time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from monarch._core.plane import Failure, HostDescription, HostedProc, ProcAddress
from monarch._core.supervision.failure import exit_reason
from monarch._namedtuple import NamedTuple
from monarch._oom_killer import at_limit
from monarch.telemetry.ids import actor_id, host_id, mesh_id, proc_id

from .faults import FAULTS, STACKS, STAGES, Frames

STEP = 1.25
"""Seconds that a step takes."""

TOTAL = 40_000
"""Steps that the training is to have."""

SAMPLES = 48
"""Of a rank in a step."""

TRAINER, LOADER, METRICS = "trainer", "loader", "metrics"
JOB_MESH = "trainers"
"""The hosts of the job, by their name there."""

MOST_RANKS = 20_000
GPU_MEMORY, GPU_USED = 80 << 30, 71 << 30
"""Bytes of a GPU, and those that a rank uses."""

_RESTART = 3.0  # seconds for which processes that start again are not there yet
_GIB = 1 << 30
_CLIENT_UID = 2
_ENDS = {
    "dead-rank": Failure(
        "killed",
        f"{exit_reason(None, 9)}; {at_limit('/sys/fs/cgroup/job_9', 220 * _GIB)}",
        signal=9,
    ),
    "lost-rank": Failure("exited", exit_reason(3, None), exit_code=3),
}


class Mesh(NamedTuple):
    """A mesh of procs, with an actor on each.

    Attributes:
        uid: Of the procs.
        actor: Name of the actors.
        actor_uid: Their id.
        restarts: Whether procs that end start again.
    """

    name: str
    uid: str
    actor: str
    actor_uid: int
    class_name: str
    endpoint: str
    extent: dict[str, int]
    restarts: bool

    @property
    def size(self) -> int:
        """Ranks of it."""
        return math.prod(self.extent.values())


class Proc:
    """A simulated process with its actor.

    Its rows in tables are the same in each answer, so their ids are computed once.
    """

    __slots__ = ("actor_id", "address", "coordinates", "host", "id", "mesh", "pid", "rank")

    def __init__(
        self, mesh: Mesh, rank: int, coordinates: dict[str, int], host: DemoHost, pid: int
    ) -> None:
        self.mesh = mesh
        self.rank = rank
        self.coordinates = coordinates
        self.host = host
        self.pid = pid
        self.address = ProcAddress(host.name, f"{mesh.uid}.{rank}")
        self.id = proc_id(self.address)
        self.actor_id = actor_id(self.address, mesh.actor_uid)

    @property
    def label(self) -> str:
        """Mesh and rank, such as ``trainers[3]``."""
        return f"{self.mesh.name}[{self.rank}]"


class DemoHost:
    """A simulated machine.

    Args:
        name: Of the host, by which others reach it.
        hostname: Of the machine.
        place: Of the host in its job, such as ``trainers[3]``; empty if it is none of a job.

    Attributes:
        machine: What people call it, as agents of jobs do.
    """

    __slots__ = ("agent", "hostname", "id", "machine", "name", "place", "procs")

    def __init__(self, name: str, hostname: str, place: str = "") -> None:
        self.name = name
        self.hostname = hostname
        self.place = place
        self.machine = f"{place} on {hostname}" if place else hostname
        self.agent = ProcAddress(name, "").agent
        self.id = host_id(name)
        self.procs: list[Proc] = []


class DemoWorld:
    """The simulated program at any time.

    Args:
        ranks: Trainers.
        fault: One of `FAULTS`.
        began: When the simulation began, in seconds since 1970.
        after: Seconds after which the fault begins; None: it has been there for a while.
        lasted: Seconds for which the training has gone on when the simulation begins.

    Raises:
        ValueError: There is no such fault, or it takes more ranks, or they are too many.
    """

    def __init__(
        self,
        ranks: int,
        fault: str,
        began: float,
        after: float | None = None,
        lasted: float = 3600.0,
    ) -> None:
        if fault not in FAULTS:
            raise ValueError(f"there is no fault {fault!r}; there are {', '.join(FAULTS)}")
        self.fault = FAULTS[fault]
        self.fault_name = fault
        if not self.fault.wants <= ranks <= MOST_RANKS:
            raise ValueError(
                f"{fault} takes from {self.fault.wants} to {MOST_RANKS:,} ranks, not {ranks}"
            )
        self.began = began
        self.since = began - lasted
        at = began - self.fault.age if after is None else began + after
        self.hung_step = round((at - self.since) / STEP)
        self.fault_at = self.since + self.hung_step * STEP
        self.restarted: dict[str, float] = {}
        self.stopped: dict[str, str] = {}  # by id of the mesh, and why
        # of steps that are over, by whether they are of the odd rank
        self._lengths: dict[tuple[int, bool], float] = {}
        self._build(ranks)

    def _build(self, ranks: int) -> None:
        gpus = max(each for each in range(1, 9) if ranks % each == 0)
        machines = ranks // gpus
        self.trainers = Mesh(
            "trainers", "t5r8a1n", TRAINER, 0x7261_696E, "train.Trainer", "step", {"hosts": machines, "gpus": gpus}, True
        )  # fmt: skip
        self.loaders = Mesh(
            "loaders", "d0a7a10", LOADER, 0x6461_7461, "data.Loader", "next", {"hosts": machines}, True
        )  # fmt: skip
        self.metrics = Mesh(
            "metrics", "m37r1c5", METRICS, 0x6D65_7472, "metrics.Metrics", "log", {"hosts": 1}, False
        )  # fmt: skip
        self.meshes: tuple[Mesh, ...] = (self.trainers, self.loaders, self.metrics)
        head = DemoHost("head", "head")
        self.hosts = [head]
        self.client = ProcAddress(head.name, "client-d3m0")
        self.client_actor = actor_id(self.client, _CLIENT_UID)
        head.procs.append(Proc(self.metrics, 0, {"hosts": 0}, head, 3990))
        for number in range(machines):
            name = f"tcp://10.0.{number // 250}.{number % 250 + 1}:26600"
            host = DemoHost(name, f"h{number}", f"{JOB_MESH}[{number}]")
            pid = 4000 + 97 * (number % 20)
            for gpu in range(gpus):
                rank, point = number * gpus + gpu, {"hosts": number, "gpus": gpu}
                host.procs.append(Proc(self.trainers, rank, point, host, pid + 3 * gpu))
            host.procs.append(Proc(self.loaders, number, {"hosts": number}, host, pid + 40))
            self.hosts.append(host)
        odd = ranks * 417 // 1000
        self.odd_host = self.hosts[1 + odd // gpus]
        is_head = self.fault_name == "full-mailbox"
        self.odd = head.procs[0] if is_head else self.odd_host.procs[odd % gpus]
        self.odd_loader = self.odd_host.procs[-1]
        if self.is_pending:
            self.hosts, self.meshes = [head], ()
            head.procs.clear()
        self.job = f"SlurmJob({{'{JOB_MESH}': {machines}}}, Slurm job 9)"
        self.by_agent = {host.agent: host for host in self.hosts}

    @property
    def is_pending(self) -> bool:
        """True where the program waits for its first hosts."""
        return self.fault_name == "pending-job"

    def all_trainers(self) -> Iterator[Proc]:
        """Yield the procs that train, by rank."""
        return (each for host in self.hosts for each in host.procs if each.mesh is self.trainers)

    # the training

    def lasts(self, now: float) -> bool:
        """Return whether the fault persists: its subject has not been started again."""
        until = self.restarted.get(self.odd.mesh.uid, now + 1)
        return self.fault_name != "none" and self.fault_at <= now < until

    def steps(self, now: float, odd: bool = False) -> float:
        """Return how many steps are done.

        Args:
            now: Time, in seconds since 1970.
            odd: Of the odd rank.
        """
        if now <= self.fault_at:
            return (now - self.since) / STEP
        until = min(now, self.restarted.get(self.odd.mesh.uid, now))
        speed = self._speed(odd)
        return self.hung_step + (speed * max(0.0, until - self.fault_at) + now - until) / STEP

    def begin_of(self, step: int, odd: bool = False) -> float:
        """The begin of a step, the inverse of `steps`; infinite for one that is never reached."""
        if step <= self.hung_step:
            return self.since + step * STEP
        speed = self._speed(odd)
        restarted = self.restarted.get(self.odd.mesh.uid)
        if restarted is not None and (until := self.steps(restarted, odd)) < step:
            return restarted + (step - until) * STEP
        return self.fault_at + (step - self.hung_step) * STEP / speed if speed else float("inf")

    def _speed(self, odd: bool) -> float:
        speed = self.fault.odd_speed if odd else None
        return self.fault.speed if speed is None else speed

    def took(self, proc: Proc, step: int) -> float:
        """Seconds that a step takes a rank that is over: neighbours differ."""
        odd = self.is_odd(proc)
        if (length := self._lengths.get((step, odd))) is None:
            length = self.begin_of(step + 1, odd) - self.begin_of(step, odd)
            self._lengths[step, odd] = length
        return length * _NOISE[(proc.rank * 31 + step) % len(_NOISE)]

    def is_odd(self, proc: Proc) -> bool:
        """Return whether the fault is about this process."""
        return proc is self.odd

    # processes

    def is_silent(self, host: DemoHost, now: float) -> bool:
        """Return whether the process does not answer."""
        return self.fault_name == "silent-host" and host is self.odd_host and self.lasts(now)

    def incarnation(self, proc: Proc) -> int:
        """How often it has been started again."""
        return int(proc.mesh.uid in self.restarted)

    def pid(self, proc: Proc) -> int:
        """The pid of its process."""
        return proc.pid + 10_000 * self.incarnation(proc)

    def end(self, proc: Proc, now: float) -> Failure | None:
        """How it has ended, if it has."""
        if proc.mesh.uid in self.stopped:
            return Failure("stopped", self.stopped[proc.mesh.uid], proc=proc.label, pid=proc.pid)
        if self.fault_name not in _ENDS or not self.is_odd(proc) or not self.lasts(now):
            return None
        return _ENDS[self.fault_name]._replace(
            proc=proc.label, pid=proc.pid, host=proc.host.machine, mesh=proc.mesh.name, mesh_uid=proc.mesh.uid, rank=proc.rank
        )  # fmt: skip

    def lives(self, proc: Proc, now: float) -> bool:
        """Return whether the process exists."""
        restarted = self.restarted.get(proc.mesh.uid, 0.0)
        return self.end(proc, now) is None and now >= restarted + _RESTART

    def describe(self, host: DemoHost, now: float, ended: bool) -> HostDescription:
        """Return an agent's description of its host."""
        is_head = host is self.hosts[0]
        return HostDescription(
            host.agent, 2101, self.client if is_head else host.agent, 2100 if is_head else 2101, host.machine,
            [each.name for each in self.hosts[1:]] if is_head else [], list(self._hosted(host, now, ended)),
            hostname=host.hostname, names={each.name: each.place for each in self.hosts[1:]} if is_head else {},
        )  # fmt: skip

    def _hosted(self, host: DemoHost, now: float, ended: bool) -> Iterator[HostedProc]:
        for proc in host.procs:
            end = self.end(proc, now)
            if proc.mesh.uid in self.stopped or (end is not None and not ended):
                continue
            starts = end is None and not self.lives(proc, now)
            yield HostedProc(
                proc.address, 0 if starts else self.pid(proc), proc.mesh.name, proc.rank, proc.mesh.size, proc.coordinates,
                proc.mesh.uid, "starting" if starts else "up", self.client, end,
            )  # fmt: skip

    # what a rank does

    def handled(self, proc: Proc, now: float) -> int:
        """Messages that its actor has handled."""
        if proc.mesh is self.trainers:
            return int(self.steps(now, self.is_odd(proc)))
        per_step = len(self.odd_host.procs) - 1 if proc.mesh is self.loaders else self.trainers.size
        return int(self.steps(now)) * per_step

    def queue(self, proc: Proc, now: float) -> int:
        """Messages that wait for its actor."""
        if self.fault_name == "full-mailbox" and self.is_odd(proc) and self.lasts(now):
            return 1000
        return 0

    def busy(self, proc: Proc, now: float) -> float:
        """Seconds that it has computed."""
        part = {TRAINER: 0.92, LOADER: 0.4, METRICS: 0.02}[proc.mesh.actor]
        part *= 0.98 + 0.04 * noise(proc.rank, 1)
        done = part * STEP * self.steps(now, self.is_odd(proc))
        spins = self.fault_name == "gil" and self.is_odd(proc) and self.lasts(now)
        return done + (now - self.fault_at if spins else 0.0)

    def memory(self, proc: Proc, now: float) -> int:
        """Bytes of its process."""
        gib = {TRAINER: 38.0, LOADER: 6.0, METRICS: 0.4}[proc.mesh.actor]
        gib *= 0.97 + 0.06 * noise(proc.rank, 2)
        if self.fault_name == "dead-rank" and self.is_odd(proc):
            gib += 20.0 * min(1.0, max(0.0, (now - self.fault_at + 120) / 120))
        return int(gib * _GIB)

    def gpu_busy(self, proc: Proc, now: float) -> float:
        """How busy its GPU is, in per cent: a collective that waits spins."""
        if self.lasts(now) and not self.fault.speed:
            return 0.0 if self.is_odd(proc) else 100.0
        return 88.0 + 8.0 * noise(proc.rank, int(now))

    def gpu_memory(self, proc: Proc, now: float) -> int:
        """Bytes of its GPU that are in use."""
        return (GPU_USED if self.lives(proc, now) else 0) + (1 << 28)

    def does(self, proc: Proc, now: float) -> tuple[Frames, float]:
        """The place of the rank, and since when it handles this call.

        There are no frames where it waits for a message.
        """
        lasts, odd = self.lasts(now), self.is_odd(proc)
        done = self.steps(now, odd)
        since = self.begin_of(int(done), odd)
        if proc.mesh is self.metrics:
            return (self.fault.odd, self.fault_at) if lasts and odd else ((), 0.0)
        if lasts and self.fault.speed < 1:
            if proc.mesh is self.loaders:
                deadlocked = self.fault_name == "deadlock" and proc is self.odd_loader
                return (STACKS["asks_trainer"], self.fault_at) if deadlocked else ((), 0.0)
            if odd and self.fault_name == "deadlock":
                return STACKS["asks_loader"], since
            if odd:
                return self.fault.odd or STACKS["backward"], since
            return self.fault.others, since
        part = (done % 1 + 0.08 * noise(proc.rank, int(done))) % 1
        if proc.mesh is self.loaders:
            return (STACKS["prefetches"], now - 0.4) if part < 0.5 else ((), 0.0)
        return next(frames for until, frames in STAGES if part <= until), since

    def find(self, mesh: str) -> Mesh | None:
        """A mesh of procs by its id, unless it was stopped."""
        found = (each for each in self.meshes if each.uid == mesh and mesh not in self.stopped)
        return next(found, None)

    def mesh_number(self, mesh: Mesh) -> int:
        """The number of a proc mesh in tables."""
        return mesh_id(mesh.uid)


def noise(rank: int, step: int, what: int = 0) -> float:
    """A number from 0 to 1 that looks like chance, and is the same each time."""
    mixed = (rank * 0x9E3779B1 ^ step * 0x85EBCA77 ^ what * 0xC2B2AE3D) & 0xFFFFFFFF
    mixed = (mixed ^ mixed >> 15) * 0x2C1B3C6D & 0xFFFFFFFF
    return (mixed ^ mixed >> 13) / 2**32


_NOISE = tuple(0.99 + 0.02 * noise(0, number, 3) for number in range(4096))
"""Factors of steps: made once, as ten thousand ranks tell of thirty steps each."""
