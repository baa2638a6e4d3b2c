"""The metrics of a process as rows.

They are those of the program, and those that the engine's counts give, under the names of Monarch
0.7.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

from .._core.plane import OwnedActors, OwnedProcs, actors_of, begun_by, statistics_of
from .._patterns.activities import owners_of
from .._proc_stat import RESIDENT, VIRTUAL, stat_of
from . import metrics
from .ids import proc_id
from .registry import Asked, produces

Row = tuple[Any, ...]

_ENGINE = "hyperactor::metrics"
_GAUGE, _SUM, _HISTOGRAM = "gauge", "sum", "histogram"
_HANDLER_DURATION = "actor.message_handler_duration.ns"


@produces("metric_gauges", own_thread=True)
def _gauges(asked: Asked) -> Iterator[Row]:
    resource = _resource(asked)
    for _, series, value in _values(asked, resource, _GAUGE):
        yield *series, *_typed(value), None
    for name, value in _memory().items():
        yield name, asked.now_us, None, _ENGINE, "By", "{}", resource, None, None, value


@produces("metric_sums", own_thread=True)
def _sums(asked: Asked) -> Iterator[Row]:
    resource = _resource(asked)
    for instrument, series, value in _values(asked, resource, _SUM):
        rises = isinstance(instrument, (metrics.Counter, metrics.ObservableCounter))
        typed = _typed(value)
        yield *series, "cumulative", rises, *typed, typed[1] if rises else None
    # actors, or meshes, of one name are one series
    counts: dict[tuple[str, str, str, bool], int] = {}
    for name, scope, attributes, rises, count in _built_in(asked):
        series = name, scope, json.dumps(attributes), rises
        counts[series] = counts.get(series, 0) + count
    for (name, scope, written, rises), count in counts.items():
        yield (
            name, asked.now_us, 0, scope, "", written, resource, "cumulative", rises, None,
            *((None, count) if rises else (count, None)),
        )  # fmt: skip


@produces("metric_histograms", own_thread=True)
def _histograms(asked: Asked) -> Iterator[Row]:
    resource = _resource(asked)
    for instrument, series, found in _values(asked, resource, _HISTOGRAM):
        yield (
            *series, "cumulative", found.values, *_typed(found.sum), None, *_typed(found.min), None, *_typed(found.max), None,
            json.dumps(instrument.bounds), json.dumps(found.buckets),
        )  # fmt: skip
    joined: dict[str, tuple[float, Any]] = {}  # actors of one name are one series
    for cell in actors_of(asked.service.hub):
        durations: Any = getattr(cell.sampler, "durations", {})  # where telemetry is on
        for endpoint, seen in durations.copy().items():
            written = json.dumps(
                {"actor": cell.record.name, "rank": cell.record.rank.rank, "endpoint": endpoint}
            )
            started, known = joined.get(written, (cell.since, type(seen)()))
            known.join(seen)
            joined[written] = min(started, cell.since), known
    for written, (started, seen) in joined.items():
        last = max((index for index, count in enumerate(seen.counts) if count), default=0)
        bounds = [(1 << index) - 1 for index in range(last + 1)]  # of so many bits
        yield (
            _HANDLER_DURATION, asked.now_us, int(started * 1e6), _ENGINE, "ns", written, resource, "cumulative",
            sum(seen.counts), None, None, seen.total, None, None, seen.least, None, None, seen.most, json.dumps(bounds),
            json.dumps([*seen.counts[: last + 1], 0]),
        )  # fmt: skip


@produces("metric_history", own_thread=True)
def _history(asked: Asked) -> Iterator[Row]:
    here, since = proc_id(asked.service.hub.address), (asked.since_us or 0) / 1e6
    for _, instrument in _instruments():
        for key, points in instrument.courses().items():
            named = instrument.name, _kind(instrument), instrument.unit, _json(key)
            for at, value, count in points:
                if at >= since:
                    yield int(at * 1e6), here, *named, float(value), count


def _built_in(asked: Asked) -> Iterator[tuple[str, str, dict[str, Any], bool, int]]:
    hub = asked.service.hub
    handled = 0
    for cell in actors_of(hub):
        attributes = {"actor": cell.record.name, "rank": cell.record.rank.rank}
        begun, queued = sum(begun_by(cell).values()), len(cell.queued())
        handled += begun
        yield "actor.messages_received", _ENGINE, attributes, True, begun
        raised = sum(count for count, _ in cell.raised.copy().values())
        yield "actor.message_receive_errors", _ENGINE, attributes, True, raised
        yield "actor.message_queue_size", _ENGINE, attributes, False, queued
        yield "mailbox.posts", _ENGINE, attributes, True, begun + queued
    yield "py_mesages_handled", "monarch", {}, True, handled
    counted = statistics_of(hub, [])
    yield "actor.messages_sent", _ENGINE, {}, True, counted.messages_sent
    for direction, messages, size in (
        ("sent", counted.messages_sent, counted.bytes_sent),
        ("received", counted.messages_received, counted.bytes_received),
    ):
        yield "channel.throughput.messages", _ENGINE, {"direction": direction}, True, messages
        yield "channel.throughput.bytes", _ENGINE, {"direction": direction}, True, size
    yield "channel.connections", _ENGINE, {}, False, counted.connections_open
    for owner in owners_of(hub):
        for mesh in owner.ownership.meshes():
            failed = sum(map(mesh.has_failed, range(len(mesh.processes))))
            attributes = {"mesh": mesh.name}
            if isinstance(mesh, OwnedProcs):
                up = len(mesh.processes) - failed
                yield "proc_mesh.active_procs", _ENGINE, attributes, False, up
                yield "proc_mesh.proc_failures", _ENGINE, attributes, True, failed
            elif isinstance(mesh, OwnedActors):
                yield "proc_mesh.actor_failures", _ENGINE, attributes, True, failed


def _values(asked: Asked, resource: str, kind: str) -> Iterator[tuple[Any, Row, Any]]:
    """Each value of the instruments of a kind: the instrument, its row's first cells, the value."""
    for scope, instrument in _instruments():
        if _kind(instrument) == kind:
            since = int(instrument.since * 1e6)
            for key, value in instrument.values().items():
                about = since, scope, instrument.unit, _json(key), resource
                yield instrument, (instrument.name, asked.now_us, *about), value


def _instruments() -> Iterator[tuple[str, Any]]:
    for meter in metrics.meters():
        for instrument in meter.instruments():
            yield meter.name, instrument


def _kind(instrument: Any) -> str:
    if isinstance(instrument, (metrics.Gauge, metrics.ObservableGauge)):
        return _GAUGE
    return _HISTOGRAM if isinstance(instrument, metrics.Histogram) else _SUM


def _typed(value: Any) -> tuple[float | None, int | None]:
    # a sum may have grown beyond
    return (None, value) if isinstance(value, int) and metrics.fits(value) else (float(value), None)


def _json(key: metrics.Key) -> str:
    return json.dumps(dict(key), default=str)


def _resource(asked: Asked) -> str:
    address = asked.service.hub.address
    return json.dumps(
        {
            "service.name": os.environ.get("OTEL_SERVICE_NAME", "unknown_service"),
            "host.name": os.uname().nodename,
            "process.pid": os.getpid(),
            "proc_id": str(proc_id(address)),
        }
    )


def _memory() -> dict[str, int]:
    stat = stat_of(os.getpid())
    if not stat:
        return {}
    resident = int(stat[RESIDENT]) * os.sysconf("SC_PAGE_SIZE")
    return {"process.memory.rss_bytes": resident, "process.memory.vm_bytes": int(stat[VIRTUAL])}
