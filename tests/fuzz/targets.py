"""All targets. Those that need a socket make what they talk to when first used; `close` ends it."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import ssl
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache, cached_property
from types import SimpleNamespace
from typing import Any

from helpers.origins import Origin
from helpers.streams import Door, Net
from helpers.waiting import PATIENCE
from monarch._core.actors.proc_service import ProcService
from monarch._core.hub.message_hub import MessageHub
from monarch._core.net import unix
from monarch._core.net.trust import TRUST_ALL, Trust, trust_for
from monarch._core.routing.cast import Entry, Header, pack_table, split_header, with_header
from monarch._core.routing.route import Route, split_route, with_route
from monarch._core.supervision.failure import STOPPED, Failure
from monarch._core.wire import pickling
from monarch._core.wire.address import SYSTEM, ProcAddress, random_name
from monarch._core.wire.frame import (
    CALL,
    CAST,
    ERROR,
    HELLO,
    PORT,
    PROTOCOL_VERSION,
    ROUTED,
    SEGMENT,
    Decoder,
    Frame,
    FrameError,
    decode,
    encode,
)
from monarch._core.wire.link_limits import Limits
from monarch._core.wire.link_records import (
    DATA,
    FAREWELL,
    GREETING,
    JOIN,
    JOINED,
    PING,
    Hello,
    Join,
    LinkError,
    Record,
    RecordDecoder,
    control,
    data_chunks,
    greeting,
    pack,
    read_hello,
    read_join,
)
from monarch._core.wire.link_table import Cut, Deliver, LinkTable
from monarch.spmd.torch_store import GREETING as store_greeting
from monarch.spmd.torch_store import NO_CLIENT, Client, TorchStore
from monarch.stacks import ProcStacks, Stacks
from monarch.stacks.traces import parse_faulthandler, parse_py_spy

from ._target import Target

LIMIT = 1 << 16  # bytes; small, so that it is met
_PIECES = (1 << 20, 100, 7, 1)  # bytes in which the same stream comes
_SECRET = "a secret for nobody but this test"
_HERE, _THERE = ProcAddress("here", "mesh.0"), ProcAddress("there", "mesh.1")

_CALL = Frame(CALL, 0, 3, 77, 78, 79, b"method\0hosts\x002", b"payload")
_ROUTED = with_route(_CALL, Route(_HERE, _THERE, 5, 6))
_CASTED = with_header(
    _CALL, Header(9, _HERE, [1, 2], pack_table([Entry("there", ("mesh.1",), (0,))]), 2)
)
_LARGE = Frame(PORT, 0, 3, 77, 78, 79, b"", b"payload", [b"x" * 1000, b"", b"y" * 3])
_FRAMES = [
    encode(frame)[0] + b"".join(map(bytes, frame.buffers))
    for frame in (_CALL, _ROUTED, _CASTED, _LARGE)
]


def _pieces(data: bytes, size: int) -> Iterator[memoryview]:
    for start in range(0, len(data), size):
        yield memoryview(bytearray(data[start : start + size]))  # whose memory is used again


# frames


def check_frames(data: bytes) -> None:
    results = {size: _frames(data, size) for size in _PIECES}
    assert len({repr(result) for result in results.values()}) == 1, (
        "the result depends on the pieces"
    )


def _frames(data: bytes, size: int) -> list[object]:
    decoder = Decoder(LIMIT)
    found: list[object] = []
    try:
        for piece in _pieces(data, size):
            while len(piece):
                space = decoder.space()
                if space is None:
                    whole: list[bytes] | list[memoryview] = decoder.feed(piece)
                    piece = piece[:0]
                else:
                    count = min(len(space), len(piece))
                    space[:count] = piece[:count]
                    piece = piece[count:]
                    whole = decoder.filled(count)
                for frame in whole:
                    found.append(_frame(frame))
    except FrameError as error:  # what came in one read with the bad one is lost with it
        return [str(error)]
    return found


def _frame(data: bytes | memoryview) -> object:
    """What is in a frame, as whoever gets it sees it."""
    try:
        frame = decode(data, memoryview(bytearray(4096)) if data[9] & SEGMENT else None)
        if frame.flags & ROUTED:
            return split_route(frame)[0]
        if frame.kind == CAST:
            return split_header(frame)[0]
        return frame.kind, frame.meta, bytes(frame.payload), list(map(bytes, frame.buffers))
    except FrameError as error:
        return str(error)


# links

_HELLO = greeting(Hello("them", "tcp://them:1", "tcp://us:1"))
_DATA = b"".join(map(bytes, data_chunks(pack(_LARGE), 1, 0)))
_RECORDS = [
    _HELLO,
    _HELLO + control(JOIN, 0, Join("link", False, 0, 1)),
    _HELLO
    + control(JOIN, 0, Join("link", False, 0, 1))
    + _DATA
    + control(PING)
    + control(FAREWELL, 0, "bye"),
    control(JOINED, 0, Join("link", True, 3, 2)),
    _DATA,
]


def check_records(data: bytes) -> None:
    for size in _PIECES[:-1]:
        decoder = RecordDecoder(LIMIT)
        try:
            for piece in _pieces(data, size):
                for record in decoder.feed(piece):
                    _read(record)
        except LinkError:
            pass


def _read(record: Record) -> None:
    assert len(record.body) + len(record.segment) <= LIMIT
    if record.kind == GREETING:
        read_hello(record.body)
    elif record.kind in (JOIN, JOINED):
        read_join(record.body)
    elif record.kind == DATA:
        frame = record.frame()
        if frame.flags & ROUTED:
            with suppress(FrameError):
                split_route(frame)
    else:
        assert isinstance(record.text, str)


def check_link(data: bytes) -> None:
    """A stream of an authenticated peer that says anything: no exception, and nothing after the
    stream was cut.
    """
    for size in _PIECES[:-1]:
        table = LinkTable(
            "us", lambda: "tcp://us:1", Limits(reconnect=4.0, attach=10.0, frame=LIMIT)
        )
        number = table.accepted(0.0)
        is_cut = False
        for now, piece in enumerate(_pieces(data, size)):
            table.data(number, piece, now / 1000)
            for instruction in table.take():
                is_cut = is_cut or (isinstance(instruction, Cut) and instruction.stream == number)
                assert not (is_cut and isinstance(instruction, Deliver)), (
                    "it goes on after it was cut"
                )
        table.closed(number, "it closed the connection", 100.0)
        for now in range(100, 120):
            table.tick(float(now))
            for _ in table.take():
                pass
        table.close("the end", 200.0)


# peers that have yet to prove who they are


class _InternalErrors(logging.Handler):
    """Keeps what is logged with a traceback: a bug, whatever a peer has sent."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(self.format(record))


