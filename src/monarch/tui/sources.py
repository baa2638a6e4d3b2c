"""The data of screens.

Each source asks on the thread of a feed, and keeps the answers on that of the screen.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from .._namedtuple import NamedTuple
from .http import AdminError, Line
from .picture import Picture

_LATE = 3.0  # seconds by which a line of a log may come later than it was printed


class ScreenSource:
    """Base class of what a screen shows, with the state of its connection.

    Attributes:
        heard: When the program was heard last, by the monotonic clock; 0 for never.
        trouble: Why nothing comes; empty if all is well.
        ended: Whether that is as the program has ended.
        odd: Why the last update can't be shown; empty if it can.
    """

    def __init__(self) -> None:
        self.heard = 0.0
        self.trouble = ""
        self.ended = False
        self.odd = ""

    def look(self, line: Line) -> Iterator[Any]:
        """Ask; yields what comes, None for a sign of life. On the thread of a feed."""
        raise NotImplementedError

    def take(self, update: Any) -> None:
        """Keep an update."""
        raise NotImplementedError


class NowSource(ScreenSource):
    """The state of all ranks, from `/v1/now`.

    Attributes:
        picture: Of all ranks.
    """

    def __init__(self) -> None:
        super().__init__()
        self.picture = Picture()

    def look(self, line: Line) -> Iterator[Any]:
        for name, data in line.events("/v1/now/events"):
            yield (name, data) if name else None

    def take(self, update: Any) -> None:
        self.picture.apply(*update)


class WhySource(ScreenSource):
    """The verdict, from `/v1/why`.

    Attributes:
        verdict: As `/v1/why` has it; empty until it has come.
    """

    def __init__(self) -> None:
        super().__init__()
        self.verdict: dict[str, Any] = {}

    def look(self, line: Line) -> Iterator[Any]:
        yield line.get("/v1/why")

    def take(self, update: Any) -> None:
        self.verdict = update


class TreeLine(NamedTuple):
    """A line of the tree.

    Attributes:
        reference: Of a host, a proc, an actor.
        label: What people call it.
        depth: 0 for hosts.
        children: How many.
    """

    reference: str
    label: str
    depth: int
    children: int

    @property
    def is_stopped(self) -> bool:
        """True for an actor, or a proc, that was stopped."""
        return "(stopped" in self.label


class TreeSource(ScreenSource):
    """The tree of hosts, procs and actors, from `/v1/tree`.

    Attributes:
        nodes: All, in the order of the tree.
        root: The payload of the root.
        wanted: Reference of the node that is shown in detail.
        details: Its payload, or the error in its place.
    """

    def __init__(self) -> None:
        super().__init__()
        self.nodes: list[TreeLine] = []
        self.root: Mapping[str, Any] = {}
        self.wanted = ""
        self.details: Mapping[str, Any] = {}

    def look(self, line: Line) -> Iterator[Any]:
        wanted = self.wanted
        nodes = list(parse_tree(line.text("/v1/tree")))
        root = line.get("/v1/root")
        try:
            details = line.node(wanted or (nodes[0].reference if nodes else "root"))
        except AdminError as error:  # it has ended
            details = {
                "identity": wanted,
                "properties": {"Error": {"code": error.code, "message": str(error)}},
            }
        yield nodes, root, details

    def take(self, update: Any) -> None:
        self.nodes, self.root, self.details = update


class LogSource(ScreenSource):
    """Lines of logs, from `/v1/logs`.

    Attributes:
        lines: As `/v1/logs` has them, by time, the last ones.
        dropped: How many were kept before these.
        filter: The filter: `mesh`, `rank`, `level`.
        notes: Hosts that keep no logs, or have not answered.
    """

    MOST = 10_000
    """Lines that are kept, and half as many again before the oldest go."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[dict[str, Any]] = []
        self.dropped = 0
        self.filter: dict[str, str] = {}
        self.notes: list[str] = []

    def choose(self, wanted: Mapping[str, str]) -> None:
        """Ask for other lines from now on; the feed must be a new one."""
        self.filter = {name: value for name, value in wanted.items() if value}
        self.lines, self.dropped, self.heard = [], 0, 0.0

    def look(self, line: Line) -> Iterator[Any]:
        if not self.lines:
            found = line.get("/v1/logs", limit=self.MOST // 2, **self.filter)
            yield found["lines"], [f"{who}: {why}" for who, why in found["silent"].items()]
            since = found["lines"][-1]["time"] if found["lines"] else time.time()
        else:
            since = self.lines[-1]["time"]
        for name, data in line.events(
            "/v1/logs/follow", since=f"{since - _LATE:.6f}", **self.filter
        ):
            yield (data, None) if name == "lines" else None

    def take(self, update: Any) -> None:
        lines, notes = update
        earliest = min((line["time"] for line in lines), default=0.0)
        known = {_identity(line) for line in self._since(earliest)}
        self.lines += [line for line in lines if _identity(line) not in known]
        if len(self.lines) > self.MOST * 3 // 2:
            self.dropped += len(self.lines) - self.MOST
            del self.lines[: -self.MOST]
        if notes is not None:
            self.notes = notes

    def _since(self, earliest: float) -> Iterator[dict[str, Any]]:
        for line in reversed(self.lines):
            if line["time"] < earliest - _LATE:
                return
            yield line


def _identity(line: Mapping[str, Any]) -> tuple[Any, ...]:
    return line["time"], line["mesh"], line["rank"], line["stream"], line["text"]


def parse_tree(text: str) -> Iterator[TreeLine]:
    """The nodes of `/v1/tree`.

    Each line has four characters per level, a label, an arrow, and a URL.
    """
    found: list[tuple[str, str, int]] = []
    for line in text.split("\n"):
        drawn, arrow, url = line.rpartition("  ->  ")
        indent = next(
            (at for at in range(0, len(drawn), 4) if drawn[at : at + 4] not in ("│   ", "    ")), 0
        )
        if arrow and drawn[indent : indent + 4] in ("├── ", "└── "):
            found.append((unquote(url.rpartition("/v1/")[2]), drawn[indent + 4 :], indent // 4))
    children = [0] * len(found)
    above: list[int] = []
    for number, (_, _, depth) in enumerate(found):
        del above[depth:]
        if above:
            children[above[-1]] += 1
        above.append(number)
    for (reference, label, depth), count in zip(found, children, strict=True):
        yield TreeLine(reference, label, depth, count)
