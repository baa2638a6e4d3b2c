"""Meshes, jobs, failures and answers as notebooks show them.

They are HTML of bounded size, in which every text is escaped.

Each function makes the HTML of one kind of object. Classes name theirs with
`monarch._lazy.shown_by`, by way of `shown`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import islice
from typing import Any

from ..actor import Endpoint
from ..why.report import lines

MOST_ROWS = 20
MOST_LINES = 200
MOST_CHARACTERS = 200
"""Of a line, and of a cell."""

_COLOURS = {"fine": "#2e7d32", "slow": "#b26a00", "degraded": "#b26a00", "stuck": "#c62828"}


def shown(kind: str, thing: Any) -> str:
    """Return the HTML of a thing that `kind` names, a function of this module."""
    text: str = globals()[kind](thing)
    return text


def error(found: Any) -> str:
    """An error of a call, or any other of Monarch's.

    It shows the first line, what each rank has raised, and the rest to unfold.
    """
    ranks = getattr(found, "by_rank", {})
    rows = [
        (repr(point), f"{type(each).__name__}: {_first(each)}")
        for point, each in islice(ranks.items(), MOST_ROWS)
    ]
    table = _table(("rank", "raised"), rows, len(ranks)) if len(ranks) > 1 else ""
    return _marked(
        f"<b>{_cell(type(found).__name__)}</b>:"
        f" {_cell(_first(found))}{table}{_folded('all of it', str(found))}"
    )


def failure(found: Any) -> str:
    """A `MeshFailure`."""
    event = found.event
    known = {
        "mesh": found.mesh_name,
        "ranks": ", ".join(map(str, found.ranks)),
        "cause": found.cause,
        "exit code": found.exit_code,
        "signal": found.signal,
        "process": event.pid or None,
        "host": event.host,
        "incarnation": event.incarnation or None,
    }
    rows = [(name, str(value)) for name, value in known.items() if value not in (None, "")]
    output = _folded("its last output", "\n".join(found.last_output)) if found.last_output else ""
    return _marked(
        "<b>failure</b>:"
        f" {_cell(_line(event.reason))}{_table((), rows)}{_folded('report', found.report())}{output}"
    )


def actor_mesh(mesh: Any) -> str:
    """An actor mesh: what can be called."""
    attributes = {
        name: getattr(mesh, name, None) for name in dir(mesh._class) if not name.startswith("_")
    }
    endpoints = {
        name: each._definition for name, each in attributes.items() if isinstance(each, Endpoint)
    }
    rows = [
        (f"{name}{each.arguments.signature}", _line(each.__doc__ or ""))
        for name, each in endpoints.items()
    ]
    return f"<div>{_cell(repr(mesh))}</div>{_table(('endpoint', ''), rows)}"


def job(found: Any) -> str:
    """A job: whether it runs, and the hosts that this program has of it."""
    states = found._connected
    return f"<div>{_cell(repr(found))}</div>{job_state(states[-1]) if states else ''}"


def job_state(state: Any) -> str:
    """The host meshes of a job, and where to look at it."""
    rows = [(name, repr(hosts.extent)) for name, hosts in state._hosts.items()]
    urls = [(name, getattr(state, f"{name}_url")) for name in ("dashboard", "admin", "telemetry")]
    return _table(("hosts", "extent"), rows) + _table(
        (), [(name, url.partition("/login?code=")[0]) for name, url in urls if url]
    )


def verdict(found: Any) -> str:
    """Why a program does not go on."""
    rest = "\n".join(text for _, text in lines(found)).partition("\n")[2]
    return _marked(
        f"<b>{_cell(found.sentence)}</b>{_text(rest)}",
        _COLOURS.get(found.status, _COLOURS["stuck"]),
    )


def stacks(found: Any) -> str:
    """Stacks of ranks, equal ones together."""
    return _text(str(found))


def answer(found: Any) -> str:
    """The rows of a query."""
    rows = [[str(row[name]) for name in found.columns] for row in found.rows[:MOST_ROWS]]
    return _table(found.columns, rows, len(found.rows)) + "".join(
        f"<div>{_cell(each)}</div>" for each in found.warnings
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], count: int = 0) -> str:
    """Return a table of the first rows of `count`, by default of those given."""
    count = max(count, len(rows))
    body = "".join(_row(row, "td") for row in rows[:MOST_ROWS])
    more = f"<caption>{count - MOST_ROWS:,} more</caption>" if count > MOST_ROWS else ""
    if rows:
        return f"<table>{more}<thead>{_row(head, 'th') if head else ''}</thead><tbody>{body}</tbody></table>"
    return ""


def _row(cells: Iterable[str], tag: str) -> str:
    return (
        "<tr>"
        + "".join(f'<{tag} style="text-align:left">{_cell(cell)}</{tag}>' for cell in cells)
        + "</tr>"
    )


def _text(text: str) -> str:
    """Lines, with those in the middle left out where there are too many."""
    found = text.splitlines()
    if len(found) > MOST_LINES:
        half = MOST_LINES // 2
        found = [*found[:half], f"... {len(found) - 2 * half:,} lines ...", *found[-half:]]
    shown = "\n".join(map(_cell, found))
    return f'<pre style="white-space:pre;overflow-x:auto">{shown}</pre>' if shown else ""


def _folded(title: str, text: str) -> str:
    return f"<details><summary>{title}</summary>{_text(text)}</details>"


def _marked(content: str, colour: str = _COLOURS["stuck"]) -> str:
    return f'<div style="border-left:4px solid {colour};padding-left:8px">{content}</div>'


def _first(found: BaseException) -> str:
    """The line of an error with its message."""
    inner = getattr(found, "exception", None)
    return _line(str(found)) + (
        f" {type(inner).__name__}: {_line(str(inner))}" if isinstance(inner, BaseException) else ""
    )


def _line(text: str) -> str:
    return text.strip().partition("\n")[0]


def _cell(text: str) -> str:
    """Escape a line; control characters are shown as text, and cannot affect the text around."""
    cut = text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 3]}..."
    return escape(
        "".join(
            each if each.isprintable() or each == "\t" else f"\\x{ord(each):02x}" for each in cut
        )
    )