class Doors:
    """What listens, made on first use."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._errors = _InternalErrors()

    def close(self) -> None:
        self._stack.close()
        self._stack = ExitStack()
        for name in ("_net", "_open", "_tls", "_hub"):
            self.__dict__.pop(name, None)

    @cached_property
    def _net(self) -> Net:
        logger = logging.getLogger("monarch")
        logger.addHandler(self._errors)
        self._stack.callback(logger.removeHandler, self._errors)
        return self._stack.enter_context(Net())

    @cached_property
    def _open(self) -> Door:
        return self._net.listen("tcp://127.0.0.1:0", OPEN)

    @cached_property
    def _tls(self) -> Door:
        return self._net.listen("tcp://127.0.0.1:0", WITH_SECRET)

    @cached_property
    def _hub(self) -> MessageHub:
        _ = self._net
        address = ProcAddress(random_name(), "proc.0")
        hub = MessageHub(address, address)
        hub.listen()
        thread = threading.Thread(target=hub.poller.run, name="fuzzed-hub")
        thread.start()

        def end() -> None:
            hub.poller.stop()
            thread.join(PATIENCE)
            hub.close(Failure(STOPPED, "the end"))
            hub.poller.close()
            unix.release_all(address.host)

        self._stack.callback(end)
        return hub

    def check_open(self, data: bytes) -> None:
        with self._knock(self._open) as sock:
            self._say(sock, data)
        self._nobody_is_in(self._open, allowed=data.startswith(_OPEN_PROOF))

    def check_tls(self, data: bytes) -> None:
        with self._knock(self._tls) as sock:
            self._say(sock, data)
        self._nobody_is_in(self._tls)

    def check_proof(self, data: bytes) -> None:
        """Within TLS, by somebody who does not have the secret."""
        with self._knock(self._tls) as sock, suppress(OSError):
            with WITH_SECRET.client_context.wrap_socket(sock) as inside:
                inside.sendall(data)
                inside.settimeout(PATIENCE)
                if len(data) < len(_OPEN_PROOF):
                    socket.socket.shutdown(inside, socket.SHUT_WR)
                while inside.recv(4096):
                    pass
        self._nobody_is_in(self._tls)

    def check_node(self, data: bytes) -> None:
        """At the socket of a process, by one of the same user that has not said its name."""
        with unix.connect(self._hub.address) as sock:
            sock.settimeout(PATIENCE)
            self._say(sock, data)
        self._no_internal_error()

    @contextmanager
    def _knock(self, door: Door) -> Iterator[socket.socket]:
        with socket.create_connection(door.address, timeout=PATIENCE) as sock:
            yield sock

    @staticmethod
    def _say(sock: socket.socket, data: bytes) -> None:
        """Say it, hang up, and wait until the other side has done so."""
        with suppress(OSError):
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(4096):
                pass

    def _nobody_is_in(self, door: Door, allowed: bool = False) -> None:
        self._no_internal_error()
        assert allowed or not door.guests, "a stranger was let in"
        for guest in door.guests:
            guest.stream.close()
        door.guests.clear()

    def _no_internal_error(self) -> None:
        found, self._errors.found = self._errors.found, []
        assert not found, found[0]


OPEN: Trust = trust_for(TRUST_ALL)
WITH_SECRET: Trust = trust_for(secret=_SECRET)
_OPEN_PROOF = OPEN.proof(b"client", None)
doors = Doors()


def _client_hello() -> bytes:
    coming, going = ssl.MemoryBIO(), ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        WITH_SECRET.client_context.wrap_bio(coming, going).do_handshake()
    return going.read()


_GREETINGS = [
    encode(Frame(HELLO, PROTOCOL_VERSION, 0, 0, 0, 0, name, b""))[0]
    for name in (b"host\0proc.0", b"host", b"\xff\xfe", b"")
]
_GOODBYE = encode(Frame(HELLO, PROTOCOL_VERSION + 1, 0, 0, 0, 0, b"host\0proc.0", b""))[0]

# control records, of peers that have proved who they are


class _Hub(SimpleNamespace):
    """As much of a hub as a process without actors touches."""

    def register(self, uid: int, receiver: object) -> None: ...


@cache
def _process() -> ProcService:
    return ProcService(_Hub(address=_HERE, inbound_lost_hooks=[], peer_lost_hooks=[], poller=None))  # type: ignore[arg-type]


def check_control(data: bytes) -> None:
    """A record of that name, with fields of those bytes: whatever it is, who asks is answered, at
    most once.
    """
    name, _, rest = data.partition(b"\0")
    fields = tuple(filter(None, rest.split(b",")))
    payload, buffers = pickling.dumps_call(fields, {})
    asker = Origin(_THERE)
    logger = logging.getLogger("monarch.runtime")
    logger.disabled = True  # it would tell of each
    try:
        _process().receive(asker, Frame(CALL, 0, 0, SYSTEM, 78, 79, name, payload, buffers))
    finally:
        logger.disabled = False
    fits = False
    if name in ProcService._handlers:
        record: Any = ProcService._handlers[name][0]
        fits = (
            len(record._fields) - len(record._field_defaults) <= len(fields) <= len(record._fields)
        )
    if len(asker.answers) > 1 or (not fits and not asker.answers):
        raise AssertionError(
            f"{name!r} with {len(fields)} fields was answered {len(asker.answers)} times"
        )
    if not fits and asker.answers[0].flags != ERROR:
        raise AssertionError(f"{name!r} with {len(fields)} fields was not answered with an error")


# the store of scripts


def _query(number: int, *fields: bytes | int) -> bytes:
    sizes = [each if isinstance(each, int) else len(each) for each in fields]
    said = [size.to_bytes(8, sys.byteorder) for size in sizes]
    texts = [b"" if isinstance(each, int) else each for each in fields]
    return bytes([number]) + b"".join(map(bytes.__add__, said, texts))


_QUERIES = [
    _query(1, b"k", b"9" * 19),
    _query(2, b"k", b"", b"v"),
    _query(4, b"k", 7),
    _query(6, 1, b"k"),
    _query(14, b"q", b"v"),
    _query(15, b"q"),
]
_SCRIPTS = [store_greeting + b"".join(_QUERIES[at:]) for at in range(len(_QUERIES))]


def check_store(data: bytes) -> None:
    """What a client says ends that connection, or is answered."""
    asyncio.run(_say_to_store(data))


async def _say_to_store(data: bytes) -> None:
    reader, said = asyncio.StreamReader(), bytearray()
    reader.feed_data(data)
    reader.feed_eof()

    async def drain() -> None: ...

    writer: Any = SimpleNamespace(write=said.extend, drain=drain)
    with suppress(*NO_CLIENT):
        await Client(TorchStore(), reader, writer).run()
    assert not said or data.startswith(store_greeting)
    assert len(said) <= 64 * len(data) ** 2  # as an answer is no longer than what was set


# stacks

_DUMP = b"""Thread 0x00007f6d (most recent call first):
  File "/opt/monarch/_core/net/waiter.py", line 34 in wait
  File "/home/me/train.py", line 12 in step

