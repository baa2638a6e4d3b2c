"""A step of a simulation as an SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from math import floor, log10

from monarch.tensor_engine.instructions import MAIN

from .record import Event
from .trace import named

_WIDTH, _LEFT, _RIGHT, _ROW, _BOX, _TOP = 900, 190, 30, 26, 20, 30  # pixels
_MOST_ROWS = 40
_LINES = 6
_SHORTEST = 0.4  # pixels; a shorter piece is drawn together with the next one
_COLOURS = {"compute": "#4c78a8", "communication": "#f58518", "issue": "#72b7b2", "wait": "#bab0ac"}
_TEXT = "#777"  # legible on white and on black
_LETTER = 6.5  # pixels


def svg(events: Sequence[Event], streams: Mapping[int, str]) -> str:
    """A row per stream of each cohort and for the program, time from left to right.

    Args:
        events: What the ranks and the controller did.
        streams: The name of each stream.
    """
    rows: dict[tuple[tuple[int, ...], int], list[Event]] = {}
    for event in events:
        rows.setdefault((event.ranks, event.stream), []).append(event)
    shown = sorted(rows)[:_MOST_ROWS]
    start, end = min(event.start for event in events), max(event.end for event in events)
    scale = (_WIDTH - _LEFT - _RIGHT) / max(end - start, 1e-12)
    height = _TOP + _ROW * len(shown) + 40
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" viewBox="0 0'
        f' {_WIDTH} {height}"'
    )
    parts = [head + ' font-family="sans-serif" font-size="12">']
    parts += _axis(end - start, scale, height)
    for index, key in enumerate(shown):
        y = _TOP + index * _ROW
        parts.append(_text(4, y + 15, _title(*key, streams)))
        parts += [_box(event, start, scale, y) for event in _joined(rows[key], scale)]
    return "\n".join([*parts, *_legend({event.kind for event in events}, height), "</svg>"]) + "\n"


def _title(ranks: tuple[int, ...], stream: int, streams: Mapping[int, str]) -> str:
    if not ranks:
        return "program"
    return named(ranks) if stream == MAIN else f"{named(ranks)}: {streams[stream]}"


def _joined(events: list[Event], scale: float) -> list[Event]:
    """Without boxes too narrow to see: those of a kind in a row become one."""
    found: list[Event] = []
    for event in sorted(events, key=lambda event: event.start):
        last = found[-1] if found else None
        if (
            last is not None
            and last.kind == event.kind
            and (event.start - last.end) * scale < _SHORTEST
            and (event.end - event.start) * scale < 3 * _LETTER
            and (last.name == "" or (last.end - last.start) * scale < 3 * _LETTER)
        ):
            found[-1] = last._replace(end=max(last.end, event.end), name="")
        else:
            found.append(event)
    return found


def _box(event: Event, start: float, scale: float, y: int) -> str:
    x = _LEFT + (event.start - start) * scale
    width = max((event.end - event.start) * scale, _SHORTEST)
    box = (
        f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{_BOX}"'
        f' fill="{_COLOURS[event.kind]}" stroke="#fff" stroke-width="0.3"/>'
    )
    letters = int((width - 6) / _LETTER)
    if len(event.name) > letters or not event.name:
        return box
    return (
        box + f'<text x="{x + 3:.1f}" y="{y + 14}" fill="#fff"'
        f' font-size="11">{escape(event.name)}</text>'
    )


def _axis(seconds: float, scale: float, height: int) -> list[str]:
    """Lines at round times."""
    power = 10.0 ** floor(log10(max(seconds, 1e-12) / _LINES))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor * _LINES >= seconds)
    parts = []
    for index in range(int(seconds / step) + 1):
        x = _LEFT + index * step * scale
        parts.append(
            f'<line x1="{x:.1f}" y1="{_TOP - 6}" x2="{x:.1f}" y2="{height - 34}" stroke="#ccc"/>'
        )
        parts.append(_text(x, _TOP - 12, f"{index * step * 1e3:.6g} ms"))
    return parts


def _legend(kinds: set[str], height: int) -> list[str]:
    parts = []
    shown = [(kind, colour) for kind, colour in _COLOURS.items() if kind in kinds]
    for index, (kind, colour) in enumerate(shown):
        x = _LEFT + index * 130
        parts.append(f'<rect x="{x}" y="{height - 22}" width="12" height="12" fill="{colour}"/>')
        parts.append(_text(x + 18, height - 12, kind))
    return parts


def _text(x: float, y: float, text: str) -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" fill="{_TEXT}">{escape(text)}</text>'
