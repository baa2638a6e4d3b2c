"""`Simulation`: hosts, a client, a network and a clock, in one process and one thread."""

from __future__ import annotations

import gc
import os
import random
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from .. import config
from .._core.routing.cast import Entry
from .._core.wire.address import ProcAddress
from .._core.wire.link_limits import Limits
from .client import Cast, Client
from .clock import Clock
from .network import Network, Partition
from .report import Report
from .worker import Costs, Setting, SimulatedHost

_LONGEST = 600.0  # seconds of simulated time for which `run` waits for a cast


class Unanswered(RuntimeError):
    """A cast was not answered in time, or there was nothing more that could happen."""


class Simulation:
    """A cluster that exists only on paper, but decides as a real one does.

    One client attaches to all hosts, as the first thing that it does; calls go to ranks
    ``host * procs_per_host + index``.

    Args:
        seed: Of all that happens by chance.
        hosts: Number of workers.
        procs_per_host: Processes on each.
        delay: Shortest and longest time that bytes take from host to host, in seconds.
        loss: Probability that bytes get lost on the way, and are sent again after 0.2 s, as TCP
            does.
        compute: Shortest and longest time that a process takes for its answer, in seconds.
        answer_bytes: Size of each answer.
        fanout: Most hosts that one passes a cast on to; by default the knob `max_cast_fanout`.
        costs: Time for which gateways are busy; by default they take none.

    Raises:
        ValueError: An argument is out of its range.
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        hosts: int = 100,
        procs_per_host: int = 8,
        delay: tuple[float, float] = (0.0002, 0.002),
        loss: float = 0.0,
        compute: tuple[float, float] = (0.0, 0.0),
        answer_bytes: int = 16,
        fanout: int | None = None,
        costs: Costs | None = None,
    ) -> None:
        _check(hosts, procs_per_host, delay, loss, compute, answer_bytes, fanout)
        self.seed = seed
        self.procs_per_host = procs_per_host
        self._began = time.perf_counter()
        self._memory = _resident()
        self._clock = Clock()
        self._random = random.Random(seed)
        self._network = Network(self._clock, random.Random(self._random.random()), delay, loss)
        reconnect: float = config.value("channel_reconnect_timeout")
        setting = Setting(
            self._clock, self._network, self._random,
            Limits(reconnect, config.value("mesh_attach_config_timeout"), config.value("codec_max_frame_length")),
            fanout or config.value("max_cast_fanout"),
            config.value("mesh_orphan_timeout"), costs or Costs(), compute,
            b"x" * answer_bytes, self._arrived,
        )  # fmt: skip
        self._workers = [
            SimulatedHost(setting, f"tcp://10.{n >> 16}.{n >> 8 & 255}.{n & 255}:26600", n)
            for n in range(1, hosts + 1)
        ]
        self._client = Client(setting, f"client-{seed}")
        self._entries = [
            Entry(worker.name, tuple(f"p{i}" for i in range(procs_per_host)), self._ranks(index))
            for index, worker in enumerate(self._workers)
        ]
        self._killed: dict[str, float] = {}
        self._casts: list[Cast] = []
        self._attached: Cast | None = None

    def __repr__(self) -> str:
        return (
            f"<Simulation: seed {self.seed}, {self.hosts} hosts, {self.now:.3f} s,"
            f" {len(self._casts)} casts>"
        )

    @property
    def hosts(self) -> int:
        """Number of hosts, those that were ended included."""
        return len(self._workers)

    @property
    def now(self) -> float:
        """Simulated seconds since the start."""
        return self._clock.now

    def _arrived(self, number: int, procs: int, at: float) -> None:
        cast = self._client.sent[number]
        cast.arrived += procs
        cast.arrived_at = max(cast.arrived_at, at)

    # what the client does

    def attach(self) -> Cast:
        """Let the client attach to all hosts, if it has not yet.

        They watch over each other from then on.
        """
        if self._attached is None:
            self._attached = self._client.attach([worker.name for worker in self._workers])
            self._casts.append(self._attached)
        return self._attached

    def cast(
        self, ranks: Iterable[int] | None = None, *, answers: bool = True, payload_bytes: int = 64
    ) -> Cast:
        """Call processes; attaches first, if that was not done.

        Args:
            ranks: Whom; by default all.
            answers: Whether they answer, as to ``call``; otherwise it is a ``broadcast``, which is
                over when it is sent.
            payload_bytes: Size of the message.

        Returns:
            The call, for `run` and for its results.

        Raises:
            ValueError: There is no such rank, or none at all.
        """
        self.run(until=self.attach())
        entries: Sequence[Entry] = self._entries if ranks is None else self._entries_of(list(ranks))
        cast = self._client.cast(entries, b"x" * payload_bytes, answers)
        self._casts.append(cast)
        return cast

    def call_one(self, rank: int, *, payload_bytes: int = 64) -> Cast:
        """Call one process, over a direct link.

        Args:
            rank: The process.
            payload_bytes: Size of the message.

        Returns:
            The call, as of `cast`.

        Raises:
            ValueError: There is no such rank.
        """
        self.run(until=self.attach())
        entry = self._entries_of([rank])[0]
        cast = self._client.call_one(
            ProcAddress(entry.host, entry.procs[0]), rank, b"x" * payload_bytes
        )
        self._casts.append(cast)
        return cast

    def _entries_of(self, ranks: Sequence[int]) -> list[Entry]:
        most = self.hosts * self.procs_per_host
        wrong = [rank for rank in ranks if not 0 <= rank < most]
        if wrong or not ranks:
            raise ValueError(f"ranks are 0 to {most - 1}, got {wrong[0] if wrong else 'none'}")
        hosts: dict[int, list[int]] = {}
        for rank in ranks:
            hosts.setdefault(rank // self.procs_per_host, []).append(rank)
        return [
            Entry(
                self._workers[host].name,
                tuple(f"p{rank % self.procs_per_host}" for rank in found),
                tuple(found),
            )
            for host, found in hosts.items()
        ]

    def _ranks(self, host: int) -> Sequence[int]:
        return range(host * self.procs_per_host, (host + 1) * self.procs_per_host)

    # what befalls the cluster

    def kill_host(self, host: int | None = None, *, after: float = 0.0, power: bool = False) -> int:
        """End a host; its number is returned.

        Args:
            host: Which; by default one by chance that lives and is not to be ended yet.
            after: Simulated seconds from now.
            power: Whether only its agent is ended, so that its connections are closed, and dials
                refused. Otherwise the machine is gone, and says nothing more.

        Raises:
            ValueError: There is no such host, or none is left.
        """
        if host is None:
            left = [
                index
                for index, worker in enumerate(self._workers)
                if worker.name not in self._killed
            ]
            if not left:
                raise ValueError("no host is left to be ended")
            host = self._random.choice(left)
        worker = self._worker(host)
        self._killed[worker.name] = self.now + after

        def end() -> None:
            self._clock.note("kill", worker.name)
            worker.end(power)

        self._clock.after(after, end)
        return host

    def pause_host(self, host: int, seconds: float, *, after: float = 0.0) -> None:
        """Freeze the agent of a host, as if it were stopped, or its machine busy.

        It reads, writes and notices nothing.

        Args:
            host: Which.
            seconds: For how long, in simulated time.
            after: Simulated seconds from now.

        Raises:
            ValueError: There is no such host, or a time is negative.
        """
        self._pause(self._worker(host), seconds, after)

    def pause_client(self, seconds: float, *, after: float = 0.0) -> None:
        """As `pause_host`, the agent of the client's host.

        Args:
            seconds: Simulated seconds of the pause.
            after: Simulated seconds from now.
        """
        self._pause(self._client, seconds, after)

    def _pause(self, worker: SimulatedHost, seconds: float, after: float) -> None:
        if seconds < 0 or after < 0:
            raise ValueError(
                f"a pause has a length and a beginning of 0 s or more, got {seconds} and {after}"
            )

        def pause() -> None:
            self._clock.note("pause", worker.name, seconds)
            worker.pause(seconds)

        self._clock.after(after, pause)

    def kill_client(self) -> None:
        """End the client's host: all others find out, and let go of what it had there."""
        self._clock.note("kill", self._client.name)
        self._client.end(power=False)

    def partition(self, one: Iterable[int], other: Iterable[int] | None = None) -> Partition:
        """Cut off hosts from others, until `Partition.heal`.

        Args:
            one: Numbers of the hosts.
            other: Those that they do not reach, and that don't reach them; by default all others,
                the client included.

        Returns:
            What `heal` is called on.
        """
        here = {self._worker(host).name for host in one}
        there = {*self._network.hosts} - here
        if other is not None:
            there = {self._worker(host).name for host in other}
        self._clock.note("partition", sorted(here), sorted(there))
        return self._network.partition(here, there)

    def hosts_without_client(self) -> int:
        """Hosts that have noticed that the client is gone."""
        return sum(self._client.name in worker.lost for worker in self._workers if worker.alive)

    def open_casts(self) -> int:
        """Casts with a record at some gateway, but for the one that keeps hosts attached."""
        living = [worker for worker in (*self._workers, self._client) if worker.alive]
        return sum(max(0, worker.gateway.casts - 1) for worker in living)

    def _worker(self, host: int) -> SimulatedHost:
        if not 0 <= host < len(self._workers):
            raise ValueError(f"hosts are numbered 0 to {len(self._workers) - 1}, got {host}")
        return self._workers[host]

    # running

    def run(self, until: float | Cast | None = None) -> None:
        """Let time pass.

        Args:
            until: A time in simulated seconds; a cast that is to be done; by default all casts.

        Raises:
            Unanswered: It took more than 600 simulated seconds.
        """
        with _no_collection():
            if isinstance(until, (int, float)):
                while self._clock.step(until):
                    pass
                return
            limit = self.now + _LONGEST
            for cast in self._casts if until is None else [until]:
                while not cast.done:
                    if not self._clock.step(limit):
                        raise Unanswered(
                            f"after {_LONGEST:g} simulated seconds {cast!r}; seed {self.seed}"
                        )

    def report(self) -> Report:
        """Return the outcome so far."""
        known = self._client.lost
        return Report(
            seed=self.seed,
            hosts=self.hosts,
            procs=self.hosts * self.procs_per_host,
            time=self.now,
            casts=len(self._casts),
            answers=sum(len(cast.answered) for cast in self._casts),
            lost=sum(len(cast.lost) for cast in self._casts),
            missing=sum(len(cast.missing) for cast in self._casts if not cast.done),
            killed=sum(when <= self.now for when in self._killed.values()),
            known=len(known),
            detection=max(
                (known[host] - when for host, when in self._killed.items() if host in known),
                default=0.0,
            ),
            twice=sum(cast.twice for cast in self._casts),
            disorder=sum(worker.disorder for worker in self._workers),
            events=self._clock.events,
            bytes=self._network.bytes,
            links=self._client.links,
            busy=self._client.busy,
            memory=max(0, _resident() - self._memory) // self.hosts,
            wall=time.perf_counter() - self._began,
            log=self._clock.log,
        )


@contextmanager
def _no_collection() -> Iterator[None]:
    """Pause the garbage collector, which would scan all hosts again and again, and find nothing."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _check(
    hosts: int,
    procs: int,
    delay: tuple[float, float],
    loss: float,
    compute: tuple[float, float],
    answer: int,
    fanout: int | None,
) -> None:
    for name, number in (
        ("hosts", hosts),
        ("procs_per_host", procs),
        ("fanout", 1 if fanout is None else fanout),
    ):
        if number < 1:
            raise ValueError(f"{name} must be at least 1, got {number}")
    for name, (least, most) in (("delay", delay), ("compute", compute)):
        if not 0 <= least <= most:
            raise ValueError(
                f"{name} must be (shortest, longest) in seconds, got ({least}, {most})"
            )
    if not 0 <= loss < 1:
        raise ValueError(f"loss is a probability below 1, got {loss}")
    if answer < 0:
        raise ValueError(f"answer_bytes must not be negative, got {answer}")


def _resident() -> int:
    """Bytes of memory that this process uses."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
