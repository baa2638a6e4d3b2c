from __future__ import annotations

import errno
import fcntl
import gc
import os
import random
import resource
import select
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest

from helpers.borrowing import borrowed
from helpers.leaks import nothing_left
from helpers.pollers import running_poller, settle
from helpers.waiting import PATIENCE
from monarch._core.net.asked import Asked
from monarch._core.net.connection import Connection
from monarch._core.net.poller import Poller
from monarch._core.net.segment import SEGMENT_SIZE, Segment
from monarch._core.wire.frame import CALL, CREDIT, HEADER_SIZE, READ_SIZE, Bytes, Frame, encode
from monarch.errors import BackpressureError

MIB = 1 << 20


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    gc.collect()
    with nothing_left():
        yield


class Inbox:
    """What one connection told its owner; waits for it to become true."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.reasons: list[str] = []
        self.on_frame: Callable[[Connection, Frame], None] = lambda connection, frame: None
        self._changed = threading.Condition()

    def arrived(self, connection: Connection, frame: Frame) -> None:
        if frame.kind == CREDIT:
            connection.credit(frame.request)
            return
        with self._changed:
            self.frames.append(frame)
            self._changed.notify_all()
        self.on_frame(connection, frame)

    def closed(self, connection: Connection, reason: str) -> None:
        with self._changed:
            self.reasons.append(reason)
            self._changed.notify_all()

    def wait(self, condition: Callable[[], object]) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, PATIENCE), (len(self.frames), self.reasons)

    def wait_frames(self, count: int) -> list[Frame]:
        self.wait(lambda: len(self.frames) >= count)
        return self.frames

    def wait_closed(self) -> str:
        self.wait(lambda: self.reasons)
        return self.reasons[0]


class Bench:
    """Connections and sockets that end with the test."""

    def __init__(self, poller: Poller) -> None:
        self.poller = poller
        self._ends: list[Connection | socket.socket] = []

    def sockets(self, buffer: int | None = None) -> tuple[socket.socket, socket.socket]:
        pair = socket.socketpair()
        for sock in pair:
            sock.setblocking(False)
            if buffer is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        return pair

    def wrap(
        self,
        sock: socket.socket,
        inbox: Inbox,
        limit: int = 64 * MIB,
        send_limit: int = 256 * MIB,
        send_timeout: float = PATIENCE,
        poller: Poller | None = None,
        asks: bool = False,
    ) -> Connection:
        connection = Connection(
            poller or self.poller, sock, inbox.arrived, inbox.closed, limit=limit, send_limit=send_limit,
            send_timeout=send_timeout, asked=Asked(()) if asks else None,
        )  # fmt: skip
        self._ends.append(connection)
        return connection

    def pair(
        self, buffer: int | None = None, **options: Any
    ) -> tuple[Connection, Connection, Inbox, Inbox]:
        """Two connected connections, and what each receives."""
        one, other = self.sockets(buffer)
        inboxes = Inbox(), Inbox()
        return (
            self.wrap(one, inboxes[0], **options),
            self.wrap(other, inboxes[1], **options),
            *inboxes,
        )

    def half(
        self, buffer: int | None = None, **options: Any
    ) -> tuple[Connection, socket.socket, Inbox]:
        """A connection whose peer is a plain socket, read and written by the test."""
        one, other = self.sockets(buffer)
        self._ends.append(other)
        inbox = Inbox()
        return self.wrap(one, inbox, **options), other, inbox

    def settle(self) -> None:
        settle(self.poller)

    def close(self) -> None:
        for end in self._ends:
            end.close()
        self._ends.clear()  # what they have received goes with them


@pytest.fixture
def bench() -> Iterator[Bench]:
    with running_poller() as poller:
        bench = Bench(poller)
        yield bench
        bench.close()


def call(
    request: int = 0, payload: Bytes = b"", buffers: list[Bytes] | None = None, rank: int = 0
) -> Frame:
    return Frame(CALL, 0, rank, 7, 8, request, b"method", payload, buffers or [])


def content(frame: Frame) -> tuple[int, int, bytes, list[bytes]]:
    return (
        frame.rank,
        frame.request,
        bytes(frame.payload),
        [bytes(buffer) for buffer in frame.buffers],
    )


def read_all(sock: socket.socket, size: int) -> bytes:
    """Exactly `size` bytes from a non-blocking socket."""
    sock.setblocking(True)
    sock.settimeout(PATIENCE)
    data = bytearray()
    while len(data) < size:
        chunk = sock.recv(min(1 << 20, size - len(data)))
        assert chunk, f"ended after {len(data)} of {size} bytes"
        data += chunk
    return bytes(data)


def run_all(*works: Callable[[], object]) -> None:
    """Each on a thread; raises what any of them raised."""
    errors: list[BaseException] = []

    def guarded(work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads)
    if errors:
        raise errors[0]


# order and completeness


def test_frames_arrive_whole_in_order_and_both_ways(bench: Bench) -> None:
    here, there, here_got, there_got = bench.pair()
    for i in range(200):
        assert here.send(call(i, b"to there"))
        assert there.send(call(i, b"to here"))
    assert [content(f) for f in there_got.wait_frames(200)] == [
        (0, i, b"to there", []) for i in range(200)
    ]
    assert [content(f) for f in here_got.wait_frames(200)] == [
        (0, i, b"to here", []) for i in range(200)
    ]


def test_frames_of_each_thread_arrive_in_its_order_through_small_socket_buffers(
    bench: Bench,
) -> None:
    seed = 20240611
    here, _, _, got = bench.pair(buffer=4096, send_limit=MIB)
    sizes = [0, 1, 100, 5_000, 70_000]

    def sender(thread: int) -> Callable[[], None]:
        choose = random.Random(seed + thread)
        plan = [choose.choice(sizes) for _ in range(120)]

        def send() -> None:
            for i, size in enumerate(plan):
                part = bytes([thread]) * (size // 3)
                assert here.send(
                    call(i, bytes([thread]) * size, [part] if i % 3 == 0 else [], rank=thread)
                )

        return send

    run_all(*(sender(thread) for thread in range(8)))
    frames = got.wait_frames(8 * 120)
    for thread in range(8):
        own = [frame for frame in frames if frame.rank == thread]
        assert [frame.request for frame in own] == list(range(120)), f"seed {seed}"
        choose = random.Random(seed + thread)
        for i, frame in enumerate(own):
            size = choose.choice(sizes)
            expected = [bytes([thread]) * (size // 3)] if i % 3 == 0 else []
            assert content(frame) == (thread, i, bytes([thread]) * size, expected), f"seed {seed}"


@pytest.mark.parametrize("size", [READ_SIZE - 100, READ_SIZE, READ_SIZE + 1, 3 * MIB])
@pytest.mark.parametrize(
    "buffer", [4096, None], ids=["small socket buffers", "usual socket buffers"]
)
def test_large_frames_arrive_whole_among_small_ones(
    bench: Bench, size: int, buffer: int | None
) -> None:
    here, _, _, got = bench.pair(buffer=buffer)
    large = os.urandom(size)
    for i, payload in enumerate([b"before", large, b"between", large, b"after"]):
        here.send(call(i, payload))
    frames = got.wait_frames(5)
    assert [bytes(frame.payload) for frame in frames] == [
        b"before",
        large,
        b"between",
        large,
        b"after",
    ]


def test_what_the_kernel_does_not_take_is_queued_and_written_later(bench: Bench) -> None:
    here, peer, _ = bench.half(buffer=4096)
    frame = call(1, os.urandom(MIB))
    assert here.send(frame)  # returns although nobody reads
    assert 0 < here.queued <= MIB + 1000
    expected = encode(frame)[0]
    assert read_all(peer, len(expected)) == expected
    bench.settle()
    assert here.queued == 0


def test_a_frame_may_be_changed_by_its_sender_once_it_is_sent(bench: Bench) -> None:
    here, peer, _ = bench.half(buffer=4096)
    first, second = bytearray(b"a" * 200_000), bytearray(b"b" * 200_000)
    frames = [call(1, b"p", [first]), call(2, b"p", [memoryview(second)])]
    expected = b"".join(encode(frame)[0] + b"".join(frame.buffers) for frame in frames)
    for frame in frames:
        here.send(frame)
    first[:] = second[:] = b"z" * 200_000
    assert read_all(peer, len(expected)) == expected


def test_frames_cut_anywhere_by_the_stream_arrive_whole(bench: Bench) -> None:
    _, peer, got = bench.half()
    stream = b"".join(encode(call(i, b"x" * i))[0] for i in range(30))
    for start in range(0, len(stream), 7):
        peer.send(stream[start : start + 7])
        if start % 5 == 0:
            bench.settle()  # so that reads really end in the middle
    assert [len(frame.payload) for frame in got.wait_frames(30)] == list(range(30))


def test_a_frame_sent_from_the_handler_of_another_is_delivered(bench: Bench) -> None:
    here, _, here_got, there_got = bench.pair()

    def answer(connection: Connection, frame: Frame) -> None:
        connection.send(frame._replace(payload=b"answer"))

    there_got.on_frame = answer
    here.send(call(5, b"question"))
    assert content(here_got.wait_frames(1)[0]) == (0, 5, b"answer", [])


# back-pressure


class Sender:
    """A thread that sends until its queue makes it wait."""

    def __init__(self, connection: Connection, frame: Frame) -> None:
        self.outcome: list[object] = []
        self._connection, self._frame = connection, frame
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.outcome.append(self._connection.send(self._frame))
        except BaseException as error:
            self.outcome.append(error)

    def join(self) -> object:
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()
        return self.outcome[0]

    def wait_until_it_waits(self) -> None:
        """A condition variable tells nobody that someone waits on it: look at where the thread
        is.
        """
        for _ in range(2_000):
            frame = sys._current_frames().get(self.thread.ident or 0)
            while frame is not None:
                if frame.f_code.co_name == "_wait_until_drained":
                    return
                frame = frame.f_back
            self.thread.join(0.01)
        raise AssertionError("it does not wait")


def test_a_sender_waits_until_a_slow_receiver_has_read(bench: Bench) -> None:
    here, peer, _ = bench.half(buffer=4096, send_limit=100_000)
    frame = call(1, b"x" * 300_000)
    sender = Sender(here, frame)
    sender.wait_until_it_waits()
    assert not sender.outcome
    expected = encode(frame)[0]
    assert read_all(peer, len(expected)) == expected
    assert sender.join() is True


def test_every_waiting_sender_goes_on_when_the_queue_has_drained(bench: Bench) -> None:
    here, peer, _ = bench.half(buffer=4096, send_limit=50_000)
    frame = call(1, b"x" * 60_000)
    senders = [Sender(here, frame) for _ in range(6)]
    for sender in senders:
        sender.wait_until_it_waits()
    read_all(peer, 6 * encode(frame)[1])
    assert [sender.join() for sender in senders] == [True] * 6


def test_a_sender_does_not_wait_below_the_limit(bench: Bench) -> None:
    here, _, _ = bench.half(buffer=4096, send_limit=MIB)
    for i in range(8):
        assert here.send(call(i, b"x" * 100_000))
    assert here.queued < MIB


@pytest.mark.parametrize("how", ["closed here", "closed by the peer"])
def test_a_waiting_sender_goes_on_when_the_connection_ends(bench: Bench, how: str) -> None:
    here, peer, inbox = bench.half(buffer=4096, send_limit=1000)
    sender = Sender(here, call(1, b"x" * 300_000))
    sender.wait_until_it_waits()
    if how == "closed here":
        here.close()
    else:
        peer.close()
        inbox.wait_closed()
    # it was sent when the connection lived; whoever waits for a reply hears of the end
    assert sender.join() is True
    assert here.send(call(2)) is False


def test_a_sender_gives_up_on_a_peer_that_never_reads_with_advice(
    bench: Bench,
) -> None:
    here, _, _ = bench.half(buffer=4096, send_limit=1000, send_timeout=0.05)
    here.peer = "trainers-3@host"
    with pytest.raises(
        BackpressureError,
        match=r"trainers-3@host .*0.05s: it reads nothing, or slower.*message_delivery_timeout",
    ):
        here.send(call(1, b"x" * 300_000))


def test_a_frame_that_was_given_up_does_not_tear_the_stream(bench: Bench) -> None:
    here, peer, _ = bench.half(buffer=4096, send_limit=1000, send_timeout=0.02)
    frames = [call(1, b"a" * 300_000), call(2, b"b" * 10)]
    for frame in frames:
        with pytest.raises(BackpressureError):
            here.send(frame)
    expected = b"".join(encode(frame)[0] for frame in frames)
    assert read_all(peer, len(expected)) == expected


def test_the_loops_own_thread_never_waits_for_itself(bench: Bench) -> None:
    here, _, _ = bench.half(buffer=4096, send_limit=1000)
    outcome: list[bool] = []
    done = threading.Event()

    def send() -> None:
        outcome.append(here.send(call(1, b"x" * 300_000)))
        done.set()

    bench.poller.call_soon(send)
    assert done.wait(PATIENCE)
    assert outcome == [True]
    assert here.queued > 1000


def test_no_limit_for_a_sender_of_zero_bytes_means_it_waits_for_an_empty_queue(
    bench: Bench,
) -> None:
    here, peer, _ = bench.half(buffer=4096, send_limit=0)
    sender = Sender(here, call(1, b"x" * 100_000))
    sender.wait_until_it_waits()
    read_all(peer, encode(call(1, b"x" * 100_000))[1])
    assert sender.join() is True
    assert here.queued == 0


def test_flush_writes_what_is_queued_without_the_loop() -> None:
    poller = Poller()  # never run
    one, peer = socket.socketpair()
    one.setblocking(False)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    connection = Connection(
        poller,
        one,
        lambda c, f: None,
        lambda c, r: None,
        limit=MIB,
        send_limit=16 * MIB,
        send_timeout=1,
    )
    frame = call(1, os.urandom(500_000))
    connection.send(frame)
    expected = encode(frame)[0]
    read: list[bytes] = []
    run_all(lambda: connection.flush(PATIENCE), lambda: read.append(read_all(peer, len(expected))))
    assert read == [expected]
    assert connection.queued == 0
    connection.close()
    poller.close()
    peer.close()


def test_flush_gives_up_in_time(bench: Bench) -> None:
    here, _, _ = bench.half(buffer=4096)
    here.send(call(1, b"x" * 300_000))
    here.flush(0.02)
    here.flush(0)
    assert here.queued > 0


def test_flush_works_for_descriptors_beyond_1024() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 1200:
        pytest.skip("this system allows no descriptors beyond 1024")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1200), hard))
    low, peer = socket.socketpair()
    high = socket.socket(fileno=fcntl.fcntl(low.fileno(), fcntl.F_DUPFD_CLOEXEC, 1100))
    low.close()
    high.setblocking(False)
    high.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    poller = Poller()
    connection = Connection(
        poller,
        high,
        lambda c, f: None,
        lambda c, r: None,
        limit=MIB,
        send_limit=16 * MIB,
        send_timeout=1,
    )
    try:
        frame = call(1, b"x" * 300_000)
        connection.send(frame)
        assert connection.queued
        run_all(lambda: connection.flush(PATIENCE), lambda: read_all(peer, encode(frame)[1]))
        assert connection.queued == 0
    finally:
        connection.close()
        poller.close()
        peer.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# what is on its way in shared memory


@pytest.mark.parametrize("asks", [True, False])
def test_a_sender_waits_until_what_it_has_passed_in_shared_memory_has_been_read(
    bench: Bench, asks: bool
) -> None:
    one, other = bench.sockets()
    got = Inbox()
    here = bench.wrap(one, Inbox(), asks=asks, send_limit=16 * MIB)
    there = bench.wrap(other, got, asks=not asks, send_limit=16 * MIB)
    frame = call(1, b"p", [bytes(4 * MIB)])
    with borrowed(there):  # which reads nothing
        before = 5 if asks else 16  # requests wait before they are sent; answers may be 64 MiB
        for _ in range(before):
            here.send(frame)
        sender = Sender(here, frame)
        sender.wait_until_it_waits()
        bench.settle()
        assert not sender.outcome
        assert here.queued == 0, "the socket has room for thousands"
    assert sender.join() is True
    assert len(got.wait_frames(before + 1)) == before + 1
    got.frames.clear()


def test_a_frame_without_shared_memory_waits_for_none_to_be_read(
    bench: Bench,
) -> None:
    one, other = bench.sockets()
    got = Inbox()
    here = bench.wrap(one, Inbox(), asks=False, send_limit=16 * MIB)
    there = bench.wrap(other, got, asks=True, send_limit=16 * MIB)
    frame = call(1, b"p", [bytes(4 * MIB)])
    with borrowed(there):  # which reads nothing
        for _ in range(16):
            here.send(frame)
        sender = Sender(here, frame)
        sender.wait_until_it_waits()
        # by the thread that reads the word of room, it may be
        refusal = Sender(here, call(2, b"small"))
        assert refusal.join() is True
        assert not sender.outcome
    assert sender.join() is True
    assert len(got.wait_frames(18)) == 18
    got.frames.clear()


def test_segments_smaller_than_what_is_told_at_once_are_told_in_the_end(bench: Bench) -> None:
    here, _, _, got = bench.pair(send_limit=1)
    for number in range(100):
        here.send(call(number, b"p", [bytes(SEGMENT_SIZE + number)]))
    assert len(got.wait_frames(100)) == 100
    got.frames.clear()


def test_giving_back_while_another_thread_sends_does_not_lose_what_that_has_queued() -> None:
    poller = Poller()
    between: list[Callable[[], None]] = []
    modify = poller.modify

    def slow(fd: Any, eventmask: int) -> None:
        """Lets a send of another thread happen while the end of a loan changes what is waited
        for.
        """
        if between:
            between.pop()()
        modify(fd, eventmask)

    poller.modify = slow
    loop = threading.Thread(target=poller.run)
    one, peer = socket.socketpair()
    one.setblocking(False)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    connection = Connection(
        poller,
        one,
        lambda c, f: None,
        lambda c, r: None,
        limit=16 * MIB,
        send_limit=16 * MIB,
        send_timeout=1,
    )
    frame = call(1, b"x" * 300_000)
    sender = threading.Thread(target=lambda: connection.send(frame))

    def send_meanwhile() -> None:
        sender.start()
        sender.join(0.5)  # bounded: it may rightly wait until the loan is over

    loop.start()
    try:
        connection.borrow()
        between.append(send_meanwhile)
        connection.give_back()
        sender.join(PATIENCE)
        peer.settimeout(3)
        left = encode(frame)[1]
        while left:
            left -= len(peer.recv(MIB))
    finally:
        connection.close()
        poller.stop()
        loop.join(PATIENCE)
        poller.close()
        peer.close()


# reading by another thread than the loop's


def borrowable(connection: Connection) -> bool:
    with borrowed(connection) as mine:
        return mine


def test_a_borrowed_connection_is_read_by_the_borrower_alone(bench: Bench) -> None:
    here, there, _, got = bench.pair()
    readers: list[int] = []
    got.on_frame = lambda connection, frame: readers.append(threading.get_ident())
    with borrowed(there) as mine:
        assert mine
        here.send(call(1))
        bench.settle()
        assert not got.frames
        there.receive()
        assert [frame.request for frame in got.frames] == [1]
    here.send(call(2))
    got.wait_frames(2)
    assert readers == [threading.get_ident(), bench.poller.thread_id]


def test_what_a_borrower_leaves_unread_is_read_by_the_loop(bench: Bench) -> None:
    here, there, _, got = bench.pair()
    with borrowed(there) as mine:
        assert mine
        for i in range(3):
            here.send(call(i))
    assert [frame.request for frame in got.wait_frames(3)] == [0, 1, 2]


def test_a_frame_may_be_begun_by_the_loop_and_ended_by_a_borrower(bench: Bench) -> None:
    connection, peer, got = bench.half()
    stream = encode(call(1, b"x" * READ_SIZE))[0]
    peer.send(stream[:1000])
    bench.settle()
    peer.setblocking(True)
    writer = threading.Thread(target=peer.sendall, args=(stream[1000:],))
    with borrowed(connection) as mine:
        assert mine
        writer.start()
        while not got.frames:
            assert select.select([connection.fd], [], [], PATIENCE)[0]
            connection.receive()
    writer.join(PATIENCE)
    assert len(got.frames[0].payload) == READ_SIZE


def test_a_connection_that_is_borrowed_or_closed_cannot_be_borrowed(bench: Bench) -> None:
    here, there, _, _ = bench.pair()
    assert borrowable(here)
    with borrowed(here):
        assert not borrowable(here)
    assert borrowable(here)
    there.close()
    assert not borrowable(there)


def test_who_was_refused_a_connection_does_not_give_back_what_another_has_borrowed(
    bench: Bench,
) -> None:
    here, there, _, got = bench.pair()
    with borrowed(there):
        assert not borrowable(there)
        here.send(call(1))
        bench.settle()
        assert not got.frames
    got.wait_frames(1)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_a_read_that_was_cut_short_closes_the_connection_on_the_loop(
    bench: Bench, error: type[BaseException]
) -> None:
    _, there, _, got = bench.pair()
    tellers: list[int] = []
    closed = got.closed

    def note(connection: Connection, reason: str) -> None:
        tellers.append(threading.get_ident())
        closed(connection, reason)

    there._on_close = note

    def cut_short() -> None:
        with borrowed(there) as mine:
            assert mine
            raise error

    with pytest.raises(error):
        cut_short()
    assert error.__name__ in got.wait_closed()
    assert there.closed
    assert tellers == [bench.poller.thread_id]
    assert not borrowable(there)


def test_an_error_of_a_borrower_gives_the_connection_back(bench: Bench) -> None:
    here, there, _, got = bench.pair()
    with pytest.raises(ValueError, match="a bug"), borrowed(there):
        raise ValueError("a bug")
    assert borrowable(there)
    here.send(call(1))
    got.wait_frames(1)
    assert not got.reasons


def test_a_borrowed_connection_still_writes_what_is_queued(bench: Bench) -> None:
    _, there, here_got, _ = bench.pair(buffer=4096)
    with borrowed(there) as mine:
        assert mine
        there.send(call(1, b"x" * 300_000))
        assert len(here_got.wait_frames(1)[0].payload) == 300_000


def test_a_borrower_that_reads_the_peers_end_tells_it_once(bench: Bench) -> None:
    connection, peer, got = bench.half()
    with borrowed(connection) as mine:
        assert mine
        peer.close()
        connection.receive()
        assert got.reasons == ["it closed the connection"]
    bench.settle()
    assert len(got.reasons) == 1
    assert not connection.readable_by_borrower


# the end


@pytest.mark.parametrize("how", ["send", "send_encoded", "write_if_idle"])
def test_nothing_counts_as_sent_once_the_peer_closed_though_unread(bench: Bench, how: str) -> None:
    connection, peer, got = bench.half()
    frame: Any = call() if how == "send" else encode(call())[0]
    with borrowed(connection):
        assert getattr(connection, how)(frame)
        peer.close()
        assert connection.writable
        assert not getattr(connection, how)(frame)
        assert not connection.writable
        assert not connection.closed
        assert connection.traffic().messages_sent == 1
    assert got.wait_closed()


def test_a_large_frame_does_not_count_as_sent_once_the_peer_has_closed(bench: Bench) -> None:
    connection, peer, _ = bench.half()
    with borrowed(connection):
        peer.close()
        assert not connection.send(call(buffers=[bytes(MIB)]))


def test_the_peers_end_is_told_once_with_a_reason(bench: Bench) -> None:
    here, peer, inbox = bench.half()
    peer.close()
    assert inbox.wait_closed() == "it closed the connection"
    bench.settle()
    assert len(inbox.reasons) == 1
    assert here.closed
    assert here.send(call(1)) is False


def test_everything_sent_before_the_peers_end_arrives_before_its_news(bench: Bench) -> None:
    at_end: list[int] = []

    class Counting(Inbox):
        def closed(self, connection: Connection, reason: str) -> None:
            at_end.append(len(self.frames))
            super().closed(connection, reason)

    inbox = Counting()
    sock, peer = bench.sockets()
    bench.wrap(sock, inbox)
    with peer:
        peer.setblocking(True)
        for i in range(500):
            peer.sendall(encode(call(i, b"x" * 500))[0])
    inbox.wait_closed()
    assert at_end == [500]


@pytest.mark.parametrize("cut", [1, 7, 8, 40, 60, READ_SIZE, 2 * READ_SIZE])
def test_an_end_in_the_middle_of_a_frame_is_told_as_such(bench: Bench, cut: int) -> None:
    _, peer, inbox = bench.half()
    peer.setblocking(True)
    peer.sendall((encode(call(1, b"x" * 3 * READ_SIZE))[0])[:cut])
    peer.close()
    assert inbox.wait_closed() == "it closed the connection in the middle of a message"
    assert not inbox.frames


def test_closing_says_nothing_to_the_closer_and_ends_the_peer(bench: Bench) -> None:
    here, _, here_got, there_got = bench.pair()
    here.close()
    here.close()
    there_got.wait_closed()
    bench.settle()
    assert not here_got.reasons
    assert here.send(call(1)) is False


def test_a_connection_closed_by_its_handler_delivers_nothing_more(bench: Bench) -> None:
    _, peer, inbox = bench.half()
    inbox.on_frame = lambda connection, frame: connection.close()
    peer.send(b"".join(encode(call(i))[0] for i in range(5)))  # all of them in one read
    inbox.wait_frames(1)
    bench.settle()
    assert [frame.request for frame in inbox.frames] == [0]


def test_a_handler_that_raises_loses_only_its_own_frame(bench: Bench) -> None:
    _, peer, inbox = bench.half()

    def fail_first(connection: Connection, frame: Frame) -> None:
        if frame.request == 0:
            raise ValueError("a bug in the handler")

    inbox.on_frame = fail_first
    peer.send(b"".join(encode(call(i))[0] for i in range(3)))
    inbox.wait_frames(1)
    bench.settle()
    assert [frame.request for frame in inbox.frames] == [0, 1, 2]


def test_a_handler_that_raises_an_index_error_is_not_taken_for_an_unreadable_message(
    bench: Bench,
) -> None:
    _, peer, inbox = bench.half()
    inbox.on_frame = lambda connection, frame: [][0]
    peer.send(encode(call(0))[0])
    inbox.wait_frames(1)
    bench.settle()
    assert not inbox.reasons


def test_a_frame_over_the_limit_closes_the_connection_with_the_name_of_the_limit(
    bench: Bench,
) -> None:
    here, there, _, got = bench.pair(limit=10_000)
    here.send(call(0, b"x" * 9_000))
    got.wait_frames(1)
    here.send(call(1, b"x" * 10_001))
    reason = got.wait_closed()
    assert "codec_max_frame_length" in reason
    assert there.closed
    assert [frame.request for frame in got.frames] == [0]


@pytest.mark.parametrize(
    "garbage",
    [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\xff" * 100, struct.pack("<Q", 3) + b"abc"],
    ids=["http", "ones", "short"],
)
def test_garbage_closes_the_connection(bench: Bench, garbage: bytes) -> None:
    here, peer, inbox = bench.half()
    peer.send(garbage)
    assert "unreadable" in inbox.wait_closed()
    assert here.closed


@pytest.mark.parametrize("count", [3, 60_000])
def test_a_frame_that_promises_more_buffers_than_it_has_closes_the_connection(
    bench: Bench, count: int
) -> None:
    _, peer, inbox = bench.half()
    data = bytearray(encode(call(0, b"payload"))[0])
    struct.pack_into("<I", data, HEADER_SIZE - 4, count)
    peer.send(data + encode(call(1))[0])
    bench.settle()
    bench.settle()
    assert inbox.reasons
    assert not inbox.frames


def test_what_is_queued_is_dropped_when_the_peer_is_gone_and_no_wait_is_left(
    bench: Bench,
) -> None:
    here, peer, inbox = bench.half(buffer=4096)
    here.send(call(1, b"x" * MIB))
    peer.close()
    inbox.wait_closed()
    bench.settle()
    assert here.queued == 0


def test_threads_that_send_while_it_is_closed_see_true_or_false_and_no_error(bench: Bench) -> None:
    for _ in range(10):
        here, _, _, got = bench.pair()
        start = threading.Barrier(5)

        def send(here: Connection = here, start: threading.Barrier = start) -> None:
            start.wait(PATIENCE)
            while here.send(call(1, b"x" * 1000)):
                pass

        def close(
            here: Connection = here, start: threading.Barrier = start, got: Inbox = got
        ) -> None:
            start.wait(PATIENCE)
            got.wait_frames(50)
            here.close()

        run_all(send, send, send, send, close)


# segments


def segment_descriptors() -> list[int]:
    found = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            if "memfd:monarch " in os.readlink(f"/proc/self/fd/{fd}"):
                found.append(int(fd))
        except OSError:
            continue
    return found


@pytest.mark.parametrize(
    "buffer", [4096, None], ids=["small socket buffers", "usual socket buffers"]
)
def test_large_buffers_arrive_by_the_lane_in_order_with_other_frames(
    bench: Bench, buffer: int | None
) -> None:
    here, _, _, got = bench.pair(buffer=buffer)
    sent = []
    for i in range(24):
        if i % 3 == 0:
            frame = call(i, b"lane", [os.urandom(SEGMENT_SIZE + i), os.urandom(100)])
        elif i % 3 == 1:
            frame = call(i, os.urandom(20_000))
        else:
            frame = call(i, b"in line", [os.urandom(1_000)])
        sent.append(content(frame))
        here.send(frame)
    frames = got.wait_frames(24)
    assert [content(frame) for frame in frames] == sent
    assert all(frame.flags == 0 for frame in frames)


def test_many_threads_use_the_lane_and_each_frame_gets_its_own_segment(bench: Bench) -> None:
    here, _, _, got = bench.pair(buffer=8192, send_limit=100_000)

    def sender(thread: int) -> Callable[[], None]:
        def send() -> None:
            for i in range(20):
                fill = bytes([thread * 20 + i])
                here.send(
                    call(
                        i,
                        fill * (i * 997 % 5_000),
                        [fill * SEGMENT_SIZE] if i % 2 else [],
                        rank=thread,
                    )
                )

        return send

    run_all(*(sender(thread) for thread in range(6)))
    for frame in got.wait_frames(120):
        fill = frame.rank * 20 + frame.request
        assert all(byte == fill for byte in bytes(frame.payload))
        assert [(len(buffer), buffer[0], buffer[-1]) for buffer in frame.buffers] == (
            [(SEGMENT_SIZE, fill, fill)] if frame.request % 2 else []
        )


def test_receivers_of_one_segment_get_memory_of_their_own(bench: Bench) -> None:
    data = bytearray(b"old" * SEGMENT_SIZE)
    segment = Segment([data])
    ends = [bench.pair() for _ in range(3)]
    for here, _, _, _ in ends:
        here.send(call(1, b"p", [data]), segment)
    data[:3] = b"new"
    received = [got.wait_frames(1)[0].buffers[0] for _, _, _, got in ends]
    assert isinstance(received[0], memoryview)
    received[0][:3] = b"his"
    assert [bytes(buffer[:3]) for buffer in received] == [b"his", b"old", b"old"]


def test_no_descriptor_stays_when_segments_have_been_received_and_dropped(bench: Bench) -> None:
    here, _, _, got = bench.pair(buffer=4096)
    for i in range(10):
        here.send(call(i, b"p" * 10_000, [bytes([i]) * SEGMENT_SIZE]))
    got.wait_frames(10)
    got.frames.clear()
    bench.settle()
    gc.collect()
    assert segment_descriptors() == []


def test_no_descriptor_stays_when_a_connection_with_queued_segments_is_closed(bench: Bench) -> None:
    here, _, _ = bench.half(buffer=4096)
    here.send(call(0, b"x" * 300_000))
    for i in range(5):
        here.send(call(i, b"p", [bytes([i]) * SEGMENT_SIZE]))
    assert len(segment_descriptors()) == 5
    here.close()
    gc.collect()
    assert segment_descriptors() == []


def send_part_of_a_frame(peer: socket.socket) -> None:
    """The first bytes of a frame, and the descriptor of its segment."""
    segment = Segment([b"x" * SEGMENT_SIZE])
    head = encode(call(1, b"p" * 100, [b"x" * SEGMENT_SIZE])._replace(flags=128), inline=False)[0]
    socket.send_fds(peer, [head[:20]], [segment.fd])


def test_no_descriptor_stays_when_the_receiver_closes_within_a_frame(
    bench: Bench,
) -> None:
    _, peer, inbox = bench.half()
    send_part_of_a_frame(peer)
    bench.settle()
    peer.close()
    inbox.wait_closed()
    gc.collect()
    assert segment_descriptors() == []


def test_a_descriptor_of_an_incomplete_frame_is_not_inherited(
    bench: Bench,
) -> None:
    _, peer, _ = bench.half()
    send_part_of_a_frame(peer)
    bench.settle()
    inheritable = [os.get_inheritable(fd) for fd in segment_descriptors()]
    assert inheritable == [False]


def test_descriptors_that_were_not_asked_for_are_closed_with_the_connection(bench: Bench) -> None:
    here, peer, inbox = bench.half()
    read, write = os.pipe()
    socket.send_fds(peer, [encode(call(1))[0]], [read])
    os.close(read)
    inbox.wait_frames(1)
    here.close()
    poll = select.poll()
    poll.register(write, select.POLLOUT)
    assert poll.poll(0)[0][1] & select.POLLERR  # no reader is left
    os.close(write)


def test_a_frame_flagged_for_a_segment_that_did_not_come_closes_the_connection(
    bench: Bench,
) -> None:
    _, peer, inbox = bench.half()
    peer.send(encode(call(1, b"p", [b"x" * 100])._replace(flags=128), inline=False)[0])
    assert "unreadable" in inbox.wait_closed()


@pytest.mark.parametrize(
    "what",
    [
        "a pipe",
        "an empty file",
        "a file too small",
    ],
)
def test_a_descriptor_that_is_no_segment_closes_the_connection(bench: Bench, what: str) -> None:
    _, peer, inbox = bench.half()
    if what == "a pipe":
        fd, other = os.pipe()
        os.close(other)
    else:
        fd = os.memfd_create("not a segment")
        os.ftruncate(fd, 10 if what == "a file too small" else 0)
    socket.send_fds(
        peer, [encode(call(1, b"p", [b"x" * 100])._replace(flags=128), inline=False)[0]], [fd]
    )
    os.close(fd)
    bench.settle()
    bench.settle()
    assert inbox.reasons
    assert not inbox.frames


def test_a_handler_that_raises_does_not_give_its_segment_to_the_next_frame(bench: Bench) -> None:
    here, there, _, got = bench.pair()

    def fail_first(connection: Connection, frame: Frame) -> None:
        if frame.request == 0:
            raise ValueError("a bug in the handler")

    got.on_frame = fail_first
    with borrowed(there):
        here.send(call(0, b"no lane"))
        here.send(call(1, b"p", [b"1" * SEGMENT_SIZE]))
    got.wait_frames(1)
    bench.settle()
    here.send(call(2, b"p", [b"2" * SEGMENT_SIZE]))
    got.wait(lambda: any(frame.request == 2 for frame in got.frames))
    received = {frame.request: bytes(frame.buffers[0][:1]) for frame in got.frames if frame.buffers}
    got.frames.clear()  # a failed test keeps its variables
    assert received[2] == b"2"


def test_without_shared_memory_the_socket_carries_large_buffers(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object) -> int:
        raise OSError(errno.EMFILE, "no descriptors left")

    monkeypatch.setattr(os, "memfd_create", refuse)
    here, _, _, got = bench.pair(buffer=4096)
    frame = call(1, b"p", [os.urandom(MIB), os.urandom(17)])
    here.send(frame)
    (received,) = got.wait_frames(1)
    assert content(received) == content(frame)
    for buffer in received.buffers:
        assert isinstance(buffer, memoryview)
        assert not buffer.readonly


class OneDescriptorOnItsWay(socket.socket):
    """As the kernel is to a user who has as many descriptors in flight as it may have files."""

    def sendmsg(self, buffers: Any, ancdata: Any = (), *args: Any) -> int:
        if ancdata:
            raise OSError(errno.ETOOMANYREFS, "Too many references")
        return super().sendmsg(buffers, *args)


@pytest.mark.parametrize("queued", [False, True], ids=["at once", "queued"])
def test_where_no_more_descriptors_may_be_on_their_way_large_buffers_take_the_socket(
    bench: Bench, queued: bool
) -> None:
    here, there, _, got = bench.pair(buffer=4096)
    inner = here._sock
    here._sock = OneDescriptorOnItsWay(fileno=inner.detach())
    frames = [call(number, b"p", [os.urandom(MIB), os.urandom(17)]) for number in range(3)]
    if queued:
        frames.insert(0, call(9, b"x" * 500_000))
    with borrowed(there) if queued else nullcontext():
        for frame in frames:
            here.send(frame)
    assert [content(frame) for frame in got.wait_frames(len(frames))] == [
        content(frame) for frame in frames
    ]
