"""Rows of tables in the text format of Prometheus, for the servers of it. Pure.

``exposition(read(*SCRAPED).get())`` is a whole answer to a scrape, of all processes of a program.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Any

from .answer import Collected
from .tables import number_of

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Of the answer to a scrape."""

_STATES: dict[str, tuple[str, dict[str, str]]] = {
    "procs": ("mesh rank pid", {
        "cpu_seconds": "proc_cpu_seconds_total", "rss_bytes": "proc_resident_memory_bytes", "threads": "proc_threads",
        "descriptors": "proc_open_descriptors",
    }),
    "hosts": ("machine address", {
        "cpu_seconds": "host_cpu_seconds_total", "load_1m": "host_load_1m", "memory_bytes": "host_memory_bytes",
        "memory_available_bytes": "host_memory_available_bytes", "swap_used_bytes": "host_swap_used_bytes",
        "rx_bytes": "host_network_receive_bytes_total", "tx_bytes": "host_network_transmit_bytes_total",
        "disk_bytes": "host_disk_bytes", "disk_available_bytes": "host_disk_available_bytes",
    }),
    "gpus": ("vendor gpu uuid name", {
        "memory_bytes": "gpu_memory_bytes", "memory_used_bytes": "gpu_memory_used_bytes", "busy_percent": "gpu_busy_percent",
        "celsius": "gpu_celsius", "watts": "gpu_watts",
    }),
    "handled": ("actor rank endpoint", {"count": "messages_handled_total", "failed": "messages_failed_total"}),
}  # fmt: skip
"""Of tables of things the columns that tell them apart, and the metrics of others, less ``monarch_``;
what ends with ``_total`` is a counter.
"""

SCRAPED = (*_STATES, "metric_gauges", "metric_sums", "metric_histograms")
"""The tables that are exposed."""

_UNITS = {
    "By": "bytes",
    "s": "seconds",
    "ms": "milliseconds",
    "us": "microseconds",
    "ns": "nanoseconds",
}
_ESCAPED = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})

_RESERVED = {"mesh", "rank", "pid", "machine", "otel_scope_name", "le"}
"""Labels that are not the program's to set: what it calls so is `exported_`, as Prometheus does."""

Row = Mapping[str, Any]
Labels = dict[str, str]
Sample = tuple[str, Labels, float]


class _Families:
    """Samples by metric; all samples of one stand together."""

    def __init__(self) -> None:
        self._kinds: dict[str, str] = {}
        self._samples: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], float]] = {}

    def add(self, name: str, kind: str, samples: Iterable[Sample]) -> None:
        if self._kinds.setdefault(name, kind) != kind:  # two meters have one of each kind
            name = f"{name}_{kind}"
            self._kinds[name] = kind
        for suffix, labels, value in samples:
            known = self._samples.setdefault(name, {})
            series = name + suffix, tuple(labels.items())
            # two actors of one name, say: a series may be there only once
            known[series] = known.get(series, 0) + value

    def lines(self) -> Iterator[str]:
        for name, samples in self._samples.items():
            yield f"# TYPE {name} {self._kinds[name]}"
            for (sample, labels), value in samples.items():
                written = ",".join(
                    f'{label}="{text.translate(_ESCAPED)}"' for label, text in labels
                )
                yield f"{sample}{{{written}}} {_number(value)}"

    def samples(self) -> Iterator[dict[str, Any]]:
        for name, found in self._samples.items():
            for (sample, labels), value in found.items():
                # JSON has no numbers that are none
                number = value if math.isfinite(value) else _number(value)
                yield {
                    "name": sample,
                    "kind": self._kinds[name],
                    "labels": dict(labels),
                    "value": number,
                }


def exposition(found: Collected) -> str:
    """Return the tables in Prometheus's text format.

    Args:
        found: The tables `SCRAPED`, or some of them.
    """
    return "".join(f"{line}\n" for line in _families(found).lines())


