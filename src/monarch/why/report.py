"""How a verdict is shown: on one screen, also of a thousand ranks. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .._words import host_named, named, ranges, since
from ..stacks.model import CLIENT
from .model import DEGRADED, FINE, RUNS, SILENT, SLOW, Standing, Verdict
from .words import who

GOOD, LATE, BAD, HEAD, PLAIN, BLAMED = "good", "late", "bad", "head", "plain", "blamed"
"""Kinds of lines: the sentence, by the status; a heading; any other; a line on those who hold up
others.
"""

_MOST = 8  # lines of a section
_WIDEST = 150  # characters of a line


def lines(verdict: Verdict) -> Iterator[tuple[str, str]]:
    """Iterate over the lines of the report, each with its kind."""
    return ((kind, named(text)) for kind, text in _lines(verdict))


def _lines(verdict: Verdict) -> Iterator[tuple[str, str]]:
    yield {FINE: GOOD, SLOW: LATE, DEGRADED: LATE}.get(verdict.status, BAD), verdict.sentence
    shown = _chosen(verdict.classes)
    if verdict.classes:
        yield HEAD, "ranks"
    mesh = None
    for each in shown:
        if each.mesh != mesh and each.mesh != CLIENT and each.state != SILENT:
            many = f" ({each.size:,} ranks)" if each.size > 1 else ""
            yield PLAIN, f"  {each.mesh}{many}"
        mesh = each.mesh
        kind, mark = (BLAMED, ">") if each.blamed else (PLAIN, " ")
        yield kind, _cut(f"  {mark} {_line(each)}")
    if left := [each for each in verdict.classes if each not in shown]:
        ranks = f"{sum(len(each.ranks) for each in left):,}"
        yield PLAIN, f"    ... and {ranks} ranks at {len(left)} other places"
    yield from _section("who waits for whom", [_wait(verdict, *each) for each in verdict.waits])
    yield from _section("stragglers", list(map(str, verdict.stragglers)))
    yield from _section("circles", [" → ".join((*each, each[0])) for each in verdict.circles])
    yield from _section("full mailboxes", verdict.full)
    yield from _section("swapping", verdict.swapping)
    yield from _section("failures", verdict.failures)
    yield from _section(
        "silent hosts", [f"{host_named(host)}: {reason}" for host, reason in verdict.silent.items()]
    )
    odd = next((each for each in verdict.blamed if each.lines), None)
    if odd is not None and verdict.status != FINE:
        ranks = ""
        if odd.mesh != CLIENT and len(odd.ranks) < odd.size:
            ranks = f" --rank {ranges(odd.ranks)}"
        yield HEAD, "more"
        # which takes an id as well
        yield PLAIN, f"  monarch stacks --mesh {odd.mesh.rpartition('#')[2]}{ranks}"


def _chosen(classes: Sequence[Standing]) -> list[Standing]:
    """The classes to blame and the largest ones, in their order."""
    best = sorted(
        range(len(classes)), key=lambda each: (not classes[each].blamed, -len(classes[each].ranks))
    )
    return [classes[each] for each in sorted(best[: 2 * _MOST])]


def _line(each: Standing) -> str:
    if each.state == SILENT:
        return f"{each.mesh} {each.reason}"
    count = len(each.ranks)
    ranks = "the client"
    if each.mesh != CLIENT:
        ranks = f"{count:,} {'rank' if count == 1 else 'ranks'} [{_short(each.ranks)}]"
    process = f", process {each.pids[0]} on {each.hosts[0]}" if len(each.pids) == 1 else ""
    endpoint = ""
    if each.endpoint and not each.place.startswith(f"{each.endpoint} "):
        endpoint = f"{each.endpoint}: "
    reason = each.reason or ("" if each.state == RUNS else each.state)
    state = "runs" if each.state == RUNS else reason
    return (
        f"{ranks}{process}:"
        f" {endpoint}{each.place}{'; ' if each.place and state else ''}{state}{since(each.seconds)}"
    )


def _wait(verdict: Verdict, waiting: int, awaited: int) -> str:
    first, second = verdict.classes[waiting], verdict.classes[awaited]
    return f"{_named(first)} → {_named(second)}{'  ◀ here' if second.blamed else ''}"


def _named(each: Standing) -> str:
    if each.mesh == CLIENT or each.state == SILENT:
        return who(each)
    return f"{each.mesh}[{_short(each.ranks)}]"


def _section(title: str, found: Sequence[str]) -> Iterator[tuple[str, str]]:
    if found:
        yield HEAD, title
    for text in found[:_MOST]:
        yield PLAIN, _cut(f"  {text}")
    if len(found) > _MOST:
        yield PLAIN, f"  ... and {len(found) - _MOST:,} more"


def _short(ranks: Sequence[int]) -> str:
    text = ranges(ranks)
    return text if len(text) <= 40 else f"{text[:40].rpartition(',')[0] or text[:40]},..."


def _cut(text: str) -> str:
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 3]}..."
