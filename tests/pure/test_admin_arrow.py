"""Arrow over HTTP: what is kept of snapshots that were sent, and what is said without the library."""

from __future__ import annotations

import math
import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest

from monarch.admin import arrow
from monarch.telemetry.query import FoundRows
from monarch.telemetry.tables import TABLES

arro3 = pytest.importorskip("arro3.core")
pytest.importorskip("arro3.io")
pytest.importorskip("duckdb")
helper = pytest.importorskip("monarch.admin.helper", exc_type=ImportError)


def table(number: int) -> Any:
    """A snapshot of one moment."""
    ids, times = [f"s{number}"], [number]
    kinds = arro3.DataType.utf8(), arro3.DataType.int64()
    arrays = [arro3.Array(v, type=kind) for v, kind in zip((ids, times), kinds, strict=True)]
    return arro3.Table.from_arrays(arrays, names=["snapshot_id", "snapshot_ts"])


def test_a_table_that_was_written_is_read_back() -> None:
    assert arrow.decode(arrow.encode(table(1))) == table(1)


def test_the_oldest_rows_go_where_there_are_too_many_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    snapshots = arrow.Snapshots()
    snapshots.add(arrow.read("snapshots", arrow.encode(table(0))))
    [kept] = snapshots._sent
    monkeypatch.setattr(arrow, "_MOST_KEPT", 3 * len(kept.stream))
    for number in range(1, 5):
        snapshots.add(arrow.read("snapshots", arrow.encode(table(number))))
    live = table(9).select(["snapshot_id"])
    found = snapshots.add_to(FoundRows({"snapshots": live, "nodes": live}, {}, {}))
    assert found.tables["snapshots"]["snapshot_id"].to_pylist() == ["s9", "s2", "s3", "s4"]
    assert found.left_out == {"snapshots": 2} and found.tables["nodes"] is live


def test_a_stream_that_unpacks_to_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "MOST_BODY", 1)
    with pytest.raises(ValueError, match="at most"):
        arrow.decode(arrow.encode(table(1)))


def test_rows_can_be_sent_for_all_tables_of_snapshots_and_no_other() -> None:
    assert "actors" not in arrow.OF_SNAPSHOTS and len(arrow.OF_SNAPSHOTS) == 13
    assert all(next(iter(TABLES[name].columns)) == "snapshot_id" for name in arrow.OF_SNAPSHOTS)


def test_without_the_library_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = arrow.encode(table(1))
    monkeypatch.setitem(sys.modules, "arro3.io", None)
    for ask in (lambda: arrow.encode(table(1)), lambda: arrow.decode(stream)):
        with pytest.raises(ImportError, match=r"pip install 'pymonarch\[arrow\]'"):
            ask()


def test_a_helper_that_keeps_a_snapshot_goes_on_when_nobody_asks() -> None:
    program: Any = SimpleNamespace(snapshots=arrow.Snapshots())
    assert helper.needed(True, program, -math.inf) and helper.needed(
        False, program, time.monotonic() + 60
    )
    assert not helper.needed(False, program, -math.inf)
    program.snapshots.add(arrow.read("snapshots", arrow.encode(table(1))))
    assert helper.needed(False, program, -math.inf)
