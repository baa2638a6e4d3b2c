"""Sends metrics, spans and records of `logging` of this process to a collector of OpenTelemetry, where the environment names one.

Imported by a process that finds `OTEL_EXPORTER_OTLP_ENDPOINT`, or that of a signal, at its start. One thread does all of it: it
reads what the process counts anyway, as a query would; only spans add to the path of messages: their trace context. What a collector
does not take in time is dropped, oldest first, and said once. A signal that fails holds up no other.

What ends the waits of the thread: the interval, or a queue that is half full; `OTEL_EXPORTER_OTLP_TIMEOUT` of each request; `_CALLBACKS`
seconds for callbacks of metrics. Who waits for the thread, at the end of the process: `_LAST` seconds.
"""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401  # before `start`, as what was registered last is called first
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from queue import Empty, SimpleQueue
from typing import Any

from .. import config
from .._core.plane import Hub
from .._lazy import lazy_logger, note
from . import spans

_MOST = 10_000  # spans, and records of logging, that wait
_BATCH = 512  # of them in a request
_CALLBACKS = 10.0  # seconds for those of observable instruments, as they are told
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
    allowed = os.environ.get(f"OTEL_{signal}_EXPORTER", "otlp").lower() == "otlp"
    if signal == "METRICS":
        allowed = allowed and config.value("enable_otel_metrics")
    if signal == "TRACES":
        allowed = allowed and config.value("enable_otel_tracing")
    return allowed and bool(_of_signal(signal, "ENDPOINT"))


def _of_signal(signal: str, what: str) -> str:
    return os.environ.get(f"OTEL_EXPORTER_OTLP_{signal}_{what}") or os.environ.get(f"OTEL_EXPORTER_OTLP_{what}", "")


