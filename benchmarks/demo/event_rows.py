"""Tables of what has happened: of each step that is remembered, and what led to the fault."""

from __future__ import annotations

import json
from collections.abc import Iterator

from monarch.telemetry.gpus import spread
from monarch.telemetry.host_history import KEPT, PERIOD
from monarch.telemetry.ids import event_id, mesh_id, message_id
from monarch.telemetry.rows import event_row, log_row, shape_json, view_json

from . import logs
from .faults import STAGES
from .logs import loss
from .question import MOST, HostQuestion, Row, fills
from .world import GPU_MEMORY, SAMPLES, TOTAL, Proc

_BYTES = 1340  # of a message
_GIB = 1 << 30


@fills("history")
def _history(asked: HostQuestion) -> Iterator[Row]:
    world = asked.world
    kept = min(600, max(32, MOST // world.trainers.size))
    for proc in asked.alive:
        odd = world.is_odd(proc)
        for second in range(max(int(asked.now) - kept, int(asked.since)), int(asked.now)):
            count = int(world.steps(second + 1, odd)) - int(world.steps(second, odd))
            yield second * 1_000_000, proc.actor_id, proc.id, 1, count, world.queue(proc, second)


@fills("host_history")
def _host_history(asked: HostQuestion) -> Iterator[Row]:
    """Of one proc that stands for the others of its host; the GPU of the odd rank is its own."""
    world, alive = asked.world, asked.alive[:1]
    trainers = list(asked.trainers())
    trainers = [proc if world.is_odd(proc) else trainers[0] for proc in trainers]
    begin = max(asked.now - PERIOD * KEPT, asked.since)
    for back in range(int((asked.now - begin) / PERIOD), -1, -1):
        at, many = asked.now - back * PERIOD, len(asked.alive)
        load = 1.1 * many * sum(bool(world.does(proc, at)[0]) for proc in alive)
        used = 40 * _GIB + many * sum(world.memory(proc, at) for proc in alive)
        cpu = many * sum(world.busy(proc, at) for proc in alive)
        sent = int(world.steps(at)) * 1_400_000_000
        each = {
            proc: (world.gpu_busy(proc, at), world.gpu_memory(proc, at)) for proc in {*trainers}
        }
        busy = spread(each[proc][0] for proc in trainers)
        memory = spread(100 * each[proc][1] / GPU_MEMORY for proc in trainers)
        yield int(at * 1e6), asked.host.id, load, used, 0, cpu, sent, sent, 59.0, *busy, *memory


@fills("actor_status_events")
def _status_events(asked: HostQuestion) -> Iterator[Row]:
    world = asked.world
    for proc in asked.procs:
        life: list[tuple[float, str, str | None]] = [(world.since, "Created", None)]
        life.append((world.since + 0.8, "Idle", None))
        end = world.end(proc, asked.now)
        if end is not None:
            life.append((world.fault_at, "Failed", end.reason))
        restarted = world.restarted.get(proc.mesh.uid)
        if restarted is not None:
            life += [(restarted, "Stopped", "restarted"), (restarted + 3.0, "Idle", None)]
        for at, status, reason in life:
            if at <= asked.now:
                number = event_id(proc.actor_id, int(at * 1e9))
                yield number, int(at * 1e6), proc.actor_id, status, reason


def _calls(asked: HostQuestion) -> Iterator[tuple[Proc, int, int, int, int | None]]:
    """The steps of trainers as calls: whose, their id, which step, when they came, the time taken."""
    for proc in asked.trainers():
        odd = asked.world.is_odd(proc)
        steps = asked.steps(proc, MOST // 3)
        for step in (*steps, steps.stop):
            begin, took = int(asked.world.begin_of(step, odd) * 1e6), None
            if step != steps.stop:
                took = int(asked.world.begin_of(step + 1, odd) * 1e6) - begin
            yield proc, message_id(proc.address, step), step, begin, took


@fills("messages")
def _messages(asked: HostQuestion) -> Iterator[Row]:
    client = asked.world.client_actor
    for proc, number, step, begin, took in _calls(asked):
        yield number, begin, client, proc.actor_id, "step", None, _BYTES, took, 1, step


@fills("message_status_events")
def _message_status_events(asked: HostQuestion) -> Iterator[Row]:
    for _, number, _, begin, took in _calls(asked):
        yield number ^ 1, begin, number, "active", 1
        if took is not None:
            yield number ^ 2, begin + took, number, "complete", 1


@fills("sent_messages")
def _sent_messages(asked: HostQuestion) -> Iterator[Row]:
    world = asked.world
    if not asked.is_head or not asked.procs:
        return
    shape, view = shape_json(world.trainers.extent), view_json(world.trainers.extent)
    steps = asked.steps(asked.host.procs[0], MOST // 3)
    for step in (*steps, steps.stop):
        yield (
            message_id(world.client, step), int(world.begin_of(step) * 1e6), world.client_actor,
            mesh_id(world.trainers.actor_uid), view, shape, "step", _BYTES, 1, step,
        )  # fmt: skip


@fills("steps")
def _steps(asked: HostQuestion) -> Iterator[Row]:
    for proc in asked.trainers():
        odd = asked.world.is_odd(proc)
        for step in asked.steps(proc, fewest=32):
            end, took = asked.world.begin_of(step + 1, odd), asked.world.took(proc, step)
            us = int(took * 1e6)
            yield (
                int(end * 1e6),
                proc.id,
                proc.actor_id,
                proc.rank,
                step + 1,
                us,
                us,
                TOTAL,
                SAMPLES,
            )


@fills("metric_history")
def _metric_history(asked: HostQuestion) -> Iterator[Row]:
    for proc in asked.trainers():
        odd = asked.world.is_odd(proc)
        for step in asked.steps(proc, MOST // 4, fewest=32):
            end = asked.world.begin_of(step + 1, odd)
            for name, kind, unit, value, count in (
                ("loss", "gauge", "", loss(proc, step), None),
                ("tokens", "sum", "", 9_500.0 * (step + 1), None),
                ("batch_time", "histogram", "ms", 1e3 * (end - asked.world.since), step + 1),
            ):
                yield int(end * 1e6), proc.id, name, kind, unit, "{}", value, count


@fills("spans")
def _spans(asked: HostQuestion) -> Iterator[Row]:
    """The stages of the last steps."""
    for proc in asked.trainers():
        odd = asked.world.is_odd(proc)
        for step in asked.steps(proc, MOST // 10):
            begin, end = (asked.world.begin_of(each, odd) for each in (step, step + 1))
            part = 0.0
            for number, (until, frames) in enumerate(STAGES):
                frame = next(each for each in frames if "/run/" in each.file)
                yield (
                    proc.id, message_id(proc.address, step * len(STAGES) + number), frame.function, "train", "INFO",
                    json.dumps({"step": step}), int(1e6 * (begin + part * (end - begin))), None, "monarch-actor-trainer", frame.file,
                    frame.line, proc.actor_id, int(1e6 * (until - part) * (end - begin)),
                )  # fmt: skip
                part = until


@fills("logs")
def _logs(asked: HostQuestion) -> Iterator[Row]:
    matches = asked.lines.matcher() if asked.lines is not None else None
    lines = logs.of_host(asked.world, asked.host, asked.since, asked.now)
    return (log_row(line) for line in lines if matches is None or matches(line))


@fills("events")
def _events(asked: HostQuestion) -> Iterator[Row]:
    lines = logs.of_host(asked.world, asked.host, asked.since, asked.now)
    return (event_row(line) for line in lines if line.logger)
