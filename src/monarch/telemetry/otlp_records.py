"""This process's counters and events in the types of OpenTelemetry's SDK.

Its exporters send them. It is imported only where they are sent.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

from opentelemetry import context
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk.metrics import export as points
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from .._core.plane import Hub, ProcAddress
from .._public import RELEASE
from ..logs.keep import JobOf
from ..programs import ask
from .metrics import Observable, fits, meters
from .registry import PROC, Asked, producer_of
from .spans import span as Span  # noqa: N812  # it is used like a function, and is a class
from .tables import TABLES, number_of

__all__ = ["exporter", "hanging", "log", "metrics", "resource", "silence", "span"]

_CUMULATIVE = points.AggregationTemporality.CUMULATIVE
_SEVERITIES = (
    (logging.CRITICAL, SeverityNumber.FATAL),
    (logging.ERROR, SeverityNumber.ERROR),
    (logging.WARNING, SeverityNumber.WARN),
    (logging.INFO, SeverityNumber.INFO),
    (logging.DEBUG, SeverityNumber.DEBUG),
)
_PATIENCE = 5.0  # seconds for an answer of the agent
_SCOPE = InstrumentationScope("monarch", RELEASE)


def silence() -> None:
    """Silence the SDK on this thread.

    `otlp` reports a failed request once, and these requests are not traced.
    """
    exporter = threading.get_ident()
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger) and name.partition(".")[0] == "opentelemetry":
            logger.addFilter(lambda record: record.thread != exporter)
    for key in ("_SUPPRESS_INSTRUMENTATION_KEY", "_SUPPRESS_HTTP_INSTRUMENTATION_KEY"):
        if hasattr(context, key):
            context.attach(context.set_value(getattr(context, key), True))


def exporter(signal: str) -> Callable[[Any], bool]:
    """A function that sends what `metrics`, `span` or `log` made; False if it was refused."""
    made: Any = {
        "METRICS": OTLPMetricExporter,
        "TRACES": OTLPSpanExporter,
        "LOGS": OTLPLogExporter,
    }[signal]()
    return lambda found: made.export(found).name == "SUCCESS"


def resource(hub: Hub, mesh: str, rank: int) -> Resource:
    """Return the resource of this process; values in the environment take precedence."""
    address = hub.address
    own = Resource(
        {
            "service.instance.id": str(address),
            "host.name": os.uname().nodename,
            "process.pid": os.getpid(),
            "monarch.program": hub.root.proc,
            "monarch.host": address.host,
            "monarch.mesh": mesh,
            "monarch.rank": rank,
            "monarch.job": _job(hub),
        }
    )
    return own.merge(Resource.create())


def _job(hub: Hub) -> str:
    """The id of the job or program that owns the logs.

    The client has no agent to ask yet.
    """
    if hub.address == hub.root:
        return ""
    with suppress(Exception):  # an agent that ends, say: it is only a name
        found: str = ask(hub, hub.address.agent, JobOf(hub.root)).get(timeout=_PATIENCE)
        return found
    return ""


def metrics(hub: Hub, of: Resource) -> points.MetricsData:
    """Return the metrics of this process, as the tables have them."""
    # that is all of it
    asked = Asked(SimpleNamespace(hub=hub), time.time_ns() // 1000, None, None, {}, None)  # type: ignore[arg-type]
    descriptions = {
        made.name: made.description for meter in meters() for made in meter.instruments()
    }
    by_scope: dict[str, dict[tuple[str, str], list[tuple[str, dict[str, Any]]]]] = {}
    for table in ("metric_gauges", "metric_sums", "metric_histograms"):
        for row in _rows(table, asked):
            by_name = by_scope.setdefault(row["scope_name"], {})
            by_name.setdefault((table, row["name"]), []).append((table, row))
    scopes = [
        points.ScopeMetrics(
            InstrumentationScope(scope),
            [
                points.Metric(
                    name,
                    descriptions.get(name, ""),
                    found[0][1]["unit"],
                    _data(table, [row for _, row in found]),
                )
                for (table, name), found in by_name.items()
            ],
            "",
        )
        for scope, by_name in by_scope.items()
    ]
    return points.MetricsData([points.ResourceMetrics(of, scopes, "")])


def hanging() -> list[str]:
    """Names of the instruments with callbacks to run."""
    made = (each for meter in meters() for each in meter.instruments())
    return [each.name for each in made if isinstance(each, Observable) and each.runs]


def _rows(table: str, asked: Asked) -> Iterator[dict[str, Any]]:
    producer, columns = producer_of(table, PROC), TABLES[table].columns
    assert producer is not None
    for row in producer(asked):
        yield dict(zip(columns, row, strict=True))


def _data(table: str, rows: list[dict[str, Any]]) -> Any:
    if table == "metric_histograms":
        return points.Histogram(
            [
                points.HistogramDataPoint(
                    *_where(row), row["count"], number_of(row, "sum"), json.loads(row["bucket_counts_json"]),
                    json.loads(row["bounds_json"]), number_of(row, "min"), number_of(row, "max"),
                )
                for row in rows
            ],
            _CUMULATIVE,
        )  # fmt: skip
    name = "sum" if table == "metric_sums" else "value"
    numbers = [points.NumberDataPoint(*_where(row), number_of(row, name)) for row in rows]
    if name == "sum":
        return points.Sum(numbers, _CUMULATIVE, rows[0]["is_monotonic"])
    return points.Gauge(numbers)


def _where(row: dict[str, Any]) -> tuple[dict[str, Any], int, int]:
    return (
        _sendable(json.loads(row["attributes_json"])),
        (row["start_timestamp_us"] or 0) * 1000,
        row["timestamp_us"] * 1000,
    )


def _sendable(attributes: dict[str, Any]) -> dict[str, Any]:
    """Without what protobuf can't hold, one of which would cost the whole batch."""
    return {_text(name): _held(value) for name, value in attributes.items() if value is not None}


