"""`/v1/trace`: a time that is over, of a program that runs and of the file of a run, as Perfetto
reads it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from helpers.admin import Asker
from helpers.demo import demo
from helpers.perfetto_traces import Shown, shown_by, tracks_of

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("duckdb")  # here, as it starts threads
pytest.importorskip("arro3.core")
pytest.importorskip("perfetto")

from monarch.admin.saved import SavedRun
from monarch.telemetry import window
from monarch.telemetry.result import QueryResult


@pytest.fixture(scope="module")
def asker() -> Iterator[Asker]:
    with demo(16, "missing-collective") as program:
        assert program.asker.get("/v1/time")["runs"]  # the helper has started
        yield program.asker


def traced(asker: Asker, **query: object) -> bytes:
    text = "&".join(f"{name}={value}" for name, value in query.items())
    status, content = asker.raw("GET", f"/v1/trace?{text}")
    assert status == 200, content
    return content


def calls(content: bytes) -> dict[str, list[Shown]]:
    """What actors have handled, by their names."""
    found: dict[str, list[Shown]] = {}
    for each in shown_by(content):
        if each.category == "message" and (actor := re.search(r"actor (\w+\[\d+\])", each.track)):
            found.setdefault(actor[1], []).append(each)
    return found


def test_a_time_that_is_over_is_there_with_spans_inside_of_calls(asker: Asker) -> None:
    until = time.time() - 60  # before the fault
    content = traced(asker, since=until - 10, until=until)
    found = calls(content)
    assert {f"trainer[{rank}]" for rank in range(16)} <= found.keys()
    for each in found["trainer[3]"]:
        assert each.end is not None and each.begin / 1e9 <= until and each.end / 1e9 >= until - 10
    assert [each for each in shown_by(content) if each.category == "span" and each.depth > 0]
    assert {each.category for each in shown_by(content)} >= {"message", "span", "step"}


def test_a_call_that_has_begun_long_before_is_there_as_one_that_goes_on(asker: Asker) -> None:
    until = time.time()
    found = calls(traced(asker, since=until - 1, until=until, mesh="trainers", rank="0-3"))
    assert set(found) == {f"trainer[{rank}]" for rank in range(4)}
    for [each] in found.values():
        assert each.fields["unfinished"] and each.begin / 1e9 < until - 1


def test_only_the_ranks_that_are_chosen_have_tracks(asker: Asker) -> None:
    [mesh] = [
        uid for uid, each in asker.get("/v1/now")["meshes"].items() if each["name"] == "trainers"
    ]
    for name in ("trainers", mesh):
        tracks = tracks_of(traced(asker, mesh=name, rank="hosts=1,gpus=0:2"))
        assert {proc[1] for each in tracks if (proc := re.search(r"proc (\w+\[\d+\])", each))} == {
            "trainers[8]",
            "trainers[9]",
        }


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("mesh=nope", "there is no mesh 'nope'"),
        ("rank=3", "ranks are those of a mesh"),
        ("mesh=trainers&rank=99", "'99' selects no rank of 'trainers'"),
        ("mesh=trainers&rank=x", "does not say which ranks"),
        ("since=20&until=10", "since is before until, not 10 s behind it"),
        ("since=yesterday", "a time is seconds since 1970"),
    ],
)
def test_what_cannot_be_shown_is_refused(asker: Asker, query: str, said: str) -> None:
    status, code, message = asker.error("GET", f"/v1/trace?{query}")
    assert (status, code) == (400, "bad_request") and said in message


def test_a_mesh_that_is_not_found_where_hosts_are_silent_may_be_there() -> None:
    def unheard(sql: str) -> QueryResult:
        return QueryResult([], [], None, {"tcp://h1:26600": "did not answer within 10 s"}, {})

    with pytest.raises(TimeoutError, match=r"no mesh 'trainers'; tcp://h1:26600 did not answer"):
        window.trace(unheard, 1, 2, "trainers")


def test_the_file_of_a_run_has_the_same_and_too_much_is_refused(
    asker: Asker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.duckdb"
    path.write_bytes(asker.raw("POST", "/v1/snapshot")[1])
    run = SavedRun(str(path))
    end = int(run.time()["now"] * 1e6)
    asked = partial(window.trace, run.query, end - 60_000_000, end, "trainers", "0")
    assert calls(asked().content)["trainer[0]"]
    monkeypatch.setattr(window, "MOST_ROWS", 2)
    with pytest.raises(ValueError, match="more than 2 .* choose a shorter one, or fewer ranks"):
        asked()
