"""Screen 6: failures, the first cause on top, its consequences folded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from .http import Line
from .now import cause
from .pane import Folded
from .sources import NowSource
from .text import Row, ago, looking, wrapped


class Failures(Folded):
    """The screen of failures."""

    TITLE = "Failures"
    HINTS = "Tab fold  c fold all  Enter last output"
    HELP = (
        "What has failed, the first cause on top, with the whole message. What only follows from"
        " others is folded at the end.\nEnter shows the last output of the process."
    )

    def __init__(self, source: NowSource) -> None:
        super().__init__(source)
        self._picture = source.picture

    def groups(self) -> Iterator[tuple[Any, Row, Sequence[Row]]]:
        parts = self._picture.parts
        if not parts:
            yield None, looking(), ()
            return
        failures = parts["failures"]
        width = max(20, self.listing.size.width - 4)
        if not failures:
            yield None, [("nothing has failed", "green")], ()
        for each in failures:
            if not each["is_propagated"]:
                whole = list(wrapped(each["message"], width, "", "    "))
                yield each["reference"], _head(each), whole if len(whole) > 1 else ()
        following = [each for each in failures if each["is_propagated"]]
        if following:
            yield (
                "following",
                [(f"{len(following):,} that follow from these", "bold")],
                [[("    ", ""), *_head(each)] for each in following],
            )
        for host, reason in parts["silent"].items():
            yield None, [(f"! {host} did not answer: {reason}", "yellow")], ()

    def choose(self) -> None:
        """Show the last output of the process of the marked failure."""
        reference = self.about()
        if reference is None or ">." not in reference:
            return

        def find(line: Line) -> Any:
            return line.node(reference.partition(">.")[2])["properties"]["Proc"]["mesh_rank"]

        def take(rank: Any, trouble: str) -> None:
            if trouble:
                self.dashboard.say(trouble)
            else:
                self.dashboard.open("logs", rank)

        self.dashboard.ask(find, take)


def _head(failure: Mapping[str, Any]) -> Row:
    at = failure["occurred_us"]
    when = f"{datetime.fromtimestamp(at / 1e6):%H:%M:%S} {ago(at)} " if at else ""
    return [
        (when, "dim"),
        (str(failure["root_cause"] or failure["reference"]), "bold red"),
        (f"  {cause(failure['message'])}", ""),
    ]
