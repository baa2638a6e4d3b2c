"""Parts of the admin interface: addresses, buffers of events, what is shared by those who ask at
the same time.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from monarch._listening import SharedListener
from monarch.actor import Future
from monarch.admin import address
from monarch.admin.feeds import Event, Feed, FeedReader, FeedSource
from monarch.admin.program import Shared
from monarch.admin.routes import ROUTES, ApiCall, ApiError, find
from monarch.config import configured
from monarch.logs.line import LogLine
from monarch.programs import ProcAddress


@pytest.mark.parametrize(
    ("text", "host", "port", "is_local"),
    [
        ("127.0.0.1:0", "127.0.0.1", 0, True),
        ("[::1]:1729", "::1", 1729, True),
        ("localhost:80", "localhost", 80, True),
        ("[::]:1729", "::", 1729, False),
        ("0.0.0.0:1", "0.0.0.0", 1, False),
        ("node7.example:65535", "node7.example", 65535, False),
    ],
)
def test_an_address_is_read(text: str, host: str, port: int, is_local: bool) -> None:
    found = address.parse(text)
    assert (found.host, found.port, found.is_local, str(found)) == (host, port, is_local, text)


@pytest.mark.parametrize(
    "text", ["", "1729", "localhost", ":1729", "a:b", "a:70000", "a:-1", "a:1 ", "a:٣"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        address.parse(text)


def test_the_default_is_any_port_of_this_machine_alone() -> None:
    assert address.parse(None) == ("127.0.0.1", 0)
    with configured(mesh_admin_addr="127.0.0.1:1730"):
        assert address.parse(None).port == 1730


@pytest.mark.parametrize("text", ["0.0.0.0:0", "[::]:0", "10.0.0.7:0", f"{socket.gethostname()}:0"])
def test_what_other_machines_reach_needs_tls(text: str) -> None:
    with pytest.raises(
        ValueError, match="without TLS: set HYPERACTOR_TLS_CERT and HYPERACTOR_TLS_KEY"
    ):
        address.listen(address.parse(text), address.Tls())


def test_every_address_as_0_7_writes_it_is_this_machine_unless_there_is_tls() -> None:
    everywhere, tls = address.parse("[::]:0"), address.Tls("cert", "key")
    assert address.narrowed(everywhere, address.Tls()) == ("127.0.0.1", 0)
    assert address.narrowed(everywhere, tls) == everywhere
    other = address.parse("0.0.0.0:0")
    assert address.narrowed(other, address.Tls()) == other, "which is refused without TLS"
    with address.listen(address.narrowed(everywhere, address.Tls()), address.Tls()) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"


def test_files_of_tls_are_both_there_or_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HYPERACTOR_TLS_CERT", str(tmp_path / "cert.pem"))
    with pytest.raises(ValueError, match="go together"):
        address.tls_files()
    monkeypatch.setenv("HYPERACTOR_TLS_KEY", str(tmp_path / "key.pem"))
    with pytest.raises(ValueError, match="can't be read"):
        address.tls_files()


def test_a_port_that_is_taken_is_an_error_at_once() -> None:
    with address.listen(address.parse("127.0.0.1:0"), address.Tls()) as first:
        port = first.getsockname()[1]
        with pytest.raises(
            OSError, match=f"can't listen at 127.0.0.1:{port}: .* port 0 takes any"
        ) as raised:
            address.listen(address.parse(f"127.0.0.1:{port}"), address.Tls())
        assert raised.value.errno == errno.EADDRINUSE
        with address.listen(address.parse("127.0.0.1:0"), address.Tls()) as second:
            assert second.getsockname()[1] != port


class Counted(FeedSource):
    """Says what it is told to."""

    def __init__(self, events: Callable[[], Iterable[Event]], with_state: bool = False) -> None:
        self.events = events
        self.with_state = with_state
        self.closed = threading.Event()

    def look(self) -> Iterable[Event]:
        return self.events()

    def state(self) -> Event | None:
        return Event("state", "all") if self.with_state else None

    def close(self) -> None:
        self.closed.set()


async def read(feed: Feed, enough: Callable[[list[str]], bool]) -> list[str]:
    texts: list[str] = []
    stream = FeedReader(feed).texts()
    async for text in stream:
        texts.append(text)
        if enough(texts):
            break
    await stream.aclose()
    return texts


def test_a_feed_looks_while_it_has_readers_and_no_longer() -> None:
    source = Counted(lambda: [Event("tick", {"a": 1})])
    feed = Feed(lambda: source, threading.Event(), 0.001)
    texts = asyncio.run(read(feed, lambda texts: len(texts) > 3))
    assert texts[1:4] == ['event: tick\ndata: {"a":1}\n\n'] * 3
    assert source.closed.wait(30)
    assert asyncio.run(read(feed, lambda texts: len(texts) > 3))[3] == texts[3]  # and again


def test_the_end_of_the_program_ends_a_feed() -> None:
    ended = threading.Event()

    def tick() -> Iterable[Event]:
        ended.set()
        return [Event("tick", 1)]

    texts = asyncio.run(read(Feed(lambda: Counted(tick), ended, 0.001), lambda texts: False))
    assert texts[-1].startswith("event: end")


def test_a_look_that_fails_is_told_once_and_tried_again() -> None:
    answers = iter([ValueError("lost"), ValueError("lost"), None])

    def look() -> Iterable[Event]:
        answer = next(answers, None)
        if answer is not None:
            raise answer
        return [Event("tick", 1)]

    texts = asyncio.run(
        read(
            Feed(lambda: Counted(look), threading.Event(), 0.001), lambda texts: "tick" in texts[-1]
        )
    )
    assert [text.partition("\n")[0] for text in texts[1:]] == ["event: error", "event: tick"]


def test_who_joins_a_feed_that_fails_is_told_why() -> None:
    def look() -> Iterable[Event]:
        raise ValueError("lost")

    async def story() -> None:
        feed = Feed(lambda: Counted(look), threading.Event(), 0.001)
        first = FeedReader(feed).texts()
        while "lost" not in await first.__anext__():
            pass
        await asyncio.wait_for(read(feed, lambda texts: "lost" in texts[-1]), 60)
        await first.aclose()

    asyncio.run(story())


def test_numbers_and_times_that_are_none_are_refused() -> None:
    from monarch.admin.logs import moment

    def call(query: dict[str, str], body: dict[str, object]) -> ApiCall:
        return ApiCall(None, {}, query, body, "", "view")  # type: ignore[arg-type]

    numbers: tuple[object, ...] = (
        10**400,
        float("nan"),
        float("inf"),
        "1e999",
        "9" * 400,
        [],
        None,
        True,
    )
    for given in numbers:
        with pytest.raises(ApiError, match="timeout is a number from 0.1 to 30, not "):
            call({}, {"timeout": given}).number("timeout", 10, 0.1, 30)
    for text in (
        "inf",
        "-inf",
        "nan",
        "9" * 400,
        "1e300",
        "0001-01-01T00:00:00+23:00",
        "yesterday",
    ):
        with pytest.raises(ApiError, match="a time is seconds since 1970, or RFC 3339, not "):
            moment(text, 0.0)
    assert moment("1.5", 0.0) == moment("1970-01-01T00:00:01.500Z", 0.0) == 1.5


def test_the_text_that_lines_must_contain_is_no_pattern() -> None:
    from monarch.admin.logs import _filter

    matches = _filter(ApiCall(None, {}, {"grep": "(a+)+$"}, {}, "", "view")).matcher()  # type: ignore[arg-type]
    line = LogLine(1.0, "stdout", 0, "", "host", "mesh", 0, "", "", 0, "", "", "", "")
    assert matches(line._replace(text="it says (a+)+$ here"))
    assert not matches(line._replace(text="a" * 60))


def test_who_does_not_read_loses_events_and_is_told_and_given_the_state() -> None:
    async def story() -> list[str]:
        looks = 0

        def look() -> Iterable[Event]:
            nonlocal looks
            looks += 1
            return [Event("delta", "x" * 300)]

        feed = Feed(lambda: Counted(look, with_state=True), threading.Event(), 0.0001)
        reader = FeedReader(feed, most=10_000)
        stream = reader.texts()
        texts = [await stream.__anext__(), await stream.__anext__()]
        while looks < 200:  # meanwhile nobody reads
            assert reader._size <= 10_000 + 400
            await asyncio.sleep(0.001)
        async for text in stream:
            texts.append(text)
            if "event: gap" in "".join(texts) and "event: state" in text:
                break
        await stream.aclose()
        return texts

    names = [text.partition("\n")[0] for text in asyncio.run(story())]
    assert names[1] == "event: state"
    assert names.count("event: state") == 2 and names.index("event: gap") < len(names) - 1
    assert names[-1] == "event: state"


def test_a_value_that_is_no_json_is_an_error_and_the_next_look_is_told() -> None:
    circle: list[object] = []
    circle.append(circle)
    answers = iter([circle, {("a", "tuple"): "as a key"}])
    source = Counted(lambda: [Event("tick", next(answers, 1))])
    texts = asyncio.run(
        read(Feed(lambda: source, threading.Event(), 0.001), lambda texts: "tick" in texts[-1])
    )
    assert [text.partition("\n")[0] for text in texts[1:]] == [
        "event: error",
        "event: error",
        "event: tick",
    ]


def test_what_many_ask_for_at_once_is_looked_for_once() -> None:
    looks = 0
    hold = threading.Event()

    def look() -> int:
        nonlocal looks
        looks += 1
        hold.wait(30)
        return looks

    shared = Shared(look, fresh=60.0)
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(shared.get())) for _ in range(8)]
    for thread in threads:
        thread.start()
    hold.set()
    for thread in threads:
        thread.join()
    assert found == [1] * 8
    assert Shared(look, fresh=0.0).get() == 2


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("/v1/a%2Fb%40c", {"reference": "a/b@c"}),
        ("/v1/config/p%40tcp%3A%2F%2F10.0.0.7%3A26600", {"proc": "p@tcp://10.0.0.7:26600"}),
        ("/v1/why", {}),
    ],
)
def test_a_reference_is_one_segment_of_a_path(path: str, names: dict[str, str]) -> None:
    pytest.importorskip("uvicorn")
    from monarch.admin import helper

    assert helper.TABLES and ROUTES
    assert find(path)[1] == names


def test_the_page_has_the_table_of_routes_as_it_is() -> None:
    pytest.importorskip("uvicorn")
    from monarch.admin.openapi import table

    page = (Path(__file__).parents[2] / "docs" / "admin.md").read_text()
    assert table() in page, "put what `python -m monarch.admin` prints into docs/admin.md"


def test_who_owns_a_mesh_is_found_past_hosts_and_processes_that_are_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from monarch._core.plane import Promise, completed
    from monarch.admin import more

    def found(hub: None, agents: object, silent: Callable[[str, str], None]) -> list[Any]:
        silent(frozen.host, "it is frozen")
        return [proc, *others]

    monkeypatch.setattr(more, "PATIENCE", 0.2)
    monkeypatch.setattr(more, "procs_of", found)
    root, owner, silent = (
        ProcAddress("tcp://here", name) for name in ("client", "owner", "silent")
    )
    frozen = ProcAddress("tcp://frozen", "").agent
    proc = SimpleNamespace(
        root=root, mesh="mine", mesh_id="7", address=ProcAddress("tcp://here", "one")
    )
    others = [
        SimpleNamespace(root=root, mesh="other", mesh_id="8", address=each)
        for each in (silent, owner)
    ]
    answers = {root: None, owner: False}

    class Asked:
        hub, agents = None, (frozen, root.agent)

        def __init__(self) -> None:
            self.root = root

        def ask(self, who: ProcAddress, record: object) -> Future[Any]:
            return (
                completed(answers[who]) if who in answers else Promise[Any]("a silent one").future
            )

    def owned(mesh: str) -> Any:
        program: Any = SimpleNamespace(connection=Asked())
        return more._owned(ApiCall(program, {"mesh": mesh}, {}, {}, "", "act"))

    assert owned("mine") == ("7", owner)
    with pytest.raises(
        ApiError, match="there is no mesh of procs 'none' that runs; tcp://frozen did not answer"
    ):
        owned("none")


class Noisy:
    """A program with more lines than are read."""

    def __init__(self) -> None:
        self.wanted: list[Any] = []

    def collect(self, *tables: str, lines: object, **how: object) -> Any:
        self.wanted.append(lines)
        return SimpleNamespace(rows=lambda table: [], left_out={"logs": 17}, silent={})


def test_which_lines_are_wanted_is_said_to_hosts_and_what_was_left_out_is_told() -> None:
    from monarch.admin import logs
    from monarch.logs.filter import LineFilter

    program = Noisy()
    answer = logs._logs(ApiCall(program, {}, {"grep": "x.", "until": "9"}, {}, "", "view"))  # type: ignore[arg-type]
    assert answer["left_out"] == 17
    following = logs._Following(program, LineFilter(mesh="m", since=1.0))  # type: ignore[arg-type]
    began = time.time()
    first, *_ = following.look()
    assert first == Event("not_read", {"lines": 17})
    assert program.wanted == [LineFilter(grep=r"x\.", until=9.0), LineFilter(mesh="m", since=1.0)]
    list(following.look())  # nothing was found, and what was read is not read again
    assert began - 3 <= program.wanted[-1].since <= time.time()


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    pytest.importorskip("uvicorn")
    from monarch.admin import connection

    monkeypatch.setattr(connection, "HEAD_LIMIT", 0.3)
    monkeypatch.setattr(connection, "SEND_LIMIT", 0.3)
    with Served() as found:
        yield found


class Served:
    """The server, in this process, on a thread."""

    def __init__(self) -> None:
        import uvicorn

        from monarch.admin import app, connection, helper
        from monarch.admin.guard import Guard
        from monarch.admin.keys import VIEW, Keys

        assert helper.TABLES
        self.source = source = Counted(lambda: [Event("tick", "x" * 100_000)])
        self.ended = ended = threading.Event()

        class Program:
            ended = self.ended
            saved = False

            def feed(self, name: str, make: Callable[[], Feed]) -> Feed:
                return Feed(lambda: source, ended, 0.001)

        keys = Keys(b"of this test", "program")
        self.authorization = f"Authorization: Bearer {keys.token(VIEW)}\r\n".encode()
        self._app = app.App(Program(), Guard(keys, ["localhost"]), 2)  # type: ignore[arg-type]
        listening = address.listen(address.parse("127.0.0.1:0"), address.Tls())
        self.listener = SharedListener(listening.detach(), 8)
        how = uvicorn.Config(
            self._app, http=connection.ServerConnection, ws="none", lifespan="off", log_config=None
        )
        self._server = uvicorn.Server(how)
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._server.serve([self.listener]))
        )

    def __enter__(self) -> Served:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.ended.set()
        self._server.should_exit = True
        self._thread.join()

    def connect(self, sent: bytes) -> socket.socket:
        found = socket.create_connection(self.listener.getsockname(), timeout=60)
        found.sendall(sent)
        return found


def rest_of(connection: socket.socket) -> bytes:
    """What comes until the server ends the connection."""
    parts = []
    try:
        while part := connection.recv(1 << 16):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def test_a_reader_that_takes_nothing_is_cut_off(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    with served.connect(
        b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n" + served.authorization + b"\r\n"
    ) as reader:
        assert served.source.closed.wait(60)  # nobody reads the feed any more
        assert b"event: tick" in rest_of(reader)  # and the connection is no longer there
    assert not caplog.records


@pytest.mark.parametrize("sent", [b"", b"GET /v1/root HTTP/1.1\r\nHost: loc"])
def test_half_a_request_is_not_waited_for(served: Served, sent: bytes) -> None:
    with served.connect(sent) as connection:
        assert rest_of(connection) == b""


def test_there_are_so_many_connections_and_no_more(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    from monarch.admin import connection

    monkeypatch.setattr(connection, "HEAD_LIMIT", 60.0)
    with ExitStack() as stack:
        for _ in range(8):
            stack.enter_context(served.connect(b""))
        assert rest_of(stack.enter_context(served.connect(b""))) == b""
