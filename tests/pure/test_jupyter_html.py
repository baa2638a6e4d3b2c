"""What notebooks show: every text is escaped, and the size is bounded."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from monarch._core.shape import Extent, Point
from monarch._core.supervision.failure import KILLED, Failure, MeshFailure
from monarch.errors import ActorError, SupervisionError
from monarch.jupyter import html
from monarch.stacks import Stacks
from monarch.telemetry.result import QueryResult
from monarch.why import STUCK, Verdict

HOSTILE = "<script>alert('x')</script>\x1b[2J\u202eback"
MOST = 60_000
"""Characters of HTML, whatever is shown."""


class State:
    """Of a job, with as many host meshes as wanted."""

    dashboard_url = telemetry_url = None

    def __init__(self, meshes: int) -> None:
        self.admin_url = f"https://host/{HOSTILE}"
        self._hosts = {
            f"{HOSTILE}{number}": SimpleNamespace(extent=Extent(["hosts"], [2]))
            for number in range(meshes)
        }


def errors_of(ranks: int) -> ActorError:
    extent = Extent(["gpus"], [ranks])
    found = ActorError(
        ValueError(HOSTILE), "Actor call a.fail failed.", f"{HOSTILE}\n" * ranks, Point(0, extent)
    )
    found.by_rank = {Point(rank, extent): found for rank in range(ranks)}
    return found


def failure_of(lines: int) -> MeshFailure:
    output = tuple(f"{HOSTILE} {line}" for line in range(lines))
    return MeshFailure(
        Failure(KILLED, HOSTILE, mesh=HOSTILE, rank=3, pid=7, signal=9, host=HOSTILE, output=output)
    )


def rows_of(count: int) -> QueryResult:
    return QueryResult([{HOSTILE: HOSTILE * 100}] * count, [HOSTILE], None, {HOSTILE: HOSTILE}, {})


@pytest.mark.parametrize("many", [3, 10_000])
@pytest.mark.parametrize(
    "show",
    [
        lambda many: errors_of(many)._repr_html_(),
        lambda many: SupervisionError(HOSTILE * many)._repr_html_(),
        lambda many: failure_of(many)._repr_html_(),
        lambda many: html.job_state(State(many)),
        lambda many: rows_of(many)._repr_html_(),
        lambda many: Verdict(STUCK, HOSTILE * many, failures=(HOSTILE,) * many)._repr_html_(),
        lambda many: Stacks(
            [], {f"{HOSTILE}{number}": HOSTILE for number in range(many)}
        )._repr_html_(),
    ],
    ids=["actor error", "supervision error", "failure", "job state", "rows", "verdict", "stacks"],
)
def test_texts_are_escaped_and_ten_thousand_ranks_take_no_more_room_than_a_screen(
    show: Any, many: int
) -> None:
    shown = show(many)
    tags = set(re.findall(r"</?(\w+)", shown))
    assert tags <= {
        "div",
        "b",
        "pre",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "caption",
        "details",
        "summary",
    }
    assert "alert(&#x27;x&#x27;)" in shown
    assert "\x1b" not in shown and "\u202e" not in shown
    assert len(shown) < MOST


def test_a_failure_says_which_rank_of_which_mesh_and_why() -> None:
    shown = failure_of(2)._repr_html_() or ""
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", shown)
    known = dict(zip(cells[::2], cells[1::2], strict=True))
    assert (known["ranks"], known["cause"], known["signal"], known["process"]) == (
        "3",
        "killed",
        "9",
        "7",
    )


def test_a_link_that_lets_in_is_not_shown() -> None:
    state = State(0)
    state.admin_url = "http://127.0.0.1:7/login?code=secret"
    assert "127.0.0.1:7<" in html.job_state(state) and "secret" not in html.job_state(state)


def test_rows_beyond_those_that_are_shown_are_counted() -> None:
    assert "<caption>9,980 more</caption>" in (rows_of(10_000)._repr_html_() or "")
    assert "9,980 more" in (errors_of(10_000)._repr_html_() or "")
