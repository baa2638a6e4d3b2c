"""What a front page shows, and what changes from one picture to the next."""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monarch.admin.picture import COLUMNS, RANK_STATES, TABLES, delta, picture
from monarch.admin.program import Shared
from monarch.telemetry import TABLES as ALL_TABLES
from monarch.telemetry import Collected
from monarch.telemetry.ids import mesh_id
from monarch.telemetry.rows import shape_json
from monarch.why import Standing, Verdict


def collected(
    procs: list[dict[str, Any]],
    silent: dict[str, str] | None = None,
    **others: list[dict[str, Any]],
) -> Collected:
    rows = {"procs": procs, **others}
    columns = {
        table: {
            name: [row.get(name) for row in rows.get(table, [])]
            for name in ALL_TABLES[table].columns
        }
        for table in TABLES
    }
    return Collected(columns, silent or {}, {})


def proc(rank: int, **what: Any) -> dict[str, Any]:
    where = {"mesh_id": 7, "mesh": "trainers", "rank": rank, "size": 3, "host_id": 1}
    return {"id": 100 + rank, **where, "pid": 4000 + rank, "state": "up", **what}


HOSTS = [{"id": 1, "machine": "node1"}]
MESHES = [{"id": 7, "class": "Proc", "shape_json": shape_json({"gpus": 3})}]
STUCK = Verdict(
    "stuck",
    "Stuck for 43 s: rank 1 does not go on.",
    43.0,
    (
        Standing(
            "trainers",
            3,
            (1,),
            ("node1",),
            (4001,),
            "",
            "step",
            "recv (data.py:31)",
            "stands",
            "a read",
            43.04,
            True,
            (),
        ),
    ),
)


def test_each_rank_has_a_place_in_the_columns_of_its_mesh() -> None:
    found = collected(
        [proc(0), proc(1), proc(2, state="ended", signal=9, pid=0)], hosts=HOSTS, meshes=MESHES,
        actors=[{"proc_id": 101, "queue_depth": 3, "handled": 5}, {"proc_id": 101, "queue_depth": 1, "handled": 0}],
    )  # fmt: skip
    shown = picture(found, STUCK)
    mesh = shown["meshes"]["7"]
    assert (mesh["name"], mesh["size"], mesh["shape"]) == ("trainers", 3, {"gpus": 3})
    assert set(mesh["columns"]) == set(COLUMNS)
    assert [shown["states"][each] for each in mesh["columns"]["state"]] == [
        "idle",
        "stands",
        "failed",
    ]
    assert mesh["columns"]["blamed"] == [0, 1, 0] and mesh["columns"]["seconds"] == [
        None,
        43.0,
        None,
    ]
    assert mesh["columns"]["queue"] == [0, 4, 0] and mesh["columns"]["handled"] == [0, 5, 0]
    assert [shown["hosts"][each] for each in mesh["columns"]["host"]] == ["node1"] * 3
    assert shown["verdict"]["sentence"] == STUCK.sentence and shown["verdict"]["blamed"][0][
        "ranks"
    ] == [1]
    assert json.loads(json.dumps(shown)) == shown


def test_all_ranks_are_shown_before_the_verdict_which_follows_at_once() -> None:
    pytest.importorskip("starlette")
    from monarch.admin.more import _Now

    found = collected(
        [proc(0), proc(1), proc(2, state="ended", signal=9)], hosts=HOSTS, meshes=MESHES
    )
    program: Any = SimpleNamespace(glance=Shared(lambda: found), verdict=Shared(lambda: STUCK))
    source = _Now(program)
    assert list(source.look()) == [] and source.hurries
    first = source.state()
    assert first is not None and first.data["verdict"]["status"] == "looking"
    states = first.data["meshes"]["7"]["columns"]["state"]
    assert [state if state is None else first.data["states"][state] for state in states] == [
        None,
        None,
        "failed",
    ]
    (event,) = source.look()
    assert not source.hurries
    assert event.name == "delta" and event.data["verdict"]["sentence"] == STUCK.sentence
    last = source.state()
    assert last is not None and last.data == picture(found, STUCK)


