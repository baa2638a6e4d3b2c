"""What a collector of OpenTelemetry is told: metrics, spans and records of logging, decoded by the
official schema.
"""

from __future__ import annotations

import gzip
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from helpers.scripts import run_script

pytest.importorskip("opentelemetry.sdk", reason="pip install 'pymonarch[otel]'")
pytest.importorskip(
    "opentelemetry.exporter.otlp.proto.http", reason="pip install 'pymonarch[otel]'"
)

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

PROGRAM = """
    import logging, os, sys, time
    from monarch.actor import Actor, endpoint, get_meter, span, this_host
    from monarch.telemetry import traced

    class Trainer(Actor):
        @endpoint
        def train(self, steps):
            meter = get_meter("training")
            for step in range(steps):
                with span("step", number=step):
                    self.backward()
                meter.create_counter("samples", "1", "samples seen").add(8, {"split": "train"})
                meter.create_histogram("took", "ms").record(30)
            meter.create_gauge("loss").set(0.25)
            logging.getLogger("trainer").error("done after %d steps", steps)

        @traced
        def backward(self):
            pass

        @endpoint
        def fail(self):
            with span("failing"):
                raise ValueError("on purpose")

    if __name__ == "__main__":
        procs = this_host().spawn_procs({"gpus": 2}, name="ranks")
        trainers = procs.spawn("trainer", Trainer)
        trainers.train.call(1).get()
        while "UNTIL" in os.environ and not os.path.exists(os.environ["UNTIL"]):
            time.sleep(0.01)
        trainers.train.call(2).get()
        assert trainers.slice(gpus=0).fail.call_one().exception(timeout=60) is not None
        procs.stop().get()
    """


