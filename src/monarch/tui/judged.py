"""The common part of screens that show why the program does not go on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .now import STATUS
from .pane import Folded
from .sources import WhySource
from .text import Row, looking, wrapped


class Judged(Folded):
    """A screen of the verdict, with its sentence on top."""

    def __init__(self, source: WhySource) -> None:
        super().__init__(source)
        self._why = source

    def groups(self) -> Iterator[tuple[Any, Row, Sequence[Row]]]:
        found = self._why.verdict
        if not found:
            yield None, looking(), ()
            return
        for row in wrapped(
            found["sentence"], max(20, self.listing.size.width), STATUS.get(found["status"], "bold")
        ):
            yield None, row, ()
        yield from self.parts(found)

    def parts(self, verdict: Mapping[str, Any]) -> Iterator[tuple[Any, Row, Sequence[Row]]]:
        """The groups below the sentence."""
        raise NotImplementedError
