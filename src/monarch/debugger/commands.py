"""The commands of the debugger's prompt, as plain data."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from .._rank_selector import RankSelector

HELP = Path(__file__).with_name("help.txt").read_text(encoding="utf-8")

SHORT = {
    "h": "help", "l": "list", "a": "attach", "w": "where", "c": "continue", "b": "break", "i": "interrupt", "q": "quit",
}  # fmt: skip
NAMES = (
    "attach", "break", "cast", "clear", "continue", "help", "interrupt", "list", "quit", "where",
)  # fmt: skip

_CAST = re.compile(
    r"(?P<name>[\w-]+)\s+ranks\((?P<ranks>[^()]*(?:\([^()]*\)[^()]*)*)\)\s+(?P<line>\S.*)$",
    re.DOTALL,
)
_BREAK = re.compile(
    r"(?P<file>\S+):(?P<line>\d+)(?:\s+if\s+(?P<condition>.+?))?(?:\s+ranks\((?P<ranks>[^()]*(?:\([^()]*\)[^()]*)*)\))?$",
    re.DOTALL,
)


class DebuggerCommand(NamedTuple):
    """A command that was understood.

    Attributes:
        verb: Its long name.
        name: Of an actor mesh.
        ranks: A selection of ranks; empty for all.
        text: The rest of the line: a command for pdb, a condition.
        file: Of a breakpoint.
        line: Of a breakpoint.
        flag: Whether its option was given.
    """

    verb: str
    name: str = ""
    ranks: str = ""
    text: str = ""
    file: str = ""
    line: int = 0
    flag: bool = False


def parse(text: str) -> DebuggerCommand | None:
    """Read a line; None for an empty one.

    Raises:
        ValueError: It is no command; the message says what would be.
    """
    word, _, rest = text.strip().partition(" ")
    rest = rest.strip()
    if not word:
        return None
    verb = SHORT.get(word, word)
    if verb in ("list", "help", "continue", "quit"):
        if rest:
            raise ValueError(f"{verb} takes nothing, got {rest!r}")
        return DebuggerCommand(verb)
    reader = _READERS.get(verb)
    if reader is None:
        raise ValueError(f"no command {word!r}; `help` lists them")
    return reader(rest)


def _where(rest: str) -> DebuggerCommand:
    if rest not in ("", "--all"):
        raise ValueError(f"where takes --all, got {rest!r}")
    return DebuggerCommand("where", flag=True)


def _attach(rest: str) -> DebuggerCommand:
    words = rest.split()
    take = "--take" in words
    words = [word for word in words if word != "--take"]
    if len(words) != 2:
        raise ValueError(
            f"attach takes a name and a rank, such as `attach trainer 3`, got {rest!r}"
        )
    if not re.fullmatch(r"\d+/\d+", words[1]):
        RankSelector(words[1])
    return DebuggerCommand("attach", name=words[0], ranks=words[1], flag=take)


def _cast(rest: str) -> DebuggerCommand:
    found = _CAST.match(rest)
    if found is None:
        raise ValueError(
            "cast takes a name, ranks and a pdb command, such as `cast trainer ranks(0:4) n`, got"
            f" {rest!r}"
        )
    ranks = _checked(found["ranks"])
    return DebuggerCommand("cast", name=found["name"], ranks=ranks, text=found["line"])


def _break(rest: str) -> DebuggerCommand:
    if not rest:
        return DebuggerCommand("break")
    found = _BREAK.match(rest)
    if found is None:
        raise ValueError(
            f"break takes a place, such as `break train.py:88 if step > 3 ranks(0:4)`, got {rest!r}"
        )
    ranks = _checked(found["ranks"] or "")
    return DebuggerCommand(
        "break",
        ranks=ranks,
        text=found["condition"] or "",
        file=found["file"],
        line=int(found["line"]),
    )


def _clear(rest: str) -> DebuggerCommand:
    found = _BREAK.match(rest)
    if found is None or found["condition"] or found["ranks"]:
        raise ValueError(f"clear takes a place, such as `clear train.py:88`, got {rest!r}")
    return DebuggerCommand("clear", file=found["file"], line=int(found["line"]))


def _interrupt(rest: str) -> DebuggerCommand:
    name, _, ranks = rest.partition(" ")
    ranks = ranks.strip()
    inner = re.fullmatch(r"ranks\((.*)\)", ranks)
    ranks = inner[1] if inner else ranks
    if not name:
        raise ValueError("interrupt takes a name and ranks, such as `interrupt trainer 3`")
    return DebuggerCommand("interrupt", name=name, ranks=_checked(ranks))


def _checked(ranks: str) -> str:
    """Return an expression for ranks, empty for all of them; a ValueError if it is none."""
    if ranks := ranks.strip():
        RankSelector(ranks)
    return ranks


_READERS = {
    "where": _where, "attach": _attach, "cast": _cast, "break": _break, "clear": _clear, "interrupt": _interrupt,
}  # fmt: skip
