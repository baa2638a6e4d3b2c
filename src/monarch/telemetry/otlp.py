"""Sends metrics, spans and records of `logging` of this process to a collector of OpenTelemetry, where the environment names one.

Imported by a process that finds `OTEL_EXPORTER_OTLP_ENDPOINT`, or that of a signal, at its start. One thread does all of it: it
reads what the process counts anyway, as a query would, so that nothing is added to the path of messages. What a collector does not
take in time is dropped, oldest first, and said once.

What ends the waits of the thread: the interval, `OTEL_EXPORTER_OTLP_TIMEOUT` of each request. Who waits for the thread, at the end of
the process: `_LAST` seconds.
"""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401  # before `start`, as what was registered last is called first
import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from importlib import import_module
from typing import Any

from .. import config
from .._core.plane import Hub
from .._lazy import lazy_logger, note
from . import spans

_MOST = 10_000  # spans, and records of logging, that wait
_LEAST = 0.05  # seconds between two exports
_LAST = 3.0  # seconds for what is left at the end
_LIBRARIES = ("opentelemetry", "urllib3", "requests")
_logger = lazy_logger("monarch.telemetry")


def start(hub: Hub, name: Callable[[], str], rank: int) -> None:
    """Export from now on what this process does, until its end.

    Args:
        hub: Of the process.
        name: Gives the name of its mesh.
        rank: In that; who warns of what fails is the first rank.
    """
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() != "true":
        exporter = _Exporter(hub, name, rank)
        exporter.start()
        # as `concurrent.futures` does: after that the SDK can't even be imported, as it makes threads
        threading._register_atexit(exporter.end)  # type: ignore[attr-defined]


def _wanted(signal: str) -> bool:
    """Whether this signal is to be exported, and somebody to take it is named."""
    endpoint = f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT"
    allowed = os.environ.get(f"OTEL_{signal}_EXPORTER", "otlp").lower() == "otlp"
    if signal == "METRICS":
        allowed = allowed and config.value("enable_otel_metrics")
    if signal == "TRACES":
        allowed = allowed and config.value("enable_otel_tracing")
    return allowed and bool(os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or os.environ.get(endpoint))


class _Exporter:
    def __init__(self, hub: Hub, name: Callable[[], str], rank: int) -> None:
        self._hub = hub
        self._name = name
        self._rank = rank
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="monarch-otlp", daemon=True)
        self._failing = False
        self._pid = os.getpid()
        self._records: deque[logging.LogRecord] = deque(maxlen=_MOST)
        self._spans: deque[spans.span] = deque(maxlen=_MOST)

    def start(self) -> None:
        if _wanted("TRACES"):
            spans.finished = self._spans
            spans.follow(self._hub)
        if _wanted("LOGS"):
            _listen(self._records, self._thread)
        self._thread.start()

    def end(self) -> None:
        """Export what is left, if the collector has taken the rest."""
        if os.getpid() == self._pid:  # a fork has no such thread
            self._ends.set()
            if not self._failing:
                self._thread.join(_LAST)

    # on the thread

    def _run(self) -> None:
        try:
            records = import_module(".otlp_records", __package__)
            records.silence()
            exporters = {
                signal: records.exporter(signal) for signal in ("METRICS", "TRACES", "LOGS") if _wanted(signal)
            }
            resource = records.resource(self._hub, self._name(), self._rank)
        except ImportError as error:
            self._complain(
                f"OTEL_EXPORTER_OTLP_ENDPOINT is set, and {error.name} is missing: pip install 'pymonarch[otel]'"
            )
            return
        except Exception as error:  # a variable that makes no sense
            self._complain(f"nothing is exported to OpenTelemetry: {type(error).__name__}: {error}")
            return
        last = False
        while not last:
            last = self._ends.wait(max(_LEAST, config.value("otel_metric_export_interval")))
            for signal, exporter in exporters.items():
                try:
                    made = self._made(records, signal, resource)
                    if made and not exporter(made):
                        raise ConnectionError("it takes nothing, or does not answer")
                except Exception as error:
                    self._failed(signal, error)
                    break
            else:
                self._succeeded()

    def _made(self, records: Any, signal: str, resource: Any) -> Any:
        if signal == "METRICS":
            return records.metrics(self._hub, resource)
        if signal == "TRACES":
            return [records.span(each, self._hub.address, resource) for each in _taken(self._spans)]
        return [records.log(each, resource) for each in _taken(self._records)]

    def _failed(self, signal: str, error: Exception) -> None:
        if not self._failing:
            self._complain(
                f"OpenTelemetry's collector fails for {signal.lower()}: {error}; it is tried again, and this is said once"
            )
        self._failing = True

    def _succeeded(self) -> None:
        self._failing = False

    def _complain(self, text: str) -> None:
        if self._rank == 0:  # of a thousand ranks one line is enough
            _logger.warning(text)
        note("telemetry", "%s", text)


def _taken(waiting: deque[Any]) -> list[Any]:
    return [waiting.popleft() for _ in range(len(waiting))]


def _listen(records: deque[logging.LogRecord], exporter: threading.Thread) -> None:
    """Keep what loggers let through, but none of what exporting says itself. It is no handler: with one at the root, `basicConfig` would
    do nothing, and warnings of programs that have none would no longer be printed."""
    call = logging.Logger.callHandlers

    def keep_and_call(logger: logging.Logger, record: logging.LogRecord) -> None:
        if record.thread != exporter.ident and not record.name.startswith(_LIBRARIES):
            record.message = record.getMessage()  # now: its arguments may change
            records.append(record)
        call(logger, record)

    loggers: Any = logging.Logger
    loggers.callHandlers = keep_and_call
