"""The records of a run, pure: samples of each side, rows, the report, and its two JSON forms."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import targets
from benchmarks.catalog import Better, Workload

FORMAT = 1

Extra = Mapping[str, float | str]


@dataclass(frozen=True)
class Side:
    """What one environment did with one workload over all rounds.

    With an `error` there is no value to trust.
    """

    samples: tuple[float, ...] = ()
    extra: Extra = field(default_factory=dict)
    error: str | None = None

    @property
    def value(self) -> float | None:
        """The median of the rounds, or None if one failed or none was run."""
        return statistics.median(self.samples) if self.samples and self.error is None else None


@dataclass(frozen=True)
class Row:
    """One workload under every contestant."""

    name: str
    title: str
    unit: str
    better: Better
    floor: float | None
    this: Side
    other: Side | None = None
    judged: bool = True

    @property
    def ratio(self) -> float | None:
        return targets.ratio(self.better, self.this.value, self.other.value if self.other else None)

    @property
    def verdict(self) -> targets.Verdict:
        if self.this.error is not None:
            return "failed"
        value = self.this.value
        target = targets.TARGETS.get(self.name) if self.judged else None
        return "-" if value is None else targets.verdict(target, value, self.ratio, self.floor)


@dataclass(frozen=True)
class Report:
    """A whole run. `this` and `other` name the contestants, e.g. "pymonarch 0.1.0"."""

    machine: Mapping[str, float | str]
    date: str
    rounds: int
    scale: float
    payload: str
    this: str
    other: str | None
    floor: Side
    rows: tuple[Row, ...]


def merge_extras(extras: Sequence[Extra]) -> dict[str, float | str]:
    """The median of each number over the rounds; of text, the last."""
    merged: dict[str, float | str] = {}
    for key in dict.fromkeys(key for extra in extras for key in extra):
        values = [extra[key] for extra in extras if key in extra]
        numbers = [value for value in values if not isinstance(value, str)]
        merged[key] = statistics.median(numbers) if len(numbers) == len(values) else values[-1]
    return merged


def floor_of(workload: Workload, floor: Side, this: Side | None = None) -> float | None:
    """The floor in the unit of `workload`, from the floor workload's samples, or from what it
    measured beside its own.
    """
    if workload.floor == "beside":
        copy = this.extra.get("copy") if this is not None else None
        return None if copy is None else float(copy)
    if workload.floor is None or floor.value is None:
        return None
    if workload.floor == "ping":
        return floor.value
    per_mib = floor.extra.get("copy_ms_per_mib")
    return None if per_mib is None else float(per_mib) * workload.floor_mib


def to_document(report: Report) -> dict[str, Any]:
    """The stored form.

    Medians, ratios and verdicts are written out for readers and derived again on loading.
    """
    document: dict[str, Any] = {"format": FORMAT, **asdict(report)}
    for written, row in zip(document["rows"], report.rows, strict=True):
        written["this"]["value"] = row.this.value
        if row.other is not None:
            written["other"]["value"] = row.other.value
        written |= {"ratio": row.ratio, "verdict": row.verdict}
    return document


def from_document(document: Mapping[str, Any]) -> Report:
    """The reverse of `to_document`.

    Raises:
        ValueError: the document has another format.
    """
    if document.get("format") != FORMAT:
        raise ValueError(
            f"a result file of format {document.get('format')!r}; this code reads {FORMAT}"
        )
    plain = {
        key: document[key]
        for key in ("machine", "date", "rounds", "scale", "payload", "this", "other")
    }
    rows = tuple(_row(written) for written in document["rows"])
    floor = _side(document["floor"])
    assert floor is not None
    return Report(**plain, floor=floor, rows=rows)


def to_lines(report: Report) -> Iterator[str]:
    """One self-contained JSON line per row: the row, the machine and the settings of the run."""
    document = to_document(report)
    rows = document.pop("rows")
    common = {
        "machine": document["machine"],
        "environments": {key: document[key] for key in ("this", "other")},
    }
    settings = {key: document[key] for key in ("date", "rounds", "scale", "payload")}
    for row in rows:
        yield json.dumps({**row, **common, **settings}, ensure_ascii=False)


def save(report: Report, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        json.dumps(to_document(report), indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
    )


def load(path: Path) -> Report:
    return from_document(json.loads(path.read_text(encoding="utf-8")))


def _side(written: Mapping[str, Any] | None) -> Side | None:
    if written is None:
        return None
    return Side(tuple(written["samples"]), dict(written["extra"]), written["error"])


def _row(written: Mapping[str, Any]) -> Row:
    this = _side(written["this"])
    assert this is not None
    plain = {key: written[key] for key in ("name", "title", "unit", "better", "floor", "judged")}
    return Row(**plain, this=this, other=_side(written["other"]))
