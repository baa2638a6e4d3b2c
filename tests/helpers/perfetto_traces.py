"""A file of Perfetto's, read back by its official schema."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import pytest


class Shown(NamedTuple):
    """A slice, or an instant.

    Attributes:
        track: The names of the tracks above it, and its own, joined by `` / ``.
        end: None of what takes no time.
        depth: In how many others it is.
        starts: The arrows that start here.
        ends: Those that end here.
    """

    track: str
    name: str
    category: str
    begin: int
    end: int | None
    depth: int
    fields: dict[str, Any]
    starts: tuple[int, ...]
    ends: tuple[int, ...]


def tracks_of(content: bytes | Path) -> list[str]:
    """The tracks of a file, each with those above it."""
    return list(_paths(_packets(content)).values())


def shown_by(content: bytes | Path) -> list[Shown]:
    """All that is on its tracks; each slice must end, in what it has begun in."""
    packets = _packets(content)
    paths = _paths(packets)
    found: list[Shown] = []
    open_slices: defaultdict[int, list[int]] = defaultdict(list)
    for packet in packets:
        if not packet.HasField("track_event"):
            continue
        event = packet.track_event
        inside = open_slices[event.track_uuid]
        if event.type == event.TYPE_SLICE_END:
            index = inside.pop()
            assert packet.timestamp >= found[index].begin
            found[index] = found[index]._replace(end=packet.timestamp)
            continue
        fields = {
            each.name: getattr(each, each.WhichOneof("value"), None)
            for each in event.debug_annotations
        }
        assert event.track_uuid in paths, "a track is described before it is used"
        found.append(
            Shown(
                paths[event.track_uuid],
                event.name,
                event.categories[0],
                packet.timestamp,
                None,
                len(inside),
                fields,
                tuple(event.flow_ids),
                tuple(event.terminating_flow_ids),
            )
        )
        if event.type == event.TYPE_SLICE_BEGIN:
            inside.append(len(found) - 1)
    assert not any(open_slices.values()), "all slices end"
    return found


def _packets(content: bytes | Path) -> Any:
    schema = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    data = content if isinstance(content, bytes) else content.read_bytes()
    trace = schema.Trace.FromString(data)
    trace.DiscardUnknownFields()
    assert len(trace.SerializeToString()) == len(data), "nothing in it is unknown to the schema"
    times: defaultdict[int, int] = defaultdict(int)
    for packet in trace.packet:
        if packet.HasField("track_event"):
            assert packet.timestamp >= times[packet.track_event.track_uuid], (
                "the events of a track are in order"
            )
            times[packet.track_event.track_uuid] = packet.timestamp
    return trace.packet


def _paths(packets: Any) -> dict[int, str]:
    paths: dict[int, str] = {}
    for packet in packets:
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            assert track.uuid not in paths
            paths[track.uuid] = (
                f"{paths[track.parent_uuid]} / {track.name}" if track.parent_uuid else track.name
            )
    return paths
