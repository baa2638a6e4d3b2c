"""A live map of all ranks of the notebook's program.

It is a widget of anywidget's, for JupyterLab, VS Code, marimo and others.

A thread makes a picture each few seconds, as the admin interface does for its front page, and sets
it as a trait: each view of the widget gets the current picture, and each change. So it goes on
while a cell waits. It rests while there is no view: each view says now and then that it is there.
It ends with the program, or by `close`.
"""

from __future__ import annotations

import math
import threading
import time
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
from IPython.core.getipython import get_ipython

from ..admin.picture import TABLES, picture
from ..telemetry import read
from ..why import why

_LIMIT = 30.0  # seconds for the answers that a picture is made of
_MOST_FAILURES = 20
_LONGEST = 300  # characters of one
# seconds without a sign of a view: one gives it each 10 s, in a tab behind others once a minute or
# less
_UNSEEN = 60.0
_EASE = 4.0  # times as long as a picture has taken the thread rests


class RankMapWatch:
    """The signs of a view. While a cell runs none comes through, so its time does not count.

    Args:
        shell: Of IPython, which says when cells run; None for none.
    """

    def __init__(self, shell: Any = None) -> None:
        self._over = threading.Event()
        self._news = threading.Event()
        self._seen = time.monotonic()
        self._begun = self._seen if shell is not None else None
        self._shell = shell
        if shell is not None:
            shell.events.register("pre_run_cell", self.cell_begins)
            shell.events.register("post_run_cell", self.cell_ends)

    @property
    def is_over(self) -> bool:
        """True if it is closed."""
        return self._over.is_set()

    @property
    def is_watched(self) -> bool:
        """True if there was a sign of a view in the last minute."""
        begun = self._begun
        return (time.monotonic() if begun is None else begun) - self._seen < _UNSEEN

    def see(self) -> None:
        """Note that there is a view."""
        self._seen = time.monotonic() if self._begun is None else self._begun
        self._news.set()

    def cell_begins(self, info: Any = None) -> None:
        """A cell runs."""
        self._begun = time.monotonic()

    def cell_ends(self, result: Any = None) -> None:
        """None runs any more."""
        if self._begun is not None:
            self._seen += time.monotonic() - self._begun
            self._begun = None

    def rest(self, seconds: float) -> None:
        """Rest for that time, and until there is a view, or `end`."""
        self._over.wait(seconds)
        while not self.is_over and not self.is_watched:
            self._news.wait(_UNSEEN)
            self._news.clear()

    def end(self) -> None:
        """Rest no more."""
        if not self.is_over and self._shell is not None:
            self._shell.events.unregister("pre_run_cell", self.cell_begins)
            self._shell.events.unregister("post_run_cell", self.cell_ends)
        self._over.set()
        self._news.set()


class RankMap(anywidget.AnyWidget):
    """A map of the ranks, coloured by their state; a click on one selects it.

    Args:
        seconds: Between two pictures at least; more where one takes long.

    Raises:
        ValueError: The seconds are no positive number.

    Attributes:
        sentence: The verdict, in one sentence; `status`: that of `Verdict`.
        states: Names of states.
        meshes: Of each its `name`, `shape`, a letter for each rank's state in `ranks` (``"a"`` for
            the first of `states`), and who holds up others, in `blamed`.
        failures: Texts of the first ones, of which the others often come.
        error: Why there is no new picture; empty if there is.
        beat: Changes as long as there is a view.
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
    beat = traitlets.Float(0.0).tag(sync=True)

    def __init__(self, seconds: float = 2.0) -> None:
        if not 0 < seconds < math.inf:
            raise ValueError(f"seconds between two pictures are a positive number, got {seconds!r}")
        super().__init__()
        self.watch = RankMapWatch(get_ipython())
        arguments = (weakref.ref(self), self.watch, seconds)
        threading.Thread(target=_feed, args=arguments, name="monarch-rank-map", daemon=True).start()

    def look(self) -> None:
        """Make a picture now."""
        verdict = why(seconds=0.5)
        found = picture(read(*TABLES).get(timeout=_LIMIT), verdict)
        with self.hold_sync():
            self.states = found["states"]
            self.meshes = [_mesh(each) for each in found["meshes"].values()]
            self.failures = [
                each["message"][:_LONGEST] for each in found["failures"][:_MOST_FAILURES]
            ]
            self.status, self.sentence, self.error = verdict.status, verdict.sentence, ""

    @traitlets.observe("beat")
    def _beats(self, change: Any) -> None:
        self.watch.see()

    def close(self) -> None:
        """Show it no more."""
        if watch := getattr(self, "watch", None):
            watch.end()
        super().close()


_maps: list[RankMap] = []


def of_this_program() -> RankMap:
    """The map of this program: one, however often it is asked for, until it is closed."""
    if not _maps or _maps[-1].watch.is_over:
        _maps[:] = [RankMap()]
    _maps[-1].watch.see()
    return _maps[-1]


def _mesh(found: dict[str, Any]) -> dict[str, Any]:
    states, blamed = found["columns"]["state"], found["columns"]["blamed"]
    return {
        "name": found["name"],
        "shape": found["shape"],
        "ranks": "".join(" " if state is None else chr(ord("a") + state) for state in states),
        "blamed": [rank for rank, is_it in enumerate(blamed) if is_it],
    }


def _feed(shown: weakref.ref[RankMap], watch: RankMapWatch, seconds: float) -> None:
    while not watch.is_over:
        begun = time.monotonic()
        widget = shown()
        if widget is None:
            return
        try:
            widget.look()
        except Exception as error:  # a host is slow, or the program is about to end
            widget.error = str(error).partition("\n")[0] or type(error).__name__
        del widget
        watch.rest(max(seconds, _EASE * (time.monotonic() - begun)))
