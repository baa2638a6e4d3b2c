"""The table of knobs: their names, kinds, defaults, and what they do.

`_store` looks knobs up here. Rows are in `knobs.txt` and `no_effect.txt`, and docs/config.md is
generated from them: after a change, run `python docs/config_page.py > docs/config.md`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from .._namedtuple import NamedTuple
from . import _kinds
from ._kinds import DURATION, Kind


class Knob(NamedTuple):
    """One setting.

    `default` is anything `configure` would take; `aliases` are other keys for the same knob.
    """

    name: str
    kind: Kind
    default: object
    env: str
    effect: str
    applies: bool = True  # whether something reads it; if not, `effect` says why
    aliases: tuple[str, ...] = ()


_KINDS = {
    "bool": _kinds.BOOL, "duration": DURATION, "duration or none": _kinds.DURATION_OR_NONE, "encoding": _kinds.ENCODING,
    "float": _kinds.FLOAT, "modules": _kinds.MODULES, "size": _kinds.SIZE, "str": _kinds.STR, "transport": _kinds.TRANSPORT,
    # OpenTelemetry's own variable has milliseconds
    "duration of ms": DURATION._replace(from_text=lambda text: f"{text}ms" if text.strip().isdigit() else text),
}  # fmt: skip


def _kind(text: str, default: str) -> Kind:
    if text.startswith("int "):
        span, _, optional = text.removeprefix("int ").partition(" or ")
        lowest, _, highest = span.partition("..")
        example = int(default) if default.isdigit() and int(default) else 100
        limits = (int(lowest), int(highest or 2**63 - 1))
        return _kinds.count(*limits, example=example, optional=bool(optional))
    return _KINDS[text] if text in _KINDS else _kinds.choice(*text.split("/"))


def _read(file: str, applies: bool) -> Iterator[Knob]:
    """The rows of a file; those that stand together, without a line between, share their text."""
    with open(os.path.join(os.path.dirname(__file__), file), encoding="utf-8") as rows:
        blocks = rows.read().split("\n\n")
    for block in blocks:
        lines = [line for line in block.splitlines() if not line.startswith("#")]
        effect = " ".join(line.strip() for line in lines if line.startswith(" "))
        for row in lines:
            if not row.startswith(" "):
                names, of_kind, default, env = (cell.strip() for cell in row.split("|"))
                name, *aliases = names.split(", ")
                kind = _kind(of_kind, default)
                yield Knob(
                    name, kind, kind.from_text(default), env, effect, applies, tuple(aliases)
                )


KNOBS: tuple[Knob, ...] = (*_read("knobs.txt", True), *_read("no_effect.txt", False))
BY_NAME: dict[str, Knob] = {name: knob for knob in KNOBS for name in (knob.name, *knob.aliases)}
