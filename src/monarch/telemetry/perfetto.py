"""The file format of Perfetto.

It has tracks with slices on them, and arrows between slices, as the protobuf that ui.perfetto.dev
opens. Pure.

Written here, as it takes a page: the official library needs a protobuf runtime that is younger than
that of many programs. Tests read the files back by the official schema. Numbers of fields are those
of `perfetto/trace/trace_packet.proto` and of what it imports.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from struct import Struct

_BOOT, _REAL = 6, 1  # builtin clocks
_BEGIN, _END, _INSTANT = 1, 2, 3  # types of events
_EXPLICIT = 3  # children of a track are in the order of their rank
_SEQUENCE = 1  # who writes: all packets are of one

_fixed = Struct("<Q").pack

Value = str | int | float | bool | None


def _varint(number: int) -> bytes:
    if number < 0x80:
        return number.to_bytes(1, "little")
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value & 0xFFFF_FFFF_FFFF_FFFF)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _text(field: int, value: str) -> bytes:
    return _bytes(field, value.encode(errors="replace"))


def _fixeds(field: int, values: Iterable[int]) -> bytes:
    head = _varint(field << 3 | 1)
    return b"".join([head + _fixed(value) for value in values])


_OF_SEQUENCE = _number(10, _SEQUENCE)


def _packet(*fields: bytes) -> bytes:
    return _bytes(1, b"".join((*fields, _OF_SEQUENCE)))


def clock(now: int) -> bytes:
    """The first packet: times are nanoseconds since 1970."""
    clocks = [_bytes(1, _number(1, each) + _number(2, now)) for each in (_BOOT, _REAL)]
    return _packet(_bytes(6, b"".join(clocks)))


def track(uuid: int, name: str, parent: int = 0, rank: int = 0) -> bytes:
    """Return a track's packet; it must precede the slices on the track.

    Args:
        uuid: Its id, not 0.
        name: What the viewer shows.
        parent: The id of the track above; 0 for none.
        rank: Its place among its siblings.
    """
    above = _number(5, parent) if parent else b""
    return _packet(
        _bytes(
            60,
            _number(1, uuid) + _text(2, name) + above + _number(11, _EXPLICIT) + _number(12, rank),
        )
    )


def begin(
    at: int,
    track: int,
    name: str,
    category: str,
    fields: Mapping[str, Value] | None = None,
    arrows: Iterable[int] = (),
    *,
    instant: bool = False,
) -> bytes:
    """Return the begin of a slice; slices on a track are nested, and written in order.

    Args:
        at: Time, in nanoseconds.
        track: Id of the track.
        name: What the viewer shows.
        category: Category of the slice.
        fields: Details, by name.
        arrows: Ids of those that end here.
        instant: It takes no time, so it is not ended, and the arrows start here.
    """
    kind, field = (_INSTANT, 47) if instant else (_BEGIN, 48)
    return _event(at, track, kind, _named(name, category, fields) + _fixeds(field, arrows))


def end(at: int, track: int) -> bytes:
    """The innermost slice of a track that has not ended ends."""
    return _event(at, track, _END, b"")


def _event(at: int, track: int, kind: int, more: bytes) -> bytes:
    return _packet(_number(8, at), _bytes(11, _number(9, kind) + _number(11, track) + more))


def _named(name: str, category: str, fields: Mapping[str, Value] | None) -> bytes:
    shown = [
        _bytes(4, _text(10, key) + _value(value))
        for key, value in (fields or {}).items()
        if value is not None
    ]
    return _text(22, category) + _text(23, name) + b"".join(shown)


def _value(value: Value) -> bytes:
    if isinstance(value, bool):
        return _number(2, value)
    if isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
        return _number(4, value)
    if isinstance(value, float):
        return _varint(5 << 3 | 1) + Struct("<d").pack(value)
    return _text(6, str(value))