class Collector(ThreadingHTTPServer):
    """Decodes what it is sent, and keeps it.

    Attributes:
        found: What came in one message each: what its process says of itself, its scope, and
            itself.
        headers: Of the last request.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Receiver)
        self.found: dict[str, list[tuple[dict[str, Any], str, Any]]] = {
            "metrics": [],
            "spans": [],
            "logs": [],
        }
        self.headers: dict[str, str] = {}
        self.refused: tuple[str, ...] = ()
        self.seen = ("", Path())  # a file to make when both ranks have exported something of a kind

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def take(self, path: str, data: bytes) -> None:
        if path == "/v1/metrics":
            for of_process in ExportMetricsServiceRequest.FromString(data).resource_metrics:
                self._keep("metrics", of_process, of_process.scope_metrics, "metrics")
        elif path == "/v1/traces":
            for traces in ExportTraceServiceRequest.FromString(data).resource_spans:
                self._keep("spans", traces, traces.scope_spans, "spans")
        elif path == "/v1/logs":
            for logs in ExportLogsServiceRequest.FromString(data).resource_logs:
                self._keep("logs", logs, logs.scope_logs, "log_records")

    def _keep(self, kind: str, of_process: Any, scopes: Any, name: str) -> None:
        resource = attributes(of_process.resource)
        for scope in scopes:
            self.found[kind] += [
                (resource, scope.scope.name, each) for each in getattr(scope, name)
            ]
        wanted, file = self.seen
        who = (
            {
                resource["monarch.rank"]
                for resource, scope, _ in self.found[wanted]
                if scope in ("training", "trainer")
            }
            if wanted
            else ()
        )
        if len(who) == 2:
            file.touch()

    def of_rank(self, kind: str, name: str, rank: int) -> list[Any]:
        """Metrics or spans of one rank, in their order."""
        return [
            each
            for resource, _, each in self.found[kind]
            if each.name == name
            and (resource["monarch.mesh"], resource["monarch.rank"]) == ("ranks", rank)
        ]


class _Receiver(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.headers = dict(self.headers)
        self.server.take(
            self.path, gzip.decompress(data) if self.headers["Content-Encoding"] == "gzip" else data
        )
        self.send_response(404 if self.path in self.server.refused else 200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    # its base class calls it that
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        threading.Thread(target=server.serve_forever, name="collector", daemon=True).start()
        yield server
        server.shutdown()


def attributes(message: Any) -> dict[str, Any]:
    return {
        each.key: getattr(each.value, each.value.WhichOneof("value")) for each in message.attributes
    }


def environment(endpoint: str, **more: str) -> dict[str, str]:
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_METRIC_EXPORT_INTERVAL": "200", **more}


def test_a_collector_is_told_metrics_spans_and_records_of_all_processes(
    collector: Collector, tmp_path: Path
) -> None:
    standard = {
        "OTEL_SERVICE_NAME": "my-training",
        "OTEL_RESOURCE_ATTRIBUTES": "team=research,host.name=here",
        "HYPERACTOR_MESH_ENABLE_FILE_CAPTURE": "true",
        "OTEL_EXPORTER_OTLP_HEADERS": "x-token=abc",
        "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
    }
    collector.seen = "metrics", tmp_path / "seen"
    standard["UNTIL"] = str(tmp_path / "seen")
    done = run_script(PROGRAM, cwd=tmp_path, env=environment(collector.endpoint, **standard))
    assert done.exit_code == 0 and "OpenTelemetry" not in done.stderr, done
    assert (collector.headers["x-token"], collector.headers["Content-Encoding"]) == ("abc", "gzip")

    resource, scope, counter = next(
        found for found in collector.found["metrics"] if found[2].name == "samples"
    )
    assert (scope, counter.unit, counter.description, counter.sum.is_monotonic) == (
        "training",
        "1",
        "samples seen",
        True,
    )
    assert (resource["service.name"], resource["team"], resource["host.name"]) == (
        "my-training",
        "research",
        "here",
    )
    assert done.stderr.count("] done after 2 steps") == 2  # they are printed, as ever
    [job] = {
        found["monarch.job"]
        for found, _, _ in collector.found["metrics"]
        if found["monarch.mesh"] == "ranks"
    }
    assert re.fullmatch(r"\d{8}-\d{6}_\d+", job)  # as of a program that is no job
    assert {found["monarch.mesh"] for found, _, _ in collector.found["metrics"]} == {
        "client",
        "ranks",
    }
    for rank in (0, 1):
        [point] = collector.of_rank("metrics", "samples", rank)[-1].sum.data_points
        assert (point.as_int, attributes(point)) == (24, {"split": "train"})
        [point] = collector.of_rank("metrics", "took", rank)[-1].histogram.data_points
        assert (point.count, point.sum, point.min, point.max) == (3, 90, 30, 30)
        assert point.bucket_counts[list(point.explicit_bounds).index(50)] == 3
        assert collector.of_rank("metrics", "loss", rank)[-1].gauge.data_points[0].as_double == 0.25
        [received] = collector.of_rank("metrics", "actor.messages_received", rank)[
            -1
        ].sum.data_points
        assert received.as_int >= 1 and attributes(received)["actor"] == "trainer"

        steps = collector.of_rank("spans", "step", rank)  # each once
        assert [attributes(step)["number"] for step in steps] == [0, 0, 1]
        backward = collector.of_rank("spans", "Trainer.backward", rank)
        assert [span.parent_span_id for span in backward] == [step.span_id for step in steps]
        assert [span.trace_id for span in backward] == [step.trace_id for step in steps]
        assert all(
            step.start_time_unix_nano <= step.end_time_unix_nano and not step.parent_span_id
            for step in steps
        )
    ids = [(span.trace_id, span.span_id) for _, _, span in collector.found["spans"]]
    assert len(set(ids)) == len(ids) == 13
    [failing] = collector.of_rank("spans", "failing", 0)
    assert (
        failing.status.code == failing.status.STATUS_CODE_ERROR
        and "on purpose" in failing.status.message
    )

    logs = [
        (resource["monarch.rank"], record)
        for resource, scope, record in collector.found["logs"]
        if scope == "trainer"
    ]
    assert sorted(
        (rank, record.body.string_value.rpartition("] ")[2]) for rank, record in logs
    ) == [(rank, f"done after {steps} steps") for rank in (0, 1) for steps in (1, 2)]
    assert all(
        record.severity_text == "ERROR" and attributes(record)["code.line.number"] > 0
        for _, record in logs
    )
    assert not {scope for _, scope, _ in collector.found["logs"]} & {
        "urllib3.connectionpool",
        "opentelemetry",
    }


ACROSS = """
    import os
    from monarch.actor import Actor, endpoint, span, this_host
    from monarch.telemetry import trace_context
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider

    class Inner(Actor):
        @endpoint
        async def work(self):
            with span("inner"):
                return trace_context()

    class Outer(Actor):
        @endpoint
        def work(self, inner):
            return [inner.work.call_one().get(), trace_context()]

    if __name__ == "__main__":
        procs = this_host().spawn_procs({"gpus": 1}, name="ranks")
        outer, inner = procs.spawn("outer", Outer), procs.spawn("inner", Inner)
        assert trace_context() == {} and outer.work.call_one(inner).get()[1] == {}
        with span("request"):
            print(trace_context()["traceparent"], *(each["traceparent"] for each in outer.work.call_one(inner).get()))
        with TracerProvider().get_tracer("mine").start_as_current_span("theirs") as theirs:
            context = theirs.get_span_context()
            print(f"{context.trace_id:032x}", *(each["traceparent"] for each in outer.work.call_one(inner).get()))
        out = trace.SpanContext(1, 2, is_remote=True, trace_flags=trace.TraceFlags(0))  # its trace was sampled out
        with trace.use_span(trace.NonRecordingSpan(out)):
            print(*(each["traceparent"].split("-")[3] for each in outer.work.call_one(inner).get()))
        assert outer.work.call_one(inner).get()[1] == {}
        procs.stop().get()
    """


def test_the_trace_context_of_a_caller_goes_along_with_its_calls_and_theirs(
    collector: Collector, tmp_path: Path
) -> None:
    done = run_script(ACROSS, cwd=tmp_path, env=environment(collector.endpoint))
    assert done.exit_code == 0, done
    [request, inner, outer], [trace, *theirs], flags_out = (
        line.split() for line in done.stdout.splitlines()
    )
    version, number, own, flags = request.split("-")
    # who calls on has the context of its own call
    assert (version, flags, outer) == ("00", "01", request)
    assert inner.split("-")[1] == number and inner.split("-")[2] != own
    assert [each.split("-")[1] for each in theirs] == [trace, trace]
    [of_request] = [each for _, _, each in collector.found["spans"] if each.name == "request"]
    assert (of_request.trace_id.hex(), of_request.span_id.hex()) == (number, own)
    called = {each.trace_id.hex(): each for each in collector.of_rank("spans", "inner", 0)}
    assert flags_out == ["00", "00"] and 1 not in {int(number, 16) for number in called}
    assert len(called) == 4 and called[number].parent_span_id.hex() == own
    assert called[trace].parent_span_id and called[trace].span_id.hex() == theirs[0].split("-")[2]


def test_signals_that_are_switched_off_are_not_sent(collector: Collector, tmp_path: Path) -> None:
    collector.seen = "logs", tmp_path / "seen"
    off = {
        "OTEL_TRACES_EXPORTER": "none",
        "ENABLE_OTEL_METRICS": "false",
        "UNTIL": str(tmp_path / "seen"),
    }
    done = run_script(PROGRAM, cwd=tmp_path, env=environment(collector.endpoint, **off))
    assert done.exit_code == 0, done
    assert (
        collector.found["logs"] and not collector.found["metrics"] and not collector.found["spans"]
    )


def test_a_collector_that_is_not_there_costs_one_warning(tmp_path: Path) -> None:
    with Collector() as server:
        endpoint = server.endpoint  # nothing listens there any more
    program = """
        import logging, sys, time
        from monarch.actor import this_host

        class Told(logging.Handler):
            def emit(self, record):
                told.append(record)
                print(record.getMessage(), file=sys.stderr)

        if __name__ == "__main__":
            told = []
            logging.getLogger("monarch.telemetry").addHandler(Told())
            procs = this_host().spawn_procs({"gpus": 2}, name="ranks")
            procs.initialized.get()
            while not told:
                time.sleep(0.01)
            time.sleep(0.5)  # more exports fail meanwhile
            procs.stop().get()
        """
    done = run_script(
        program, cwd=tmp_path, env=environment(endpoint, OTEL_EXPORTER_OTLP_TIMEOUT="1")
    )
    assert done.exit_code == 0, done
    warnings = [line for line in done.stderr.splitlines() if "collector" in line]
    assert 1 <= len(warnings) <= 2, done  # of the client, and of the first rank
    assert "opentelemetry.exporter" not in done.stderr and "Traceback" not in done.stderr


def test_a_collector_that_never_answers_holds_up_no_end(tmp_path: Path) -> None:
    held = threading.Event()

    class Silent(Collector):
        def take(self, path: str, data: bytes) -> None:
            held.wait(60)

    with Silent() as server:
        threading.Thread(target=server.serve_forever, name="collector", daemon=True).start()
        done = run_script(
            PROGRAM,
            cwd=tmp_path,
            env=environment(server.endpoint, OTEL_EXPORTER_OTLP_TIMEOUT="50"),
            timeout=80,
        )
        held.set()
        server.shutdown()
    assert done.exit_code == 0 and "Traceback" not in done.stderr, done


def test_a_collector_that_takes_no_metrics_is_told_spans_and_records_all_the_same(
    collector: Collector, tmp_path: Path
) -> None:
    collector.refused = ("/v1/metrics",)
    collector.seen = "logs", tmp_path / "seen"
    program = PROGRAM.replace(
        "trainers.train.call(2)",
        """logging.getLogger("requests_of_mine").error("not of the library")
        logging.raiseExceptions = False
        logging.getLogger("trainer").error("%d is a number", "none")
        logging.getLogger("trainer").error("half of a pair: \\ud800")
        trainers.train.call(2)""",
    )
    done = run_script(
        program, cwd=tmp_path, env=environment(collector.endpoint, UNTIL=str(tmp_path / "seen"))
    )
    assert done.exit_code == 0, done
    # those of the first round and of the last
    assert len(collector.of_rank("spans", "step", 0)) == 3
    bodies = {record.body.string_value for _, _, record in collector.found["logs"]}
    said = ("not of the library", "%d is a number", "half of a pair: \\ud800")
    assert {f"[actor=<root>] {each}" for each in said} <= bodies


def test_a_collector_that_takes_long_for_records_is_told_metrics_all_the_same(
    tmp_path: Path,
) -> None:
    held = threading.Event()

    class Slow(Collector):
        def take(self, path: str, data: bytes) -> None:
            if path == "/v1/logs":
                held.wait(100)
            super().take(path, data)

    with Slow() as server:
        server.seen = "metrics", tmp_path / "seen"
        threading.Thread(target=server.serve_forever, name="collector", daemon=True).start()
        wanted = environment(
            server.endpoint, OTEL_EXPORTER_OTLP_TIMEOUT="100", UNTIL=str(tmp_path / "seen")
        )
        done = run_script(PROGRAM, cwd=tmp_path, env=wanted, timeout=90)
        held.set()
        server.shutdown()
    assert done.exit_code == 0 and (tmp_path / "seen").exists(), done


def test_a_callback_that_hangs_holds_up_neither_spans_nor_the_end(
    collector: Collector, tmp_path: Path
) -> None:
    program = """
        import threading
        from monarch.actor import get_meter, span, this_host

        def hang(options):
            threading.Event().wait()

        if __name__ == "__main__":
            get_meter("mine").create_observable_gauge("hung", [hang])
            with span("before"):
                this_host().spawn_procs({"gpus": 1}, name="ranks").stop().get()
        """
    done = run_script(program, cwd=tmp_path, env=environment(collector.endpoint), timeout=80)
    assert done.exit_code == 0, done
    assert "before" in {each.name for _, _, each in collector.found["spans"]}
