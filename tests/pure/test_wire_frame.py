from __future__ import annotations

import itertools
import resource
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monarch._core.wire import frame as wire
from monarch._core.wire.frame import (
    CALL,
    DEAD,
    ERROR,
    EXCEPTION,
    EXPLICIT,
    FLAGS_AT,
    GONE,
    HEADER_SIZE,
    HELLO,
    NO_RANK,
    PORT,
    READ_SIZE,
    REPLY,
    SEGMENT,
    URGENT,
    VALUE,
    Bytes,
    Decoder,
    Frame,
    FrameError,
    decode,
    encode,
    encode_around_rank,
    pack_rank,
    parting,
    segment_offsets,
    split_segment,
)

LIMIT = 1 << 30
U32 = st.integers(0, 2**32 - 1)
U64 = st.integers(0, 2**64 - 1)


@st.composite
def frames(draw: st.DrawFn, largest: int = 300) -> Frame:
    return Frame(
        draw(st.sampled_from([HELLO, CALL, REPLY, PORT])),
        draw(st.sampled_from([VALUE, ERROR, DEAD, EXCEPTION, URGENT, EXPLICIT, URGENT | EXPLICIT])),
        draw(U32),
        draw(U64),
        draw(U64),
        draw(U64),
        draw(st.binary(max_size=60)),
        draw(st.binary(max_size=largest)),
        draw(st.lists(st.binary(max_size=largest), max_size=5)),
    )


def plain(frame: Frame) -> Frame:
    """The same frame with parts that compare by content."""
    return frame._replace(
        payload=bytes(frame.payload), buffers=[bytes(buffer) for buffer in frame.buffers]
    )


def on_the_stream(frame: Frame) -> bytes:
    """All bytes of a frame, as a connection without shared memory writes them."""
    head, size = encode(frame)
    data = head + b"".join(frame.buffers)
    assert len(data) == size
    return data


def pieces(data: bytes, sizes: Iterator[int]) -> Iterator[bytes]:
    start = 0
    while start < len(data):
        size = next(sizes)
        yield data[start : start + size]
        start += size


def push(decoder: Decoder, data: bytes) -> list[bytes | memoryview]:
    """Hand bytes to a decoder as a connection does: in place while it offers space, else from a
    reused buffer.
    """
    done: list[bytes | memoryview] = []
    while data:
        space = decoder.space()
        if space is None:
            scratch = bytearray(data[:READ_SIZE])
            count = len(scratch)
            done += decoder.feed(memoryview(scratch))
            scratch[:] = b"\xee" * count  # the next read overwrites it
        else:
            count = min(len(space), len(data))
            space[:count] = data[:count]
            done += decoder.filled(count)
        data = data[count:]
    return done


def check_decoded(sent: list[Frame], sizes: list[int]) -> None:
    """A decoder finds the frames in a stream that comes in chunks of these sizes, in turns."""
    stream = b"".join(map(on_the_stream, sent))
    decoder = Decoder(LIMIT)
    got: list[bytes | memoryview] = []
    for chunk in pieces(stream, itertools.cycle(sizes)):
        got += push(decoder, chunk)
    assert [plain(decode(one)) for one in got] == [plain(one) for one in sent]
    assert decoder.idle
    assert decoder.space() is None


@given(frames())
def test_a_frame_of_any_kind_survives_the_stream(frame: Frame) -> None:
    assert plain(decode(memoryview(on_the_stream(frame)))) == plain(frame)


@given(frames())
def test_a_frame_survives_with_its_buffers_in_a_segment(frame: Frame) -> None:
    frame = frame._replace(flags=frame.flags | SEGMENT, buffers=[b"x", *frame.buffers])
    head, size = encode(frame, inline=False)
    assert size == len(head)
    assert head[FLAGS_AT] & SEGMENT
    offsets, total = segment_offsets([len(buffer) for buffer in frame.buffers])
    segment = bytearray(total)
    for offset, buffer in zip(offsets, frame.buffers, strict=True):
        segment[offset : offset + len(buffer)] = buffer
    got = decode(memoryview(head), memoryview(segment))
    assert plain(got) == plain(frame._replace(flags=frame.flags & ~SEGMENT))


