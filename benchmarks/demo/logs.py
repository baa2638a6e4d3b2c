"""The output and log records of the simulated ranks."""

from __future__ import annotations

import math
from collections.abc import Iterator

from monarch.logs.filter import LEVELS
from monarch.logs.line import LogLine

from .world import DemoHost, DemoWorld, Proc, noise

_KEPT = 900.0  # seconds
_LINES_PER_STEP = 20  # of all ranks together

_HOSTILE = (
    "<script>alert(document.domain)</script><img src=x onerror=alert(1)>",
    "</span><a href='javascript:alert(1)'>open the report</a>",
    (
        "\x1b[2J\x1b[31mred\x1b[0m \x1b]8;;https://example.com\x07a link\x1b]8;;\x07 \x1b]0;a"
        " title\x07"
    ),
    (
        "right to left: \u202e.gpj.exe and back \u202c; zero width:\u200b\u200b\u200b;"
        " \u0645\u0631\u062d\u0628\u0627"
    ),
    "half a character: \ud83d; a bell: \a; a null: \0; a return: 10 %\r 90 %",
    "'; DROP TABLE logs; --  ${{7*7}}  {{7*7}}  %s%s%n  ../../etc/passwd",
    "one line of a megabyte: " + "loss=0.1 " * 116_508,
)


def of_host(world: DemoWorld, host: DemoHost, since: float, now: float) -> Iterator[LogLine]:
    """The lines of its ranks, by time."""
    since = max(since, now - _KEPT)
    found = [
        line
        for proc in host.procs
        if proc.mesh is world.trainers
        for line in _of_training(world, proc, since, now)
    ]
    found += [line for line in _of_fault(world, host) if since <= line.time <= now]
    yield from sorted(found, key=lambda line: line.time)


def loss(proc: Proc, step: int) -> float:
    """Return the loss of a step on a rank."""
    return 1.8 + 6.0 * math.exp(-step / 900) + 0.05 * noise(proc.rank, step, 1)


def _of_training(world: DemoWorld, proc: Proc, since: float, now: float) -> Iterator[LogLine]:
    """A rank logs how it gets on, now and then; the first one each step."""
    if proc.mesh.uid in world.stopped:
        return
    odd = world.is_odd(proc)
    every = 1 if proc.rank == 0 else max(1, world.trainers.size // _LINES_PER_STEP)
    first, last = int(world.steps(since, odd)), int(world.steps(now, odd))
    for step in range(first + (-(first + proc.rank) % every), last + 1, every):
        at = world.begin_of(step, odd) + 0.02 * noise(proc.rank, step)
        if since <= at <= now:
            tokens = 9_300 + int(400 * noise(proc.rank, step, 2))
            text = f"step {step} loss {loss(proc, step):.4f} tokens/s {tokens:,}"
            yield _line(proc, at, "INFO", "train.py:66", text)


def _of_fault(world: DemoWorld, host: DemoHost) -> Iterator[LogLine]:
    if world.fault_name == "hostile-logs" and host is world.odd_host:
        for number, text in enumerate(_HOSTILE):
            level = "stdout" if number % 2 else "WARNING"
            yield _line(world.odd, world.fault_at + number, level, "", text)
    for after, who, level, where, text in world.fault.lines:
        proc = world.hosts[1].procs[0] if who == "first" else world.odd
        if proc.host is host and proc.mesh.uid not in world.restarted:
            text = text.format(rank=world.odd.rank, step=world.hung_step)
            yield _line(proc, world.fault_at + after, level, where, text)


def _line(proc: Proc, at: float, level: str, where: str, text: str) -> LogLine:
    """Make a line of the log.

    Args:
        proc: The printing proc.
        at: Time, in seconds since 1970.
        level: Of a record of `logging`; else the name of a stream.
        where: File and line of the source.
        text: The message.
    """
    mesh, number = proc.mesh, LEVELS.get(level, 0)
    point = ",".join(f"{name}={index}" for name, index in proc.coordinates.items())
    logger = (where.partition(".")[0] or "train") if number else ""
    return LogLine(
        at, "log" if number else level, number, text, proc.host.machine, mesh.name, proc.rank, point, "demo", 0, mesh.actor,
        mesh.endpoint, logger, where,
    )  # fmt: skip
