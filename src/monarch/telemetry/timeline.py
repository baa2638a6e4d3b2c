"""The rows of tables as a timeline: a track for each host, proc and actor, with what each has done.

Pure.

What an actor does at the same time as something else is on a track of its own below the actor's, as
slices of one track are nested.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any

from .._namedtuple import NamedTuple
from .._words import rank_name
from . import perfetto
from .ids import track_id
from .rows import actor_name

Row = Mapping[str, Any]

NEEDS = {
    "hosts": ("id", "address", "machine"),
    "procs": ("id", "mesh", "rank", "host_id", "pid", "state", "reason"),
    "actors": ("id", "name", "rank", "class", "proc_id", "status"),
    "messages": (
        "id", "timestamp_us", "from_actor_id", "to_actor_id", "endpoint", "bytes", "duration_us", "call", "sample_weight",
    ),
    "sent_messages": ("timestamp_us", "sender_actor_id", "endpoint", "bytes", "call", "sample_weight"),
    "spans": ("process_id", "id", "name", "fields_json", "timestamp_us", "duration_us", "actor_id", "thread_name"),
    "steps": ("timestamp_us", "proc_id", "actor_id", "step", "duration_us"),
    "torch_events": ("timestamp_us", "proc_id", "thread", "name", "category", "duration_us"),
}  # fmt: skip
"""Which columns of which tables."""

_EVER = 1 << 62

MESSAGE, SEND, SPAN, STEP = "message", "send", "span", "step"
"""The categories of slices; those of torch are its own."""


class Window(NamedTuple):
    """The window that is shown: times in microseconds since 1970, by our clock.

    Attributes:
        begin: Start; slices that began before it and reach into the window are included.
        end: Until then.
        ahead: By how much the clock of each host is ahead of ours, in microseconds, by `hosts.id`.
    """

    begin: int
    end: int
    ahead: Mapping[int, int]


class Timeline(NamedTuple):
    """A timeline as a file, and counts of its contents.

    Attributes:
        content: The file.
        slices: How many.
        actors: How many have slices.
        procs: In how many processes these are.
    """

    content: bytes
    slices: int
    actors: int
    procs: int


class _Slice(NamedTuple):
    begin: int
    end: int
    name: str
    category: str
    fields: Mapping[str, Any]
    arrows: Sequence[int] = ()  # that end here, or start here if it is a send


def draw(tables: Mapping[str, Sequence[Row]], window: Window) -> Timeline:
    """Make the file.

    Args:
        tables: Rows with the columns of `NEEDS`.
        window: The period to draw.
    """
    return _Drawing(tables, window).timeline()


class _Drawing:
    def __init__(self, tables: Mapping[str, Sequence[Row]], window: Window) -> None:
        self._tables = tables
        self._window = window
        self._ahead = {row["id"]: window.ahead.get(row["host_id"], 0) for row in tables["procs"]}
        self._proc_of = {row["id"]: row["proc_id"] for row in tables["actors"]}
        self._tracks: list[bytes] = []
        self._known: set[int] = set()
        self._on: defaultdict[int, list[_Slice]] = defaultdict(list)  # by track
        self._describe()
        self._draw_messages()
        self._draw_spans()
        self._draw_steps()
        self._draw_torch()

    # tracks

    def _describe(self) -> None:
        hosts = {row["id"]: row for row in self._tables["hosts"]}
        for rank, row in enumerate(hosts.values()):
            self._track(row["id"], f"host {row['machine']} ({row['address']})", 0, rank)
        order = sorted(
            self._tables["procs"],
            key=lambda row: (row["mesh"] != "client", row["mesh"], row["rank"]),
        )
        for rank, row in enumerate(order):
            name = rank_name(row["mesh"], row["rank"])
            ended = f", ended: {row['reason']}" if row["state"] == "ended" else ""
            above = row["host_id"] if row["host_id"] in hosts else 0
            self._track(row["id"], f"proc {name} (process {row['pid']}{ended})", above, rank)
        for rank, row in enumerate(self._tables["actors"]):
            if row["class"] is not None or row["status"] == "Client":
                self._track(
                    row["id"],
                    f"actor {actor_name(row)}",
                    row["proc_id"] if row["proc_id"] in self._known else 0,
                    rank,
                )

    def _track(self, uuid: int, name: str, parent: int, rank: int = 0) -> int:
        if uuid not in self._known:
            self._known.add(uuid)
            self._tracks.append(perfetto.track(uuid, name, parent, rank))
        return uuid

    def _actor(self, uuid: int) -> int:
        return self._track(uuid, f"actor {uuid:x}, which has ended", 0)

    # slices

    def _put(self, track: int, proc: int | None, each: _Slice) -> bool:
        """Returns whether it is shown: those of another time than the window's are not."""
        ahead = self._ahead.get(proc or 0, 0)
        begin, end = each.begin - ahead, min(each.end - ahead, self._window.end)
        shown = end >= self._window.begin and begin <= self._window.end
        if shown:
            self._on[track].append(each._replace(begin=begin, end=max(begin, end)))
        return shown

    def _draw_messages(self) -> None:
        """Draw messages with their sends, and arrows between those that are shown."""
        # by the sender, and the number of the call
        arrows: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        names = {row["id"]: actor_name(row) for row in self._tables["actors"]}
        for row in self._tables["sent_messages"]:
            sender, at = row["sender_actor_id"], row["timestamp_us"]
            to = arrows[sender, row["call"]] if row["call"] is not None else []
            fields = {"bytes": row["bytes"], **_weight(row)}
            sent = _Slice(at, at, row["endpoint"], SEND, fields, to)
            if not self._put(self._actor(sender), self._proc_of.get(sender), sent):
                arrows.pop((sender, row["call"]), None)
        for row in self._tables["messages"]:
            to, sender, begin = row["to_actor_id"], row["from_actor_id"], row["timestamp_us"]
            fields = {
                "from": names.get(sender),
                "bytes": row["bytes"],
                **_lasting(row),
                **_weight(row),
            }
            begun = arrows.get((sender, row["call"]))
            end = _end(begin, row["duration_us"])
            arrow = () if begun is None else (row["id"],)
            handled = _Slice(begin, end, row["endpoint"], MESSAGE, fields, arrow)
            if self._put(self._actor(to), self._proc_of.get(to), handled) and begun is not None:
                begun.append(row["id"])

    def _draw_spans(self) -> None:
        for row in self._tables["spans"]:
            proc, actor = row["process_id"], row["actor_id"]
            track = (
                self._actor(actor)
                if actor is not None
                else self._below(proc, f"thread {row['thread_name']}")
            )
            begin = row["timestamp_us"]
            fields = {**json.loads(row["fields_json"]), **_lasting(row)}
            end = _end(begin, row["duration_us"])
            self._put(track, proc, _Slice(begin, end, row["name"], SPAN, fields))

    def _draw_steps(self) -> None:
        marks: defaultdict[int, list[Row]] = defaultdict(list)
        for row in self._tables["steps"]:
            marks[row["actor_id"] or row["proc_id"]].append(row)
        for who, rows in marks.items():
            rows.sort(key=lambda row: int(row["timestamp_us"]))
            track = self._below(who, "steps")
            for row, after in zip(rows, [*rows[1:], None], strict=True):
                begin = row["timestamp_us"]
                end = after["timestamp_us"] if after is not None else _EVER
                fields = {"unfinished": True} if after is None else {}
                self._put(
                    track, row["proc_id"], _Slice(begin, end, f"step {row['step']}", STEP, fields)
                )

    def _draw_torch(self) -> None:
        for row in self._tables["torch_events"]:
            track = self._below(row["proc_id"], f"torch {row['thread']}")
            begin = row["timestamp_us"]
            self._put(
                track,
                row["proc_id"],
                _Slice(begin, begin + row["duration_us"], row["name"], row["category"], {}),
            )

    def _below(self, parent: int, name: str) -> int:
        return self._track(track_id(parent, name), name, parent if parent in self._known else 0)

    # the file

    def timeline(self) -> Timeline:
        out = [perfetto.clock(self._window.end * 1000)]
        events: list[bytes] = []
        for track, slices in self._on.items():
            for number, lane in enumerate(_lanes(slices)):
                where = (
                    self._track(track_id(track, str(number)), "meanwhile", track, number)
                    if number
                    else track
                )
                events += _events(where, lane)
        actors = [track for track in self._on if track in self._proc_of]
        procs = {self._proc_of[actor] for actor in actors}
        count = sum(map(len, self._on.values()))
        return Timeline(b"".join((*out, *self._tracks, *events)), count, len(actors), len(procs))


