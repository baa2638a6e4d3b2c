"""Screen 1: the verdict, a map of all ranks, failures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from rich.cells import cell_len

from .._words import rank_name, since
from ..logs.ranks import runs
from .pane import Pane
from .picture import BLAMED, LOOKS, Look, drawn
from .sources import NowSource
from .text import Row, ago, duration, folded, looking, size, wrapped

_LATE = "bold yellow"
STATUS = {"fine": "bold green", "slow": _LATE, "degraded": _LATE, "stuck": "bold red"}
_RAMP = [f"{text} on {color}" for color, text in (
    ("blue", "white"), ("cyan", "black"), ("green", "black"), ("yellow", "black"), ("magenta", "white"), ("red", "white"),
)]  # fmt: skip
_FIGURES: dict[str, Callable[[float | None], str]] = {
    "state": str, "seconds": duration, "queue": str, "handled": str, "rss": size, "cpu": duration,
}  # fmt: skip
_FEWEST = 3  # rows of a map
_MOST_FAILURES = 5
_OF_PROCESS = "the process this actor was running on failed: "
_BESIDE = 140  # columns from which on the maps stand beside the text


class Now(Pane):
    """The first screen: the verdict."""

    TITLE = "Now"
    HINTS = "Enter goes there  v other figure"
    HELP = (
        "What is wrong, in one sentence; who holds up the others; a cell for each rank;"
        " failures.\nWhere ranks are more than cells, several share one, and it shows what matters"
        " most.\nv shows in the map, in place of the state: seconds at the same place, queue,"
        " messages handled, memory, CPU: from 0 for the\nleast to 9 for the most.\n\nIn the map:  !"
        " holds up others  "
        + "  ".join(
            f"{look.letter} {state}"
            for state, look in LOOKS.items()
            if state not in ("silent", "idle")
        )
    )
    BINDINGS = [("v", "view", "Other figure")]

    def __init__(self, source: NowSource) -> None:
        super().__init__(source)
        self._picture = source.picture
        self._figure = "state"
        self._abouts: list[str] = []

    def rows(self) -> tuple[Sequence[Row], Row]:
        parts = self._picture.parts
        if not parts:
            return [looking()], ()
        width = max(20, self.listing.size.width)
        text = width * 3 // 5 if width >= _BESIDE else width
        above = [("stacks", row) for row in verdict(parts["verdict"], text - 2)]
        above += [
            ("ranks", [(f"! {who} did not answer: {why}", "yellow")])
            for who, why in parts["silent"].items()
        ]
        below = [("failures", row) for row in _failures(parts["failures"])]
        above, below = (
            [(about, part) for about, row in rows for part in folded(row, text - 2)]
            for rows in (above, below)
        )
        meshes = sorted(
            parts["meshes"].values(), key=lambda mesh: (mesh["name"] == "client", mesh["name"])
        )
        taken = len(above) + len(below) if text == width else 0
        left = self.listing.size.height - taken - 2 * len(meshes)
        maps: list[tuple[str, Row]] = []
        for number, mesh in enumerate(meshes):
            share = max(_FEWEST, left // (len(meshes) - number))
            rows = list(self._map(mesh, width - text or width, share))
            left -= len(rows) - 1
            maps += [("ranks", row) for row in rows]
        told = [*above, *below]
        lines = [*_beside(told, maps, text)] if text < width else [*above, *maps, *below]
        self._abouts = [about for about, _ in lines]
        return [row for _, row in lines], ()

    def choose(self) -> None:
        """Open the screen that tells more of the marked line."""
        if self._abouts:
            self.dashboard.open(self._abouts[self.listing.cursor])

    def note(self) -> str:
        return "" if self._figure == "state" else f"map: {self._figure}"

    def action_view(self) -> None:
        """Show another figure in the map."""
        names = list(_FIGURES)
        self._figure = names[(names.index(self._figure) + 1) % len(names)]
        self.rebuild()

    def _map(self, mesh: Mapping[str, Any], width: int, height: int) -> Iterator[Row]:
        ranks = mesh["size"]
        digits = len(str(max(0, ranks - 1)))
        look, legend = self._looks(mesh)
        found = drawn(mesh, look, width - digits - 2, height)
        shape = " × ".join(f"{name} {count}" for name, count in mesh["shape"].items())
        shared = f"a cell is {found.per_cell} ranks" if found.per_cell > 1 else ""
        many = f"{ranks:,} ranks" if ranks > 1 else ""
        about = "  ".join(filter(None, (many, shape, shared)))
        head = [(mesh["name"], "bold"), (f"  {about}  " if about else "  ", "dim"), *legend]
        yield from folded(head, width)
        for first, cells in found.rows:
            yield [(f"{first:{digits}} ", "dim"), *cells]

    def _looks(self, mesh: Mapping[str, Any]) -> tuple[Callable[[int], Look], Row]:
        """How a rank is shown, and the words beside the name of the mesh."""
        if self._figure == "state":
            counts = Counter(self._picture.state(mesh, number) for number in range(mesh["size"]))
            legend: list[tuple[str, str]] = []
            if blamed := sum(map(bool, mesh["columns"]["blamed"])):
                held_up = f"{blamed:,} in the way"
                legend += [(BLAMED.letter, BLAMED.style), (f" {held_up}  ", "")]
            for state, count in counts.most_common():
                look = LOOKS.get(state)
                legend += [
                    (look.letter if look else "?", look.style if look else ""),
                    (f" {count:,} {state}  ", ""),
                ]
            return lambda number: self._picture.look(mesh, number), legend
        column = mesh["columns"][self._figure]
        known = [value for value in column if value is not None]
        low, high = min(known, default=0), max(known, default=0)

        def look_at(number: int) -> Look:
            value = column[number]
            if value is None:
                return LOOKS["idle"]
            level = int(9.999 * (value - low) / (high - low)) if high > low else 0
            return Look(str(level), _RAMP[level * len(_RAMP) // 10], level)

        text = _FIGURES[self._figure]
        scale = "not known"
        if known:
            scale = f"{self._figure} {text(low)} to {text(high)}"
        return look_at, [(scale, "")]


def verdict(found: Mapping[str, Any], width: int) -> Iterator[Row]:
    """The sentence of a verdict, the ranks at fault, further troubles."""
    yield from wrapped(found["sentence"], width, STATUS.get(found["status"], "bold"))
    for each in found["blamed"]:
        doing = f"  {each['reason'] or each['state']}{since(each['seconds'])}"
        yield [("! ", "bold red"), *who(each), (doing, "yellow")]
    for title in ("full", "frozen", "swapping"):
        yield from ([(f"{title}: {text}", "yellow")] for text in found[title])
    for circle in found["circles"]:
        yield [("circle: " + " → ".join([*circle, circle[0]]), "yellow")]


def who(standing: Mapping[str, Any]) -> Row:
    """Ranks that do the same, and where they are."""
    hosts = standing["hosts"]
    one = len(standing["pids"]) == 1
    places = (*hosts[:1], standing["point"], f"pid {standing['pids'][0]}") if one else ()
    place = ", ".join(filter(None, places))
    doing = ": ".join(filter(None, (standing["endpoint"], standing["place"])))
    return [
        (rank_name(standing["mesh"], runs(standing["ranks"])), "bold"),
        (f" ({place})" if place else "", "dim"),
        (f"  {doing}", ""),
    ]


def cause(message: str) -> str:
    """The first line of a failure's message, without what all failures of processes say."""
    return message.partition("\n")[0].removeprefix(_OF_PROCESS)


def _beside(
    told: Sequence[tuple[str, Row]], maps: Sequence[tuple[str, Row]], width: int
) -> Iterator[tuple[str, Row]]:
    """Lines of text, and to the right of them the maps."""
    for (about, line), (_, cells) in zip_longest(told, maps, fillvalue=("ranks", ())):
        gap = width - sum(cell_len(piece) for piece, _ in line)
        yield about, [*line, (" " * gap, ""), *cells]


def _failures(failures: Sequence[Mapping[str, Any]]) -> Iterator[Row]:
    if failures:
        many = f"{len(failures):,} failures, the first one first" if failures[1:] else "1 failure"
        yield [(many, "bold")]
    for each in failures[:_MOST_FAILURES]:
        message = cause(each["message"])
        style = "dim" if each["is_propagated"] else "red"
        at = each["occurred_us"]
        when = f", {ago(at)}" if at else ""
        yield [
            ("  " + str(each["root_cause"] or each["reference"]) + when, "bold"),
            (f"  {message}", style),
        ]
    if len(failures) > _MOST_FAILURES:
        more = f"and {len(failures) - _MOST_FAILURES:,} more"
        yield [(f"  {more}", "dim")]
