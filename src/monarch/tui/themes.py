"""The light theme of Monarch's terminal interface, which Textual has not: Doom Emacs' Nord Light."""

from __future__ import annotations

from rich.terminal_theme import TerminalTheme
from textual.color import Color
from textual.theme import Theme

NAME = "doom-nord-light"

_PAPER, _INK = "#e5e9f0", "#3b4252"
_NAMED = (_INK, "#99324b", "#4f894c", "#9a7500", "#3b6ea8", "#97365b", "#398eac", "#c2d0e7")
"""Black, red, green, yellow, blue, magenta, cyan, white: what lines are styled with."""

THEME = Theme(
    NAME,
    primary="#3b6ea8",
    secondary="#5272af",
    accent="#842879",
    warning="#9a7500",
    error="#99324b",
    success="#4f894c",
    foreground=_INK,
    background=_PAPER,
    surface="#d8dee9",
    panel="#c2d0e7",
    dark=False,
)

ANSI = TerminalTheme(
    Color.parse(_PAPER).rgb, Color.parse(_INK).rgb, [Color.parse(each).rgb for each in _NAMED]
)
"""The colours that lines name."""
