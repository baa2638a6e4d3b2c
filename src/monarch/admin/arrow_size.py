"""The size of what a stream of Arrow's IPC unpacks to, read before any of it is unpacked.

A compressed buffer begins with its size unpacked. Where the buffers of a batch are stands in its
metadata, a flatbuffer, of which this reads those few fields.
"""

from __future__ import annotations

from struct import unpack_from

_GOES_ON = 0xFFFFFFFF  # before the length of metadata; older writers leave it out
_DICTIONARY, _BATCH = 2, 3  # kinds of messages
_AS_IT_IS = -1  # for the size of a buffer in a compressed batch that is not compressed


def unpacked_size(stream: bytes) -> int:
    """Add up the bytes of all values of a stream.

    Raises:
        ValueError: It is no such stream.
        struct.error: It is no such stream.
    """
    place = total = 0
    while place < len(stream):
        [length] = unpack_from("<I", stream, place)
        place += 4
        if length == _GOES_ON:
            [length] = unpack_from("<I", stream, place)
            place += 4
        if not length:
            break
        body = place + length
        metadata = memoryview(stream)[place:body]  # messages hold no offsets into another one
        message = _referred(metadata, 0)
        kind, batch, size = (_field(metadata, message, number) for number in (1, 2, 3))
        kind = metadata[kind] if kind else 0
        if kind in (_DICTIONARY, _BATCH):
            batch = _referred(metadata, batch)
            if kind == _DICTIONARY:
                batch = _referred(metadata, _field(metadata, batch, 1))
            total += _size_of_batch(stream, body, metadata, batch)
        place = body + (unpack_from("<Q", metadata, size)[0] if size else 0)
    return total


def _size_of_batch(stream: bytes, body: int, metadata: memoryview, batch: int) -> int:
    vector = _referred(metadata, _field(metadata, batch, 2))
    is_compressed = _field(metadata, batch, 3)
    total = 0
    for number in range(unpack_from("<I", metadata, vector)[0]):
        offset, size = unpack_from("<QQ", metadata, vector + 4 + 16 * number)
        if is_compressed and size:
            [unpacked] = unpack_from("<q", stream, body + offset)
            if unpacked < _AS_IT_IS:
                raise ValueError(f"a buffer unpacks to {unpacked} bytes")
            size = size if unpacked == _AS_IT_IS else unpacked
        total += size
    return total


def _field(metadata: memoryview, table: int, number: int) -> int:
    """The place of a field of a table; 0: it is left out."""
    fields = table - unpack_from("<i", metadata, table)[0]
    slot = 4 + 2 * number
    is_known = slot < unpack_from("<H", metadata, fields)[0]
    offset: int = unpack_from("<H", metadata, fields + slot)[0] if is_known else 0
    return table + offset if offset else 0


def _referred(metadata: memoryview, place: int) -> int:
    """The place of the table or vector that is referred to here."""
    found: int = place + unpack_from("<I", metadata, place)[0]
    return found
