"""The outcome of a simulation."""

from __future__ import annotations

from typing import NamedTuple


class Report(NamedTuple):
    """The figures of a simulated run.

    Attributes:
        seed: Of the run; the same seed gives the same run, and the same `log`.
        hosts: Workers at the start.
        procs: Processes on all of them.
        time: Simulated seconds.
        casts: Calls and broadcasts so far, attaching included.
        answers: Ranks that have answered, in all casts.
        lost: Ranks that could not, as their host was gone.
        missing: Ranks that are still waited for.
        killed: Hosts that were ended.
        known: Hosts of which the client knows that they are gone.
        detection: Longest time from a host's end until the client knew, seconds; 0 if none ended.
        twice: Answers that came twice.
        disorder: Messages that came twice, or out of the order of their sender.
        events: Events of the clock.
        bytes: Bytes on all streams.
        links: Links of the client.
        busy: CPU seconds of the client's gateway, of those that `Costs` count.
        memory: Bytes of this process for each host, its links and records; differs from run to run.
        wall: Real seconds since the start; differs from run to run.
        log: Hash of all events, in order.
    """

    seed: int
    hosts: int
    procs: int
    time: float
    casts: int
    answers: int
    lost: int
    missing: int
    killed: int
    known: int
    detection: float
    twice: int
    disorder: int
    events: int
    bytes: int
    links: int
    busy: float
    memory: int
    wall: float
    log: str

    def __str__(self) -> str:
        rows = [
            ("seed", f"{self.seed}"),
            ("hosts", f"{self.hosts:,}, with {self.procs:,} processes"),
            ("simulated", f"{self.time:.3f} s, in {self.wall:.1f} s"),
            ("casts", f"{self.casts:,}"),
            (
                "answers",
                f"{self.answers:,}; {self.lost:,} lost with their hosts, {self.missing:,} missing",
            ),
            (
                "hosts ended",
                (
                    f"{self.killed:,}; the client knows of {self.known:,}, after"
                    f" {self.detection:.3f} s at most"
                ),
            ),
            (
                "wrong",
                f"{self.twice:,} answers twice, {self.disorder:,} messages twice or out of order",
            ),
            ("events", f"{self.events:,}; {self.events / self.hosts:,.1f} for each host"),
            ("bytes", f"{self.bytes:,}; {self.bytes / self.hosts:,.0f} for each host"),
            ("memory", f"{self.memory:,} bytes for each host"),
            ("client", f"{self.links:,} links"),
            ("log", self.log),
        ]
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:{width}}  {value}" for name, value in rows)