class _Exporter:
    def __init__(self, hub: Hub, name: Callable[[], str], rank: int) -> None:
        self._hub = hub
        self._name = name
        self._rank = rank
        self._signals = [signal for signal in ("LOGS", "TRACES", "METRICS") if _wanted(signal)]
        self._wakes: SimpleQueue[None] = SimpleQueue()  # as its `put` may be called in a signal handler
        self._ends = False
        self._thread = threading.Thread(target=self._run, name="monarch-otlp", daemon=True)
        self._failing: set[str] = set()
        self._said: set[str] = set()
        self._pid = os.getpid()
        self._waiting = {signal: _Waiting(self._wakes) for signal in ("LOGS", "TRACES")}

    def start(self) -> None:
        if "TRACES" in self._signals:
            spans.finished = self._waiting["TRACES"]
            spans.follow(self._hub)
        if "LOGS" in self._signals:
            _listen(self._waiting["LOGS"], self._thread)
        os.register_at_fork(after_in_child=_forget)
        self._thread.start()

    def end(self) -> None:
        """Export what is left, if the collector takes any of it."""
        if os.getpid() == self._pid:  # a fork has no such thread
            self._ends = True
            self._wakes.put(None)
            if not self._failing.issuperset(self._signals):
                self._thread.join(_LAST)

    # on the thread

    def _run(self) -> None:
        try:
            records = import_module(".otlp_records", __package__)
            records.silence()
            exporters = {signal: records.exporter(signal) for signal in self._signals}
            resource = records.resource(self._hub, self._name(), self._rank)
        except ImportError as error:
            self._complain(
                f"OTEL_EXPORTER_OTLP_ENDPOINT is set, and {error.name} is missing: pip install 'pymonarch[otel]'"
            )
            return
        except Exception as error:  # a variable that makes no sense
            self._complain(f"nothing is exported to OpenTelemetry: {type(error).__name__}: {error}")
            return
        for signal in self._signals:
            protocol = _of_signal(signal, "PROTOCOL")
            if protocol not in ("", "http/protobuf"):
                self._complain(f"OTLP over {protocol} is not spoken: {signal.lower()} are sent by http/protobuf")
        last = False
        while not last:
            self._sleep()
            last = self._ends
            failed: dict[str, Exception] = {}
            for signal, exporter in exporters.items():
                if last and signal in self._failing:
                    continue
                try:
                    for made in self._batches(records, signal, resource):
                        if not exporter(made):
                            raise ConnectionError("it takes nothing, or does not answer")
                    self._failing.discard(signal)
                except Exception as error:
                    failed[signal] = error
            self._failed({signal: error for signal, error in failed.items() if signal not in self._failing})

    def _sleep(self) -> None:
        """For an interval, unless somebody wakes the thread."""
        with suppress(Empty):
            self._wakes.get(timeout=max(_LEAST, config.value("otel_metric_export_interval")))
            while True:
                self._wakes.get_nowait()

    def _batches(self, records: Any, signal: str, resource: Any) -> Iterator[Any]:
        if signal == "METRICS":
            yield self._metrics(records, resource)
            return
        waiting = self._waiting[signal]
        dropped, waiting.dropped = waiting.dropped, 0
        if dropped:
            self._say_once(f"{dropped} {signal.lower()} were dropped: more came than the collector took in time")
        make = records.span if signal == "TRACES" else records.log
        left = len(waiting)  # not what comes meanwhile
        while left:
            taken = [waiting.popleft() for _ in range(min(_BATCH, left))]
            left -= len(taken)
            yield [make(each, self._hub.address, resource) for each in taken]

    def _metrics(self, records: Any, resource: Any) -> Any:
        """All of them, asked for on a thread that may hang in a callback of the program; that instrument has no values until it returns."""
        made: list[Any] = []

        def ask() -> None:
            try:
                made.append(records.metrics(self._hub, resource))
            except Exception as error:
                made.append(error)

        asks = threading.Thread(target=ask, name="monarch-otlp-metrics", daemon=True)
        asks.start()
        begin = time.monotonic()
        while asks.is_alive() and time.monotonic() - begin < (_LAST / 3 if self._ends else _CALLBACKS):
            asks.join(_LEAST)
        if not made:
            raise TimeoutError(f"callbacks of {', '.join(records.hanging()) or 'metrics'} did not return")
        if isinstance(made[0], Exception):
            raise made[0]
        return made[0]

    def _failed(self, news: dict[str, Exception]) -> None:
        if news:
            signals = ", ".join(signal.lower() for signal in news)
            why = "; ".join(dict.fromkeys(map(str, news.values())))
            self._complain(
                f"OpenTelemetry's collector fails for {signals}: {why}; it is tried again, and this is said once"
            )
        self._failing.update(news)

    def _say_once(self, text: str) -> None:
        kind = text.lstrip("0123456789")
        if kind not in self._said:
            self._said.add(kind)
            self._complain(f"{text}; this is said once")

    def _complain(self, text: str) -> None:
        if self._rank == 0:  # of a thousand ranks one line is enough
            _logger.warning(text)
        note("telemetry", "%s", text)


class _Waiting(deque[Any]):
    """What waits for the exporter, which is woken when that is half of the most."""

    def __init__(self, wakes: SimpleQueue[None]) -> None:
        super().__init__(maxlen=_MOST)
        self.dropped = 0
        self._wakes = wakes

    def append(self, each: Any) -> None:
        count = len(self)
        self.dropped += count == _MOST
        super().append(each)
        if count == _MOST // 2:
            self._wakes.put(None)


_call_handlers = logging.Logger.callHandlers


def _listen(records: _Waiting, exporter: threading.Thread) -> None:
    """Keep what loggers let through, but none of what exporting says itself. It is no handler: with one at the root, `basicConfig` would
    do nothing, and warnings of programs that have none would no longer be printed."""
    call = _call_handlers

    def keep_and_call(logger: logging.Logger, record: logging.LogRecord) -> None:
        if record.thread != exporter.ident and record.name.partition(".")[0] not in _LIBRARIES:
            try:
                record.message = record.getMessage()  # now: its arguments may change
            except Exception:  # a call of the program that is wrong: handlers say so, and raise nothing
                record.message = str(record.msg)
            records.append(record)
        call(logger, record)

    loggers: Any = logging.Logger
    loggers.callHandlers = keep_and_call


def _forget() -> None:
    """In a fork, which has no thread that exports."""
    loggers: Any = logging.Logger
    loggers.callHandlers = _call_handlers
    spans.finished = None