def test_the_columns_of_a_mesh_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules[picture.__module__]
    made: list[str] = []
    whole = module.new_mesh

    def counted(name: str, *more: Any) -> Any:
        made.append(name)
        return whole(name, *more)

    monkeypatch.setattr(module, "new_mesh", counted)
    picture(collected([proc(0), proc(1), proc(2)], hosts=HOSTS, meshes=MESHES), STUCK)
    assert made == ["trainers"]


def test_a_rank_that_does_not_answer_and_one_that_has_not_started_say_so() -> None:
    found = collected(
        [proc(0), proc(1), proc(2, pid=0)],
        {"trainers[1] on node1": "did not answer within 1 s"},
        hosts=HOSTS,
    )
    shown = picture(found, Verdict("fine", "Fine."))
    assert [RANK_STATES[each] for each in shown["meshes"]["7"]["columns"]["state"]] == [
        "idle",
        "silent",
        "starts",
    ]
    assert shown["silent"] == {"trainers[1] on node1": "did not answer within 1 s"}


def test_the_first_failure_comes_first_and_what_follows_from_others_last() -> None:
    failures = [
        {
            "node_id": name,
            "failure_error_message": name,
            "failure_occurred_at": at,
            "failure_is_propagated": follows,
        }
        for name, at, follows in (
            ("c", 3, False),
            ("d", None, False),
            ("b", 1, True),
            ("a", 2, False),
        )
    ]
    shown = picture(collected([], actor_failures=failures), Verdict("fine", "Fine."))
    assert [each["reference"] for each in shown["failures"]] == ["a", "c", "d", "b"]


def test_two_meshes_of_one_name_have_each_its_own_ranks() -> None:
    first, second = mesh_id("5a"), mesh_id("6b")
    stuck = STUCK.classes[0]._replace(mesh="trainers#6b")
    found = collected([proc(1, mesh_id=first), proc(1, mesh_id=second)], hosts=HOSTS)
    shown = picture(found, Verdict("stuck", "Stuck.", 43.0, (stuck,)))
    states = {
        uid: RANK_STATES[mesh["columns"]["state"][1]] for uid, mesh in shown["meshes"].items()
    }
    assert states == {str(first): "idle", str(second): "stands"}


def applied(before: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """As docs/admin.md says it."""
    after = copy.deepcopy(before)
    for name, value in change.items():
        if name not in ("meshes", "cells"):
            after[name] = value
    for uid, mesh in change.get("meshes", {}).items():
        if mesh is None:
            del after["meshes"][uid]
        else:
            after["meshes"][uid] = mesh
    for uid, columns in change.get("cells", {}).items():
        for name, cells in columns.items():
            for at, to in zip(cells["at"], cells["to"], strict=True):
                after["meshes"][uid]["columns"][name][at] = to
    return after


MESH = st.integers(1, 3).flatmap(
    lambda size: st.fixed_dictionaries(
        {
            "name": st.sampled_from("ab"),
            "size": st.just(size),
            "columns": st.fixed_dictionaries(
                {
                    name: st.lists(st.integers(0, 2) | st.none(), min_size=size, max_size=size)
                    for name in ("state", "queue")
                }
            ),
        }
    )
)
PICTURE = st.fixed_dictionaries(
    {
        "verdict": st.integers(0, 2),
        "meshes": st.dictionaries(st.sampled_from(["7", "8", "9"]), MESH),
    }
)


@given(before=PICTURE, after=PICTURE)
def test_a_delta_makes_the_next_picture_of_the_one_before(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    change = json.loads(json.dumps(delta(before, after)))
    assert applied(before, change) == after
    assert bool(change) == (before != after)


def test_a_delta_has_only_what_has_changed() -> None:
    before = picture(collected([proc(0), proc(1), proc(2)], hosts=HOSTS, meshes=MESHES), STUCK)
    after = picture(
        collected([proc(0), proc(1, rss_bytes=5), proc(2)], hosts=HOSTS, meshes=MESHES), STUCK
    )
    assert delta(before, after) == {"cells": {"7": {"rss": {"at": [1], "to": [5]}}}}
    assert delta(after, after) == {}


def test_the_page_says_what_each_column_is() -> None:
    page = (Path(__file__).parents[2] / "docs" / "admin.md").read_text()
    assert [
        f"| `{name}` | {about} |"
        for name, about in COLUMNS.items()
        if f"| `{name}` | {about} |" not in page
    ] == []
