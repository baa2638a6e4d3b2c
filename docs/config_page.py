"""Print docs/config.md: `python docs/config_page.py > docs/config.md`."""

from __future__ import annotations

from enum import Enum
from pathlib import Path

from monarch.config._kinds import SIZE
from monarch.config._table import KNOBS, Knob
from monarch.config._units import size_text


def markdown() -> str:
    """Return the reference of all knobs as a Markdown page."""
    page = Path(__file__).with_name("config_page.txt").read_text(encoding="utf-8")
    return page.format(applies=_table("effect", True), no_effect=_table("no effect:", False))


def _table(effect: str, applies: bool) -> str:
    header = ("key", "type", "default", "environment variable", effect)
    rows = [_row(_cells(knob)) for knob in KNOBS if knob.applies == applies]
    return "\n".join([_row(header), "|---" * len(header) + "|", *rows])


def _cells(knob: Knob) -> tuple[str, ...]:
    names = " or ".join(f"`{name}`" for name in (knob.name, *knob.aliases))
    return names, knob.kind.name, _default(knob), f"`{knob.env}`", knob.effect


def _default(knob: Knob) -> str:
    shown = knob.kind.show(knob.kind.keep(knob.default))
    if shown in ("", []):
        return "empty"
    if isinstance(shown, Enum):
        return f"`{shown}`"
    return f"`{size_text(shown) if knob.kind is SIZE else shown}`"


def _row(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    print(markdown(), end="")
