"""A live map of all ranks of the program that a notebook is: a widget of anywidget's, for JupyterLab, VS Code, marimo and others.

A thread makes a picture each few seconds, as the admin interface does for its front page, and sets it as a trait: whoever shows the
widget gets what is there, and each change. So it goes on while a cell waits. It ends with the program, or by `close`.
"""

from __future__ import annotations

import threading
import weakref
from pathlib import Path
from typing import Any

try:
    import anywidget
    import traitlets
except ModuleNotFoundError as missing:
    raise ImportError(
        "the map of ranks needs anywidget: pip install 'pymonarch[notebook]'", name=missing.name
    ) from None

from ..admin.picture import TABLES, picture
from ..telemetry import read
from ..why import why

_LIMIT = 30.0  # seconds for the answers that a picture is made of
_MOST_FAILURES = 20
_LONGEST = 300  # characters of one


class RankMap(anywidget.AnyWidget):
    """All ranks, coloured by what they do; a click on one selects it.

    Args:
        seconds: Between two pictures.

    Attributes:
        sentence: The verdict, in one sentence; `status`: ``"fine"``, ``"slow"`` or ``"stuck"``.
        states: Names of states.
        meshes: Of each its `name`, `shape`, a letter for each rank's state in `ranks` (``"a"`` for the first of `states`), and who
            holds up others, in `blamed`.
        failures: Texts of the first ones, of which the others often come.
        error: Why there is no new picture; empty if there is.
        selected: Mesh and rank that were clicked, ``["trainers", 3]``; empty for none.
    """

    _esm = Path(__file__).with_name("rank_map.js").read_text(encoding="utf-8")
    sentence = traitlets.Unicode("looking ...").tag(sync=True)
    status = traitlets.Unicode("").tag(sync=True)
    states: Any = traitlets.List().tag(sync=True)
    meshes: Any = traitlets.List().tag(sync=True)
    failures: Any = traitlets.List().tag(sync=True)
    error = traitlets.Unicode("").tag(sync=True)
    selected: Any = traitlets.List().tag(sync=True)

    def __init__(self, seconds: float = 2.0) -> None:
        super().__init__()
        self._over = threading.Event()
        arguments = (weakref.ref(self), self._over, seconds)
        threading.Thread(target=_feed, args=arguments, name="monarch-rank-map", daemon=True).start()

    def look(self) -> None:
        """Make a picture now."""
        verdict = why(seconds=0.5)
        found = picture(read(*TABLES).get(timeout=_LIMIT), verdict)
        with self.hold_sync():
            self.states = found["states"]
            self.meshes = [_mesh(each) for each in found["meshes"].values()]
            self.failures = [each["message"][:_LONGEST] for each in found["failures"][:_MOST_FAILURES]]
            self.status, self.sentence, self.error = verdict.status, verdict.sentence, ""

    def close(self) -> None:
        """Show it no more."""
        self._over.set()
        super().close()


def _mesh(found: dict[str, Any]) -> dict[str, Any]:
    states, blamed = found["columns"]["state"], found["columns"]["blamed"]
    return {
        "name": found["name"],
        "shape": found["shape"],
        "ranks": "".join(" " if state is None else chr(ord("a") + state) for state in states),
        "blamed": [rank for rank, is_it in enumerate(blamed) if is_it],
    }


def _feed(shown: weakref.ref[RankMap], over: threading.Event, seconds: float) -> None:
    while not over.is_set():
        widget = shown()
        if widget is None:
            return
        try:
            widget.look()
        except Exception as error:  # a host is slow, or the program is about to end
            widget.error = str(error).partition("\n")[0] or type(error).__name__
        del widget
        over.wait(seconds)