def samples(found: Collected) -> list[dict[str, Any]]:
    """Return the samples one by one: ``name``, ``kind``, ``labels``, ``value``."""
    return list(_families(found).samples())


def _families(found: Collected) -> _Families:
    families = _Families()

    def rows(table: str) -> list[dict[str, Any]]:
        return found.rows(table) if table in found.columns else []

    hosts = {row["id"]: row["machine"] for row in rows("hosts")}
    places = {row["id"]: _place(row, hosts) for row in rows("procs")}
    for table, (names, metrics) in _STATES.items():
        for row in rows(table):
            labels = {name: str(row[name]) for name in names.split()}
            if table == "handled":
                labels = {**places.get(row["proc_id"], {}), **labels}
            elif "host_id" in row:
                labels["machine"] = hosts.get(row["host_id"], "")
            for column, name in metrics.items():
                if row[column] is not None:
                    kind = "counter" if name.endswith("_total") else "gauge"
                    families.add(f"monarch_{name}", kind, [("", labels, row[column])])
    for table in ("metric_gauges", "metric_sums", "metric_histograms"):
        for row in rows(table):
            _add_metric(families, row, places)
    if found.silent:
        families.add(
            "monarch_silent",
            "gauge",
            [("", {"who": who, "why": why}, 1) for who, why in found.silent.items()],
        )
    return families


def _add_metric(families: _Families, row: Row, places: Mapping[int, Labels]) -> None:
    resource = json.loads(row["resource_attributes_json"])
    labels = {
        **places.get(int(resource.get("proc_id", 0)), {"pid": str(resource.get("process.pid", ""))})
    }
    labels["otel_scope_name"] = row["scope_name"]
    own: Labels = {}
    for key, value in sorted(json.loads(row["attributes_json"]).items()):
        label, text = _label(key), value if isinstance(value, str) else json.dumps(value)
        # `a.b` and `a_b`, as OpenTelemetry has it
        own[label] = f"{own[label]};{text}" if label in own else text
    labels |= {
        f"exported_{label}" if label in _RESERVED else label: text for label, text in own.items()
    }
    name = _metric(row["name"], row["unit"])
    if "bucket_counts_json" in row:
        bounds = [*map(_number, json.loads(row["bounds_json"])), "+Inf"]
        counts = accumulate(json.loads(row["bucket_counts_json"]))
        samples: list[Sample] = [
            ("_bucket", {**labels, "le": bound}, count)
            for bound, count in zip(bounds, counts, strict=True)
        ]
        families.add(
            name,
            "histogram",
            [*samples, ("_sum", labels, number_of(row, "sum")), ("_count", labels, row["count"])],
        )
    elif row.get("is_monotonic"):
        families.add(
            f"{name.removesuffix('_total')}_total", "counter", [("", labels, number_of(row, "sum"))]
        )
    else:
        families.add(
            name,
            "gauge",
            [("", labels, number_of(row, "sum" if "is_monotonic" in row else "value"))],
        )


def _place(proc: Row, hosts: Mapping[int, str]) -> Labels:
    return {
        "mesh": proc["mesh"],
        "rank": str(proc["rank"]),
        "pid": str(proc["pid"]),
        "machine": hosts.get(proc["host_id"], ""),
    }


def _metric(name: str, unit: str) -> str:
    plain = re.sub(r"[^a-zA-Z0-9_:]", "_", name)
    suffix = _UNITS.get(unit, "")
    plain = plain if not suffix or suffix in plain else f"{plain}_{suffix}"
    return f"_{plain}" if plain[:1].isdigit() or not plain else plain


def _label(name: str) -> str:
    plain = re.sub(r"[^a-zA-Z0-9_]", "_", name)
    return f"_{plain}" if plain[:1].isdigit() or not plain else plain


def _number(value: float) -> str:
    if isinstance(value, int):
        return str(value)
    return repr(value).replace("inf", "Inf").replace("nan", "NaN")
