"""Arrow over HTTP: what is kept of snapshots that were sent, and what is said without the library."""

from __future__ import annotations

import importlib
import io
import math
import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest

from monarch.admin import arrow
from monarch.admin.arrow_size import unpacked_size
from monarch.telemetry.query import FoundRows
from monarch.telemetry.tables import TABLES

arro3 = pytest.importorskip("arro3.core")
pytest.importorskip("arro3.io")
duckdb = pytest.importorskip("duckdb")
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


def streams(values: Any) -> dict[str | None, bytes]:
    """The stream of a table with these values, in each way to compress it."""
    found = {}
    for how in (None, "lz4", "zstd"):
        written = io.BytesIO()
        importlib.import_module("arro3.io").write_ipc_stream(values, written, compression=how)
        found[how] = written.getvalue()
    return found


@pytest.mark.parametrize("how", ["lz4", "zstd"])
def test_a_small_stream_that_unpacks_to_too_much_is_not_unpacked(
    monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    text = arro3.Array(["x" * (65 << 20)], type=arro3.DataType.utf8())
    bomb = streams(arro3.Table.from_arrays([text], names=["snapshot_id"]))[how]
    assert len(bomb) < 1 << 20
    monkeypatch.setattr(arrow, "_streams", object)  # it is not asked
    with pytest.raises(ValueError, match=r"at most 67,108,864 bytes of values, and this one 68,"):
        arrow.decode(bomb)


def test_the_size_of_what_a_stream_unpacks_to_is_known_before() -> None:
    for values in (table(1), arro3.Table.from_batches(table(2).to_batches() * 3)):
        for stream in streams(values).values():
            assert values.num_rows * 17 < unpacked_size(stream) <= values.nbytes
    word = "w" * 5000
    words = duckdb.sql(f"SELECT '{word}'::ENUM ('{word}') FROM range(1000)")
    for stream in streams(arro3.Table.from_arrow(words)).values():  # has a dictionary
        assert 6000 < unpacked_size(stream) < 20_000


def test_rows_can_be_sent_for_all_tables_of_snapshots_and_no_other() -> None:
    assert "actors" not in arrow.OF_SNAPSHOTS and len(arrow.OF_SNAPSHOTS) == 13
    assert all(next(iter(TABLES[name].columns)) == "snapshot_id" for name in arrow.OF_SNAPSHOTS)


def test_without_the_library_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = arrow.encode(table(1))
    monkeypatch.setitem(sys.modules, "arro3.io", None)
    for ask in (lambda: arrow.encode(table(1)), lambda: arrow.decode(stream)):
        with pytest.raises(ImportError, match=r"pip install 'pymonarch\[arrow\]'"):
            ask()


def test_a_helper_that_keeps_a_snapshot_goes_on_without_requests() -> None:
    program: Any = SimpleNamespace(snapshots=arrow.Snapshots())
    assert helper.needed(True, program, -math.inf) and helper.needed(
        False, program, time.monotonic() + 60
    )
    assert not helper.needed(False, program, -math.inf)
    program.snapshots.add(arrow.read("snapshots", arrow.encode(table(1))))
    assert helper.needed(False, program, -math.inf)
