"""The filter of output between host agents and a client.

Agents apply it, so this module imports nothing of the engine.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .._core.plane import Output


class Shown(NamedTuple):
    """The shown part of some procs' output; the rest does not travel.

    Attributes:
        stream: Whether anything is.
        level: Level from which on records of `logging` are.
        match: What a line must contain; None for anything.
        window: Seconds over which the client collects equal lines; 0 for not at all.
    """

    stream: bool
    level: int
    match: re.Pattern[str] | None
    window: float

    def left_of(self, mesh: str, output: Output) -> Output | None:
        """Return the part of an output that is to be shown, if any.

        Args:
            mesh: Id of the proc mesh.
            output: Output of the procs of that mesh.
        """
        if not self.stream:
            return None
        runs = []
        for note, texts in output.said:
            if not note.logger or note.level >= self.level:
                kept = texts if self.match is None else list(filter(self.match.search, texts))
                if kept:
                    runs.append((note, "\n".join(kept)))
        return output._replace(runs=runs, collect=(mesh, self.window)) if runs else None


HIDDEN = Shown(False, 0, None, 0.0)