def test_shared_memory_for_no_buffers_is_no_frame() -> None:
    """Passed on to another process with this flag and without the memory, it would be none there."""
    head, _ = encode(Frame(CALL, SEGMENT, NO_RANK, 1, 2, 3, b"meta", b"payload"))
    with pytest.raises(FrameError, match="counts 4 bytes and 0 buffers"):
        decode(head, memoryview(b""))


@given(frames())
def test_a_frame_whose_buffers_are_in_line_is_not_taken_for_one_with_a_segment(
    frame: Frame,
) -> None:
    assert not on_the_stream(frame)[FLAGS_AT] & SEGMENT


def test_a_frame_without_buffers_is_encoded_in_one_piece() -> None:
    data, size = encode(Frame(CALL, 0, NO_RANK, 1, 2, 3, b"meta", b"payload"))
    assert size == len(data) == HEADER_SIZE + len(b"metapayload")
    assert struct.unpack_from("<Q", data)[0] == size - 8


@pytest.mark.parametrize(
    "payload", [b"abc", bytearray(b"abc"), memoryview(b"abc")], ids=["bytes", "bytearray", "view"]
)
def test_a_payload_may_be_any_kind_of_bytes(payload: Bytes) -> None:
    data, _ = encode(Frame(CALL, 0, 0, 1, 2, 3, b"m", payload))
    assert bytes(decode(memoryview(data)).payload) == b"abc"


@given(frames(), U32)
def test_one_encoding_serves_several_ranks(frame: Frame, rank: int) -> None:
    frame = frame._replace(buffers=())
    before, behind = encode_around_rank(frame)
    data = before + pack_rank(rank) + behind
    assert plain(decode(data)) == plain(frame._replace(rank=rank))


def test_a_connection_says_why_it_ends() -> None:
    got = decode(encode(parting("too many connections"))[0])
    assert got == Frame(GONE, 0, 0, 0, 0, 0, b"too many connections", b"")


def test_encoding_reads_the_buffers_but_does_not_copy_them() -> None:
    frame = Frame(CALL, 0, 0, 1, 2, 3, b"", b"p", [b"x" * 1000])
    head, size = encode(frame)
    assert b"x" not in head
    assert size == len(head) + 1000


@settings(max_examples=60)
@given(st.lists(frames(), min_size=1, max_size=8), st.data())
def test_a_decoder_finds_the_frames_in_any_chunks(sent: list[Frame], data: st.DataObject) -> None:
    check_decoded(sent, data.draw(st.lists(st.integers(1, 400), min_size=1, max_size=20)))


@settings(max_examples=25)
@given(st.lists(frames(largest=40), min_size=1, max_size=4))
def test_a_decoder_takes_one_byte_at_a_time(sent: list[Frame]) -> None:
    check_decoded(sent, [1])


@settings(max_examples=40)
@given(
    st.lists(st.integers(0, 3 * READ_SIZE), min_size=1, max_size=4),
    st.lists(st.integers(1, READ_SIZE), min_size=1, max_size=6),
    st.integers(0, 2**32),
)
def test_a_decoder_mixes_small_frames_and_frames_larger_than_one_read(
    payloads: list[int], sizes: list[int], seed: int
) -> None:
    sent = [
        Frame(CALL, 0, i, 1, 2, seed + i, b"m", bytes([i + 1]) * size)
        for i, size in enumerate(payloads)
    ]
    sizes.append(READ_SIZE)  # else a list of ones takes long
    check_decoded(sent, sizes)


@pytest.mark.parametrize("first", [8, 9, HEADER_SIZE - 1, HEADER_SIZE, HEADER_SIZE + 1, READ_SIZE])
def test_a_large_frame_is_received_in_its_own_memory_from_the_first_bytes_on(first: int) -> None:
    frame = Frame(CALL, 0, 0, 1, 2, 3, b"m", b"p" * (READ_SIZE + 1))
    stream = on_the_stream(frame)
    decoder = Decoder(LIMIT)
    assert push(decoder, stream[:first]) == []
    space = decoder.space()
    assert space is not None
    assert len(space) == len(stream) - first
    assert not decoder.idle
    (done,) = push(decoder, stream[first:])
    assert plain(decode(done)) == plain(frame)