def _held(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_held, value))  # which can be compared, and hashed
    if isinstance(value, str):
        return _text(value)
    return str(value) if isinstance(value, int) and not fits(value) else value


def _text(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()  # half of a surrogate pair is not UTF-8


def span(made: Span, here: ProcAddress, of: Resource) -> ReadableSpan:
    """A span that has ended."""
    trace, own, above = made.ids(here)
    error = made.fields.get("error")
    attributes = {
        **made.fields, "code.file.path": made.file, "code.line.number": made.line, "thread.name": made.thread,
        "code.namespace": made.module,
    }  # fmt: skip
    status = Status(StatusCode.UNSET)
    if error is not None:
        status = Status(StatusCode.ERROR, _text(str(error)))
    return ReadableSpan(
        _text(made.name),
        _context(trace, own),
        _context(trace, above) if above is not None else None,
        of,
        _sendable(attributes),
        kind=SpanKind.INTERNAL,
        status=status,
        start_time=made.begin,
        end_time=made.end,
        instrumentation_scope=_SCOPE,
    )


def _context(trace: int, own: int) -> SpanContext:
    return SpanContext(trace, own, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def log(record: logging.LogRecord, here: ProcAddress, of: Resource) -> ReadableLogRecord:
    """A record of `logging`."""
    attributes: dict[str, Any] = {
        "code.file.path": record.pathname, "code.line.number": record.lineno, "code.function.name": record.funcName,
        "thread.name": record.threadName,
    }  # fmt: skip
    if record.exc_info and record.exc_info[1] is not None:
        error = record.exc_info[1]
        attributes["exception.type"] = type(error).__qualname__
        attributes["exception.message"] = str(error)
        attributes["exception.stacktrace"] = "".join(traceback.format_exception(*record.exc_info))
    made = LogRecord(
        timestamp=int(record.created * 1e9),
        observed_timestamp=time.time_ns(),
        severity_text=_text(record.levelname),
        severity_number=_severity(record.levelno),
        body=_text(record.message),
        attributes=_sendable(attributes),
    )
    return ReadableLogRecord(made, of, InstrumentationScope(_text(record.name)))


def _severity(level: int) -> SeverityNumber:
    return next(
        (severity for least, severity in _SEVERITIES if level >= least), SeverityNumber.TRACE
    )
