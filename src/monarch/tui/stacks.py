"""Screen 3: ranks grouped by equal stacks, those that hold up others first."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .._words import rank_name
from .judged import Judged
from .now import who
from .sources import WhySource
from .text import Row, duration

_RANK = re.compile(r"(.*?)(?:\[(\d+)\])?", re.DOTALL)


class Stacks(Judged):
    """Why it is wrong."""

    TITLE = "Stacks"
    HINTS = "Tab fold  c fold all  Enter logs"
    HELP = (
        "Ranks of a mesh that stand at the same place, by two looks a second apart; those that hold"
        " up others (!) first, then the largest\nclass of each mesh and those that are odd. A frame"
        " that the largest class of the mesh does not have is marked with ≠.\nRanks that only wait"
        " for messages are left out. Enter shows the logs of the first rank of a class,\nor, on the"
        " sentence, of the rank that it is about."
    )

    def __init__(self, source: WhySource) -> None:
        super().__init__(source)
        self._sought = ""

    def rebuild(self) -> None:
        super().rebuild()
        if self._sought and self._why.verdict:
            sought, self._sought = self._sought, ""
            self.seek(sought)

    def parts(self, verdict: Mapping[str, Any]) -> Iterator[tuple[Any, Row, Sequence[Row]]]:
        largest: dict[str, set[tuple[Any, ...]]] = {}
        for each in verdict["classes"]:
            largest.setdefault(each["mesh"], {_frame(line) for line in each["lines"]})
        for each in sorted(verdict["classes"], key=lambda each: not each["blamed"]):
            yield (
                _key(each),
                _head(each),
                [_line(line, largest[each["mesh"]]) for line in each["lines"]],
            )
        for host, reason in verdict["silent"].items():
            yield None, [(f"{host} did not answer: {reason}", "yellow")], ()

    def choose(self) -> None:
        """Show the logs of the first rank of the marked class, or of those that are to blame."""
        about = self.about() or next(self._to_blame(), None)
        if about is not None:
            self.dashboard.open("logs", rank_name(*about[:2]))

    def _to_blame(self) -> Iterator[tuple[Any, ...]]:
        found = self._why.verdict or {"classes": (), "stragglers": ()}
        blamed = (each for each in found["classes"] if each["blamed"])
        yield from (_key(each) for each in blamed if each["state"] != "silent host")
        yield from ((each["mesh"], each["rank"]) for each in found["stragglers"])

    def seek(self, about: Any) -> None:
        """Go to the class of ``trainers[3]``, or of ``client``, as soon as there is a verdict."""
        found = _RANK.fullmatch(about)
        if not self._why.verdict or found is None:
            self._sought = about
            return
        mesh, rank = found[1], int(found[2] or 0)
        for each in self._why.verdict["classes"]:
            if mesh in (each["mesh"], each["mesh"].partition("#")[0]) and rank in each["ranks"]:
                self._folded.discard(_key(each))
                self.rebuild()
                self.listing.action_jump(self._abouts.index(_key(each)))
                return
        self.dashboard.say(f"{about} only waits for messages")


def _key(standing: Mapping[str, Any]) -> tuple[str, int, str]:
    return standing["mesh"], standing["ranks"][0] if standing["ranks"] else 0, standing["place"]


def _head(standing: Mapping[str, Any]) -> Row:
    seconds = standing["seconds"]
    doing = standing["reason"] or standing["state"]
    since = f" for {duration(seconds)}" if seconds is not None else ""
    mark = ("! ", "bold red") if standing["blamed"] else ("", "")
    return [mark, *who(standing), (f"  {doing}{since}", "yellow" if doing != "runs" else "green")]


def _frame(line: Mapping[str, Any]) -> tuple[Any, ...]:
    return line["function"], line["file"], line["line"]


def _line(line: Mapping[str, Any], usual: set[tuple[Any, ...]]) -> Row:
    own = line["kind"] == "user"
    place = "(monarch)"
    if line["kind"] != "monarch":
        place = f"{'/'.join(line['file'].split('/')[-2:])}:{line['line']}"
    odd = " " if _frame(line) in usual else "≠"
    return [
        (f"  {odd} {'>' if own else ' '} {line['function']}", "bold" if own else ""),
        (f"  {place}", "dim"),
    ]