Current thread 0x00007f6e [MainThread] (most recent call first):
  File "<string>", line ??? in <module>
"""
_PY_SPY = b"""[{"thread_name": "MainThread", "frames": [{"name": "A.f", "filename": "a.py", "line": 3}]}]"""


def check_stacks(data: bytes) -> None:
    text = data.decode(errors="replace")
    threads = parse_faulthandler(text)
    with suppress(ValueError):
        threads += parse_py_spy(text)
    found = Stacks([ProcStacks("mesh", 0, 1, 1, "host", "signal", "", threads)], {})
    assert str(found) and list(found.lines(everything=True))
    json.dumps(found.to_json())


TARGETS = [
    Target("frames", check_frames, _FRAMES),
    Target("link records", check_records, _RECORDS),
    Target("a link", check_link, _RECORDS, 3),
    Target(
        "control records",
        check_control,
        [
            b"StopActor\x007,why",
            b"SpawnActor\0",
            b"AskWhatKeeps\0x",
            b"LetGo\x001",
            b"monarch.nowhere.Open\0",
            b"\xff",
        ],
    ),
    Target("greeting", doors.check_open, [_OPEN_PROOF, _client_hello()], 20),
    Target("TLS", doors.check_tls, [_client_hello(), _OPEN_PROOF], 20),
    Target("proof within TLS", doors.check_proof, [_OPEN_PROOF, bytes(1 + len(_OPEN_PROOF))], 60),
    Target("stacks", check_stacks, [_DUMP, _PY_SPY, b"[]", b"[{}]"]),
    Target("a store", check_store, _SCRIPTS, 10),
    Target("first frame", doors.check_node, [*_GREETINGS, _GOODBYE, *_FRAMES[:1]], 20),
]