def _end(begin: int, duration: int | None) -> int:
    return begin + duration if duration is not None else _EVER


def _lasting(row: Row) -> dict[str, Any]:
    return {"unfinished": True} if row["duration_us"] is None else {}


def _weight(row: Row) -> dict[str, Any]:
    return {"sample_weight": row["sample_weight"]} if row["sample_weight"] > 1 else {}


def _lanes(slices: Iterable[_Slice]) -> list[list[_Slice]]:
    """The fewest lanes in which slices are nested.

    A span is nested in what it began in, a message in nothing.
    """
    lanes: list[list[_Slice]] = [[]]
    open_ends: list[list[int]] = [[]]
    # heaps: lanes, and those that something is open in, by its end
    free, busy = [0], list[tuple[int, int]]()
    for each in sorted(slices, key=lambda each: (each.begin, -each.end, each.category != MESSAGE)):
        if each.category == SEND:
            lanes[0].append(each)
            continue
        while busy and busy[0][0] <= each.begin:
            heappush(free, heappop(busy)[1])
        number = first_free = free[0] if free else len(lanes)
        if each.category != MESSAGE:
            number = next((n for n in range(first_free) if _fits(each, open_ends[n])), first_free)
        if number < first_free:
            open_ends[number].append(each.end)
        else:
            if free:
                heappop(free)
            else:
                lanes.append([])
                open_ends.append([])
            open_ends[number] = [each.end]
            heappush(busy, (each.end, number))
        lanes[number].append(each)
    return lanes


def _fits(each: _Slice, ends: list[int]) -> bool:
    """Return whether a lane is not free for a slice, which ends before the one it began in.

    `ends` are the ends of the slices that are open there.
    """
    while ends[-1] <= each.begin:
        ends.pop()
    return ends[-1] >= each.end


def _events(track: int, lane: Sequence[_Slice]) -> Iterator[bytes]:
    ends: list[int] = []
    for each in lane:
        begin, name, category = each.begin * 1000, each.name, each.category
        fields, arrows = each.fields, each.arrows
        while ends and ends[-1] <= begin:
            yield perfetto.end(ends.pop(), track)
        sent = category == SEND
        yield perfetto.begin(begin, track, name, category, fields, arrows, instant=sent)
        if not sent:
            ends.append(each.end * 1000)
    while ends:
        yield perfetto.end(ends.pop(), track)
