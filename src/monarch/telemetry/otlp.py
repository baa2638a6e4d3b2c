"""Sends this process's metrics, spans and records of `logging` by OpenTelemetry.

The environment names the collector.

Imported by a process that finds `OTEL_EXPORTER_OTLP_ENDPOINT`, or that of a signal, at its start. A
thread for each signal does it: it reads what the process counts anyway, as a query would; only
spans add to the path of messages: their trace context. What a collector does not take in time is
dropped, oldest first, and said once. A signal that fails, or takes long, holds up no other.

What ends the waits of such a thread: the interval, or a queue that is half full;
`OTEL_EXPORTER_OTLP_TIMEOUT` of each request; `_CALLBACKS` seconds for callbacks of metrics. Waits
for all of them, at the end of the process: `_LAST` seconds.
"""

from __future__ import annotations

# imported before `start`: exit functions run in reverse order of registration
import concurrent.futures.thread  # noqa: F401
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
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
_LAST = 3.0  # seconds for the rest at the end
_LIBRARIES = ("opentelemetry", "urllib3", "requests")
_logger = lazy_logger("monarch.telemetry")


def start(hub: Hub, name: Callable[[], str], rank: int) -> None:
    """Export from now on what this process does, until its end.

    Args:
        hub: Of the process.
        name: Gives the name of its mesh.
        rank: Its rank there; only the first rank warns of failures.
    """
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() != "true":
        exporter = _Exporter(hub, name, rank)
        exporter.start()
        # as `concurrent.futures` does: after that the SDK can't even be imported, as it makes
        # threads
        threading._register_atexit(exporter.end)  # type: ignore[attr-defined]


def _wanted(signal: str) -> bool:
    """Return whether this signal is to be exported, and has a receiver."""
    allowed = os.environ.get(f"OTEL_{signal}_EXPORTER", "otlp").lower() == "otlp"
    if signal == "METRICS":
        allowed = allowed and config.value("enable_otel_metrics")
    if signal == "TRACES":
        allowed = allowed and config.value("enable_otel_tracing")
    return allowed and bool(_of_signal(signal, "ENDPOINT"))


def _of_signal(signal: str, what: str) -> str:
    return os.environ.get(f"OTEL_EXPORTER_OTLP_{signal}_{what}") or os.environ.get(
        f"OTEL_EXPORTER_OTLP_{what}", ""
    )


