"""Screen 4: waits, from the ranks that no other holds up to those that wait for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .._words import since
from .judged import Judged
from .now import who
from .text import Row


class Waits(Judged):
    """The screen of waits."""

    TITLE = "Waits"
    HINTS = "Tab fold  c fold all  Enter stack"
    HELP = (
        "Circles first; then those that others wait for and that wait for none, with all who wait"
        " for them below, directly or by way\nof others. Then mailboxes that are full, and meshes"
        " with ranks that are slower than the others. Enter shows a stack."
    )

    def parts(self, verdict: Mapping[str, Any]) -> Iterator[tuple[Any, Row, Sequence[Row]]]:
        for circle in verdict["circles"]:
            yield None, [("circle: " + " → ".join([*circle, circle[0]]), "bold red")], ()
        classes = verdict["classes"]
        waiting: dict[int, list[int]] = {}
        for each in verdict["waits"]:
            waiting.setdefault(each["for"], []).append(each["waits"])
        busy = {each["waits"] for each in verdict["waits"]}
        roots = [number for number in waiting if number not in busy]
        if len(roots) == 0 and waiting:  # all are in circles
            roots = [next(iter(waiting))]
        for root in sorted(roots, key=lambda number: not classes[number]["blamed"]):
            each = classes[root]
            doing = f"{each['reason'] or each['state']}{since(each['seconds'])}"
            mark = ("! ", "bold red") if each["blamed"] else ("", "")
            head = [mark, *who(each), (f"  {doing}", "yellow")]
            rank = f"{each['mesh']}[{each['ranks'][0] if each['ranks'] else 0}]"
            yield rank, head, list(_below(classes, waiting, root, 1, {root}))
        for title in ("full", "frozen", "swapping"):
            yield from ((None, [(f"{title}: {text}", "yellow")], ()) for text in verdict[title])
        if not verdict["waits"]:
            yield None, [("no actor waits for another", "dim")], ()

    def choose(self) -> None:
        """Show the stack of the marked group."""
        if (about := self.about()) is not None:
            self.dashboard.open("stacks", about)


def _below(
    classes: Any, waiting: dict[int, list[int]], number: int, depth: int, seen: set[int]
) -> Iterator[Row]:
    for each in waiting.get(number, ()):
        standing = classes[each]
        again = "  (see above)" if each in seen else ""
        yield [
            ("  " * depth + "└ ", "dim"),
            *who(standing),
            (f"  {standing['reason']}{since(standing['seconds'])}{again}", "yellow"),
        ]
        if each not in seen:
            seen.add(each)
            yield from _below(classes, waiting, each, depth + 1, seen)