def test_a_large_frame_may_start_with_less_than_its_length() -> None:
    stream = on_the_stream(Frame(CALL, 0, 0, 1, 2, 3, b"m", b"p" * (READ_SIZE + 1)))
    decoder = Decoder(LIMIT)
    assert push(decoder, stream[:7]) == []
    assert decoder.space() is None
    assert len(push(decoder, stream[7:READ_SIZE] + stream[READ_SIZE:])) == 1


def test_a_decoder_is_idle_only_between_frames() -> None:
    stream = on_the_stream(Frame(CALL, 0, 0, 1, 2, 3, b"m", b"payload"))
    decoder = Decoder(LIMIT)
    assert decoder.idle
    push(decoder, stream[:3])
    assert not decoder.idle
    push(decoder, stream[3:-1])
    assert not decoder.idle
    push(decoder, stream[-1:])
    assert decoder.idle


def test_a_frame_at_the_limit_is_taken_and_one_over_it_is_refused() -> None:
    stream = on_the_stream(Frame(CALL, 0, 0, 1, 2, 3, b"m", b"payload"))
    length = len(stream) - 8  # what the length field says
    assert len(push(Decoder(length), stream)) == 1
    with pytest.raises(FrameError, match="codec_max_frame_length"):
        push(Decoder(length - 1), stream)


def test_a_frame_over_the_limit_is_refused_at_its_length_before_its_memory_is_taken() -> None:
    decoder = Decoder(1 << 20)
    with pytest.raises(FrameError, match="over the limit"):
        push(decoder, struct.pack("<Q", 1 << 60))
    assert decoder.space() is None


def test_a_frame_for_which_there_is_no_memory_is_refused() -> None:
    with pytest.raises(FrameError, match="no memory"):
        push(Decoder(1 << 62), struct.pack("<Q", 1 << 60) + bytes(HEADER_SIZE))


def test_what_is_announced_takes_no_memory_before_it_comes() -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    before = resident()
    decoder = Decoder(1 << 40)
    assert decoder.feed(memoryview(struct.pack("<Q", 2 << 30) + bytes(HEADER_SIZE))) == []
    assert not decoder.idle
    assert resident() - before < 256 << 20


def test_frames_before_the_unreadable_one_do_not_hide_it() -> None:
    good = on_the_stream(Frame(CALL, 0, 0, 1, 2, 3, b"m", b"payload"))
    with pytest.raises(FrameError):
        push(Decoder(1 << 20), good + b"\xff" * 8)


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.7\r\n",
        b"\0" * 64,
        struct.pack("<Q", HEADER_SIZE - 9) + b"x" * 64,
    ],
    ids=["http", "ssh", "zeros", "too short"],
)
def test_another_protocol_is_refused(garbage: bytes) -> None:
    with pytest.raises(FrameError):
        push(Decoder(1 << 20), garbage)


@given(st.binary(min_size=8, max_size=200))
def test_no_garbage_raises_anything_but_a_frame_error(garbage: bytes) -> None:
    decoder = Decoder(1 << 16)
    try:
        push(decoder, garbage)
    except FrameError:
        pass


def test_buffers_that_do_not_fit_their_frame_are_refused() -> None:
    data = bytearray(on_the_stream(Frame(CALL, 0, 0, 1, 2, 3, b"", b"", [b"four"])))
    struct.pack_into("<Q", data, HEADER_SIZE, 1000)
    with pytest.raises(FrameError, match="do not fit"):
        decode(memoryview(data))


@pytest.mark.parametrize(
    ("offset", "layout", "value"),
    [(HEADER_SIZE - 4, "<I", 9), (HEADER_SIZE - 8, "<I", 1 << 20)],
    ids=["buffers", "meta"],
)
def test_counts_in_the_header_that_do_not_fit_the_frame_are_refused(
    offset: int, layout: str, value: int
) -> None:
    data = bytearray(on_the_stream(Frame(CALL, 0, 0, 1, 2, 3, b"meta", b"")))
    struct.pack_into(layout, data, offset, value)
    with pytest.raises(FrameError):
        decode(memoryview(data))