class _Exporter:
    def __init__(self, hub: Hub, name: Callable[[], str], rank: int) -> None:
        self._hub = hub
        self._name = name
        self._rank = rank
        self._signals = [signal for signal in ("LOGS", "TRACES", "METRICS") if _wanted(signal)]
        self._waiting = {signal: _Waiting() for signal in self._signals}  # nothing, of metrics
        self._ends = False
        self._threads = {
            signal: threading.Thread(
                target=self._run, args=(signal,), name=f"monarch-otlp-{signal.lower()}", daemon=True
            )
            for signal in self._signals
        }
        self._failing: set[str] = set()
        self._said: set[str] = set()
        self._saying = threading.Lock()
        self._pid = os.getpid()

    def start(self) -> None:
        if "TRACES" in self._signals:
            spans.finished = self._waiting["TRACES"]
            spans.follow(self._hub)
        if "LOGS" in self._signals:
            _listen(self._waiting["LOGS"], self._threads.values())
        os.register_at_fork(after_in_child=_forget)
        for thread in self._threads.values():
            thread.start()

    def end(self) -> None:
        """Export the rest, if the collector takes any of it."""
        if os.getpid() == self._pid:  # a fork has no such thread
            self._ends = True
            end = time.monotonic() + _LAST
            for waiting in self._waiting.values():
                waiting.wakes.put(None)
            for signal, thread in self._threads.items():
                if signal not in self._failing:
                    thread.join(max(0.0, end - time.monotonic()))

    # on the thread of a signal

    def _run(self, signal: str) -> None:
        try:
            records = import_module(".otlp_records", __package__)
            records.silence()
            export = records.exporter(signal)
            resource = records.resource(self._hub, self._name(), self._rank)
        except ImportError as error:
            self._complain(
                f"OTEL_EXPORTER_OTLP_ENDPOINT is set, and {error.name} is missing: pip install"
                " 'pymonarch[otel]'"
            )
            return
        except Exception as error:  # a variable that makes no sense
            self._complain(f"nothing is exported to OpenTelemetry: {type(error).__name__}: {error}")
            return
        protocol = _of_signal(signal, "PROTOCOL")
        if protocol not in ("", "http/protobuf"):
            self._complain(
                f"OTLP over {protocol} is not spoken: {signal.lower()} are sent by http/protobuf"
            )
        last = False
        while not last:
            self._waiting[signal].sleep()
            last = self._ends
            if last and signal in self._failing:
                return
            try:
                for made in self._batches(records, signal, resource):
                    if not export(made):
                        raise ConnectionError("it takes nothing, or does not answer")
                self._failing.discard(signal)
            except Exception as error:
                if signal in self._failing:
                    continue
                self._failing.add(signal)
                text = (
                    f"OpenTelemetry's collector fails for {signal.lower()}: {error}; it is tried"
                    " again, and this is said once"
                )
                self._complain(text, str(error))

    def _batches(self, records: Any, signal: str, resource: Any) -> Iterator[Any]:
        if signal == "METRICS":
            yield self._metrics(records, resource)
            return
        waiting = self._waiting[signal]
        dropped, waiting.dropped = waiting.dropped, 0
        if dropped:
            text = (
                f"{dropped} {signal.lower()} were dropped: more came than the collector took in"
                " time; this is said once"
            )
            self._complain(text, f"{signal} dropped")
        make = records.span if signal == "TRACES" else records.log
        left = len(waiting)  # not what comes meanwhile
        while left:
            taken = [waiting.popleft() for _ in range(min(_BATCH, left))]
            left -= len(taken)
            yield [make(each, self._hub.address, resource) for each in taken]

    def _metrics(self, records: Any, resource: Any) -> Any:
        """Collect all values on a thread, as a callback of the program may hang.

        That instrument has no values until it returns.
        """
        made: list[Any] = []

        def ask() -> None:
            try:
                made.append(records.metrics(self._hub, resource))
            except Exception as error:
                made.append(error)

        asks = threading.Thread(target=ask, name="monarch-otlp-metrics", daemon=True)
        asks.start()
        begin = time.monotonic()
        while asks.is_alive() and time.monotonic() - begin < (
            _LAST / 3 if self._ends else _CALLBACKS
        ):
            asks.join(_LEAST)
        if not made:
            raise TimeoutError(
                f"callbacks of {', '.join(records.hanging()) or 'metrics'} did not return"
            )
        if isinstance(made[0], Exception):
            raise made[0]
        return made[0]

    def _complain(self, text: str, kind: str = "") -> None:
        """Report an error once per kind.

        A dead collector fails for each signal.
        """
        with self._saying:
            if (kind or text) in self._said:
                return
            self._said.add(kind or text)
        if self._rank == 0:  # of a thousand ranks one line is enough
            _logger.warning(text)
        note("telemetry", "%s", text)


class _Waiting(deque[Any]):
    """The entries that wait for the thread of a signal.

    It is woken when they are half of the maximum.
    """

    def __init__(self) -> None:
        super().__init__(maxlen=_MOST)
        self.dropped = 0
        # as its `put` may be called in a signal handler
        self.wakes: SimpleQueue[None] = SimpleQueue()

    def append(self, each: Any) -> None:
        count = len(self)
        self.dropped += count == _MOST
        super().append(each)
        if count == _MOST // 2:
            self.wakes.put(None)

    def sleep(self) -> None:
        """Sleep for an interval, unless woken."""
        with suppress(Empty):
            self.wakes.get(timeout=max(_LEAST, config.value("otel_metric_export_interval")))
            while True:
                self.wakes.get_nowait()


_call_handlers = logging.Logger.callHandlers


def _listen(records: _Waiting, exporters: Collection[threading.Thread]) -> None:
    """Keep what loggers let through, but none of what exporting says itself.

    It is no handler: with one at the root, `basicConfig` would do nothing, and warnings of programs
    that have none would no longer be printed.
    """
    call = _call_handlers

    def keep_and_call(logger: logging.Logger, record: logging.LogRecord) -> None:
        own = any(record.thread == each.ident for each in exporters)
        if not own and record.name.partition(".")[0] not in _LIBRARIES:
            try:
                record.message = record.getMessage()  # now: its arguments may change
            except Exception:
                # a call of the program that is wrong: handlers say so, and raise nothing
                record.message = str(record.msg)
            records.append(record)
        call(logger, record)

    loggers: Any = logging.Logger
    loggers.callHandlers = keep_and_call


def _forget() -> None:
    """Forget the exporting thread in a fork, which does not have it."""
    loggers: Any = logging.Logger
    loggers.callHandlers = _call_handlers
    spans.finished = None
