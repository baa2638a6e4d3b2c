"""The state of the program, as `/v1/now` shows it and its events keep it current.

It is by mesh, in columns of one value per rank. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .._namedtuple import NamedTuple
from .._words import rank_name


class Look(NamedTuple):
    """How a state is shown.

    Attributes:
        letter: In the rank map.
        style: Of that letter.
        weight: Precedence: of the ranks that share a cell the one with the highest weight is shown.
    """

    letter: str
    style: str
    weight: int


LOOKS = {
    "ended": Look("-", "dim", 0),
    "idle": Look("·", "dim", 1),
    "runs": Look("r", "black on green", 2),
    "starts": Look("+", "black on cyan", 3),
    "polls": Look("p", "black on cyan", 4),
    "collective": Look("c", "white on blue", 5),
    "waits": Look("w", "black on yellow", 6),
    "debugged": Look("d", "black on cyan", 7),
    "stands": Look("s", "white on magenta", 8),
    "absent": Look("a", "white on red", 9),
    "holds the GIL": Look("g", "white on red", 10),
    "frozen": Look("z", "white on red", 11),
    "does not answer": Look("?", "white on red", 12),
    "silent": Look("?", "white on red", 12),
    "silent host": Look("x", "white on red", 13),
    "failed": Look("F", "white on red", 14),
}
_OTHER = Look("?", "", 6)  # a state of a later version
BLAMED = Look("!", "bold white on red", 99)


class Rank(NamedTuple):
    """A rank of a mesh.

    Attributes:
        uid: Of the mesh.
        number: Of the rank.
    """

    uid: str
    number: int


class Picture:
    """The state of the program, kept current by events.

    Attributes:
        parts: As `/v1/now` has them; empty until something has come.
    """

    def __init__(self) -> None:
        self.parts: dict[str, Any] = {}

    def apply(self, event: str, data: Any) -> None:
        """Take an event of `/v1/now/events`."""
        if event == "state":
            self.parts = data
        elif event == "delta":
            meshes = self.parts["meshes"]
            for uid, mesh in data.pop("meshes", {}).items():
                meshes[uid] = mesh
            self.parts["meshes"] = {uid: mesh for uid, mesh in meshes.items() if mesh is not None}
            for uid, columns in data.pop("cells", {}).items():
                for name, change in columns.items():
                    column = meshes[uid]["columns"][name]
                    for place, value in zip(change["at"], change["to"], strict=True):
                        column[place] = value
            self.parts.update(data)

    @property
    def meshes(self) -> Mapping[str, Any]:
        """The meshes by id."""
        found: Mapping[str, Any] = self.parts.get("meshes", {})
        return found

    def ranks(self) -> Iterator[Rank]:
        """Yield every rank of every mesh."""
        for uid, mesh in self.meshes.items():
            for number in range(mesh["size"]):
                yield Rank(uid, number)

    def value(self, rank: Rank, column: str) -> Any:
        """Return the value of a column for a rank."""
        return self.meshes[rank.uid]["columns"][column][rank.number]

    def name(self, rank: Rank) -> str:
        """Return the name of a rank, for people."""
        return rank_name(self.meshes[rank.uid]["name"], rank.number)

    def state(self, mesh: Mapping[str, Any], number: int) -> str:
        """The name of what a rank does."""
        position = mesh["columns"]["state"][number]
        return "starts" if position is None else str(self.parts["states"][position])

    def host(self, rank: Rank) -> str:
        """The name of its machine."""
        position = self.value(rank, "host")
        return "" if position is None else str(self.parts["hosts"][position])

    def look(self, mesh: Mapping[str, Any], number: int) -> Look:
        """How a rank is shown."""
        if mesh["columns"]["blamed"][number]:
            return BLAMED
        return LOOKS.get(self.state(mesh, number), _OTHER)


class Map(NamedTuple):
    """A rank map of a mesh.

    Attributes:
        per_cell: Ranks that share a cell.
        rows: Number of the first rank of each row, and its cells: letters and their styles.
    """

    per_cell: int
    rows: list[tuple[int, list[tuple[str, str]]]]


def drawn(mesh: Mapping[str, Any], look: Callable[[int], Look], width: int, height: int) -> Map:
    """A cell for each rank, or for several where they would not fit.

    It shows the one that matters most. A row holds whole runs of the mesh's last dimension, if
    that fits.

    Args:
        mesh: As in a picture.
        look: Of a rank.
        width: Cells in a row at most.
        height: Rows at most.
    """
    ranks = int(mesh["size"])
    per_cell = max(1, -(-ranks // (max(1, width) * max(1, height))))
    cells = -(-ranks // per_cell)
    run = list(mesh["shape"].values())[-1] if mesh["shape"] else ranks
    across = width
    if per_cell == 1 and run <= width and -(-cells // (width // run * run)) <= height:
        across = width // run * run if run > 1 else width
    rows = []
    for first in range(0, cells, across):
        row = []
        for cell in range(first, min(first + across, cells)):
            shown = max(
                map(look, range(cell * per_cell, min((cell + 1) * per_cell, ranks))),
                key=lambda each: each.weight,
            )
            row.append((shown.letter, shown.style))
        rows.append((first * per_cell, row))
    return Map(per_cell, rows)