def test_a_frame_may_have_more_buffers_than_16_bits_count() -> None:
    frame = Frame(CALL, 0, 0, 1, 2, 3, b"m", b"p", [b"x"] * 70_000)
    assert plain(decode(memoryview(on_the_stream(frame)))) == plain(frame)


@pytest.mark.parametrize("shift", range(4))
@pytest.mark.parametrize("size", [1000, READ_SIZE], ids=["small", "large"])
def test_buffers_in_line_lie_where_arrays_of_numbers_may(size: int, shift: int) -> None:
    frame = Frame(CALL, 0, 0, 1, 2, 3, b"m" * shift, b"", [bytes(size), b"odd", bytes(size)])
    (data,) = push(Decoder(LIMIT), on_the_stream(frame))
    first, _, last = decode(data).buffers
    for buffer in (first, last):
        assert np.frombuffer(buffer, np.complex128, count=10).flags.aligned


def test_a_buffer_of_a_large_frame_that_lies_well_is_not_copied() -> None:
    frame = Frame(CALL, 0, 0, 1, 2, 3, b"eight by", b"", [bytes(READ_SIZE)])
    (data,) = push(Decoder(LIMIT), on_the_stream(frame))
    assert isinstance(data, memoryview)
    data[-1] = 7
    assert decode(data).buffers[0][-1] == 7
    decode(data).buffers[0][0] = 8  # type: ignore[index]
    assert data[-READ_SIZE] == 8


def test_buffers_that_do_not_fit_their_segment_are_refused() -> None:
    head, _ = encode(Frame(CALL, SEGMENT, 0, 1, 2, 3, b"", b"p", [b"x" * 100]), inline=False)
    with pytest.raises(FrameError, match="segment"):
        decode(memoryview(head), memoryview(bytearray(64)))


def test_buffers_of_a_segment_are_aligned_and_do_not_overlap() -> None:
    sizes = [1, 64, 65, 0, 127]
    offsets, end = segment_offsets(sizes)
    assert all(offset % wire.ALIGNMENT == 0 for offset in offsets)
    spans = sorted(
        (offset, offset + size) for offset, size in zip(offsets, sizes, strict=True) if size
    )
    assert all(left[1] <= right[0] for left, right in itertools.pairwise(spans))
    assert spans[-1][1] <= end


def test_no_buffers_take_no_segment() -> None:
    assert segment_offsets([]) == ([], 0)
    assert split_segment(memoryview(b""), []) == []


@pytest.mark.parametrize("size", [10, 2 * READ_SIZE], ids=["small", "large"])
def test_received_buffers_can_be_written_and_share_nothing(size: int) -> None:
    frame = Frame(CALL, 0, 0, 1, 2, 3, b"m", b"payload", [b"a" * size, b"b" * size])
    decoder = Decoder(LIMIT)
    stream = on_the_stream(frame)
    first, second = (
        push(decoder, stream + stream)
        if size < READ_SIZE
        else push(decoder, stream) + push(decoder, stream)
    )
    one, other = decode(first), decode(second)
    for buffer in one.buffers:
        assert isinstance(buffer, memoryview)
        assert not buffer.readonly
        buffer[:] = b"z" * size
    assert plain(other) == plain(frame)
    assert bytes(one.payload) == b"payload"
    assert bytes(one.buffers[0]) == bytes(one.buffers[1]) == b"z" * size


def test_decoding_the_same_bytes_twice_gives_independent_buffers() -> None:
    data = memoryview(on_the_stream(Frame(CALL, 0, 0, 1, 2, 3, b"m", b"p", [b"old"])))
    one, other = decode(data), decode(data)
    assert isinstance(one.buffers[0], memoryview)
    one.buffers[0][:] = b"new"
    assert bytes(other.buffers[0]) == b"old"
    assert bytes(decode(data).buffers[0]) == b"old"


def test_frames_do_not_refer_to_the_memory_they_were_read_into() -> None:
    scratch = bytearray(on_the_stream(Frame(CALL, 0, 0, 1, 2, 3, b"meta", b"payload", [b"buffer"])))
    (data,) = Decoder(LIMIT).feed(memoryview(scratch))
    scratch[:] = b"\xee" * len(scratch)
    got = decode(data)
    assert (got.meta, bytes(got.payload), bytes(got.buffers[0])) == (b"meta", b"payload", b"buffer")
