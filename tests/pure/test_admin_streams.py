"""Who is cut off, or goes away: streams go on where they were, and nobody is asked for who waits no
more. And what is no parameter.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from helpers.asgi import ask
from monarch.admin import app as application
from monarch.admin import feeds, helper, logs, routes
from monarch.admin.app import App
from monarch.admin.feeds import Event, Feed, FeedReader, FeedSource
from monarch.admin.guard import Guard
from monarch.admin.keys import ACT, Keys
from monarch.admin.routes import JSON, ROUTES, ApiCall, ApiError, Page, Route
from monarch.logs.filter import LineFilter

assert helper.TABLES

KEYS = Keys(b"of this test", "program")
HEADERS = {
    "Host": "localhost",
    "Authorization": f"Bearer {KEYS.token(ACT)}",
    "Content-Type": "application/json",
}


def app_of(program: Any, at_once: int = 1) -> App:
    return App(program, Guard(KEYS, ["localhost"]), at_once)


class Printing:
    """A program whose one rank has printed lines: each with its time, and no two of them need to
    differ.
    """

    def __init__(self) -> None:
        self.printed: list[tuple[float, str]] = []
        self.left_out = 0

    def collect(self, *tables: str, lines: LineFilter, **how: object) -> Any:
        columns = dict.fromkeys(
            ("level", "host", "job", "actor", "endpoint", "logger", "location"), ""
        )
        rows = [
            {**columns, "timestamp_us": int(at * 1e6), "text": text, "stream": "stdout", "mesh": "m", "rank": 0, "incarnation": 0}
            for at, text in self.printed
            if at >= lines.since
        ]  # fmt: skip
        return SimpleNamespace(
            rows=lambda table: rows if table == "logs" else [],
            left_out={"logs": self.left_out},
            silent={},
        )


def following(program: Printing, since: str = "", place: str = "") -> FeedSource:
    ended = threading.Event()
    watched: Any = SimpleNamespace(collect=program.collect, ended=ended)
    answer = logs._follow(
        ApiCall(watched, {}, {"since": since} if since else {}, {}, "", "view", "", place)
    )
    source: FeedSource = answer.feed._make()
    return source


def texts(events: Iterable[Event]) -> list[str]:
    return [line["text"] for event in events if event.name == "lines" for line in event.data]


def test_who_was_cut_off_goes_on_where_it_was_and_misses_no_line() -> None:
    program, now = Printing(), time.time()
    program.printed = [(now - 1, "one"), (now - 0.5, "two")]
    source = following(program, since=str(now - 10))
    *_, last = first = list(source.look())
    assert texts(first) == ["one", "two"] and float(last.place) <= now - 1
    program.printed += [(now - 0.4, "while nobody listened"), (time.time(), "three")]
    again = list(following(program, place=last.place).look())
    # the reader knows the first two
    assert texts(again) == ["one", "two", "while nobody listened", "three"]
    assert texts(following(program).look()) == []  # who says nothing begins now


def test_a_stream_says_its_place_before_its_first_line_comes() -> None:
    begun = time.time()
    (event,) = following(Printing()).look()
    assert event.data == [] and begun <= float(event.place) <= time.time()
    assert f"\nid: {event.place}\n" in event.text


def test_between_parts_of_many_lines_the_place_is_that_before_them() -> None:
    program, now = Printing(), time.time()
    program.printed = [(now, str(number)) for number in range(1200)]
    events = list(following(program, since=str(now - 10)).look())
    assert [len(event.data) for event in events] == [500, 500, 200]
    assert [bool(event.place) for event in events] == [False, False, True]


def test_a_rank_may_say_the_same_twice_in_a_microsecond() -> None:
    program, now = Printing(), time.time()
    program.printed = [(now, "."), (now, ".")]
    source = following(program, since=str(now - 10))
    assert texts(source.look()) == [".", "."]
    program.printed.append((now, "."))
    assert texts(source.look()) == ["."]


def test_a_place_that_is_none_is_refused() -> None:
    for place in ("nan", "-1", "behind you"):
        with pytest.raises(ApiError, match="a time is seconds since 1970"):
            following(Printing(), place=place)


class Stuck(FeedSource):
    """A program that answers no look after the first."""

    def __init__(self) -> None:
        self.looks = 0
        self.released = threading.Event()

    def look(self) -> Iterable[Event]:
        self.looks += 1
        if self.looks > 1:
            self.released.wait()
        return []


def test_the_server_says_how_long_it_has_not_seen_the_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(feeds, "HEARTBEAT", 0.01)
    source = Stuck()

    async def ages() -> list[float]:
        found: list[float] = []
        stream = FeedReader(Feed(lambda: source, threading.Event(), 0.001)).texts()
        await anext(stream)  # the head of the answer
        while source.looks < 2:
            await asyncio.sleep(0.001)
        async for text in stream:
            name, _, data = text.partition("\ndata: ")
            if name == "event: beat":
                found.append(json.loads(data)["age"])
                if found[-1] >= 0.3:
                    break
        await stream.aclose()
        return found

    try:
        found = asyncio.run(ages())
    finally:
        source.released.set()
    assert found == sorted(found)


def test_who_reads_hears_a_heartbeat_while_looks_find_nothing_new(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(feeds, "HEARTBEAT", 0.2)

    class Quiet(FeedSource):
        def look(self) -> Iterable[Event]:
            return []

    async def heard() -> str:
        stream = FeedReader(Feed(Quiet, threading.Event(), 0.001)).texts()
        await anext(stream)  # the head of the answer
        text = await asyncio.wait_for(anext(stream), 60)
        await stream.aclose()
        return text

    assert asyncio.run(heard()).startswith("event: beat\n")


class Slow:
    """A route that is answered when it may be."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.abandoned: list[threading.Event | None] = []
        self.may = threading.Event()
        self.route = Route("GET", "/v1/slow/{who}", "view", self._answer, "", JSON, {}, 60.0)

    def _answer(self, call: ApiCall) -> Any:
        self.abandoned.append(call.abandoned)
        self.asked.append(call.path["who"])
        self.may.wait(60)
        return {}


async def left_by(app: Any, path: str, gone: asyncio.Event) -> None:
    """Ask, and close the connection when `gone` is set."""

    async def receive() -> dict[str, Any]:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        raise AssertionError(f"nobody listens to {message}")

    await app(scope(path), receive, send)


def test_who_has_gone_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow()
    monkeypatch.setattr(routes, "ROUTES", [slow.route])

    async def story() -> None:
        app = app_of(SimpleNamespace(ended=threading.Event(), saved=False))
        gone = asyncio.Event()
        first = asyncio.ensure_future(ask(app, "GET", "/v1/slow/first", HEADERS))
        while not slow.asked:
            await asyncio.sleep(0.001)
        left = asyncio.ensure_future(left_by(app, "/v1/slow/left", gone))
        last = asyncio.ensure_future(ask(app, "GET", "/v1/slow/last", HEADERS))
        gone.set()
        await left  # it waits for its turn no more
        slow.may.set()
        assert (await first).status == (await last).status == 200

    asyncio.run(story())
    assert slow.asked == ["first", "last"]


def test_who_goes_while_he_is_answered_keeps_his_place_until_that_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow = Slow()
    monkeypatch.setattr(routes, "ROUTES", [slow.route])

    async def story() -> None:
        app = app_of(SimpleNamespace(ended=threading.Event(), saved=False))
        gone = asyncio.Event()
        left = asyncio.ensure_future(left_by(app, "/v1/slow/left", gone))
        while not slow.asked:
            await asyncio.sleep(0.001)
        gone.set()
        await left
        last = asyncio.ensure_future(ask(app, "GET", "/v1/slow/last", HEADERS))
        await asyncio.sleep(0)
        assert app._places.locked() and slow.asked == ["left"]
        assert slow.abandoned[0] is not None and slow.abandoned[0].is_set()  # so that it ends early
        slow.may.set()
        assert (await last).status == 200

    asyncio.run(story())


def test_a_body_that_does_not_come_is_no_bad_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application, "_BODY_LIMIT", 0.01)
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

    async def send(message: Any) -> None:
        sent.append(message)

    app = app_of(SimpleNamespace(ended=threading.Event(), saved=False))
    asyncio.run(app({**scope("/v1/query"), "method": "POST"}, receive, send))
    assert sent[0]["status"] == 408 and b"did not come within 0.01 s" in sent[1]["body"]


def test_what_reads_files_does_not_wait_for_questions_to_the_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow = Slow()
    file = Route("GET", "/v1/file", "view", lambda call: {}, "", JSON, {}, 60.0, reads=True)
    monkeypatch.setattr(routes, "ROUTES", [slow.route, file])

    async def story() -> None:
        app = app_of(SimpleNamespace(ended=threading.Event(), saved=False))
        asked = asyncio.ensure_future(ask(app, "GET", "/v1/slow/first", HEADERS))
        while not slow.asked:
            await asyncio.sleep(0.001)
        assert app._places.locked()
        assert (await ask(app, "GET", "/v1/file", HEADERS)).status == 200
        assert not asked.done()
        slow.may.set()
        assert (await asked).status == 200

    asyncio.run(story())


def scope(path: str) -> Mapping[str, Any]:
    return {
        "type": "http", "http_version": "1.1", "method": "GET", "scheme": "http", "path": path, "raw_path": path.encode(),
        "query_string": b"", "root_path": "", "server": ("127.0.0.1", 1729), "client": ("127.0.0.1", 4711),
        "headers": [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()],
    }  # fmt: skip


class Anything:
    """A program of which nothing may be asked here."""

    def __getattr__(self, name: str) -> Any:
        return Anything()

    def __call__(self, *args: Any, **options: Any) -> Any:
        raise ApiError("conflict", "the program was asked")


NUMBERS = [
    (route, name)
    for route in ROUTES
    for name, field in route.fields.items()
    if field.kind in ("number", "integer") or name in ("since", "until")
]


@pytest.mark.parametrize(
    ("route", "name"), NUMBERS, ids=lambda each: each if isinstance(each, str) else each.path
)
def test_a_number_that_is_none_or_absurd_is_refused_by_each_route(route: Route, name: str) -> None:
    async def refused(value: str) -> None:
        path = "/" + "/".join("x%40y" if part[:1] == "{" else part for part in route.segments)
        needed = {each: field.kind for each, field in route.fields.items() if field.required}
        required = {each: "SELECT 1" if kind == "string" else 1 for each, kind in needed.items()}
        if route.method == "POST":
            body = json.dumps({**required, name: value}).encode()
            answer = await ask(app_of(Anything()), "POST", path, HEADERS, body)
        else:
            answer = await ask(
                app_of(Anything()), "GET", f"{path}?{name}={value}", HEADERS, read=10
            )
        assert answer.status == 400, (value, answer.body)
        error = json.loads(answer.body)["error"]
        assert value in error["message"]

    parts = ["1.5"] if route.fields[name].kind == "integer" else []
    for value in ("nan", "-inf", "1e999", "-1", "9" * 30, "0x10", "ten", *parts):
        asyncio.run(refused(value))


def test_there_are_numbers_to_refuse() -> None:
    assert {name for _, name in NUMBERS} >= {
        "since",
        "until",
        "limit",
        "timeout",
        "seconds_apart",
        "duration_s",
    }


def test_a_parameter_that_there_is_not_is_refused_and_others_are_named() -> None:
    answer = asyncio.run(ask(app_of(Anything()), "GET", "/v1/logs?mesh=m&after=nan", HEADERS))
    message = json.loads(answer.body)["error"]["message"]
    assert answer.status == 400
    assert (
        message
        == "/v1/logs has no parameter 'after'; it has mesh, rank, level, grep, since, until, limit"
    )


def test_answers_that_are_read_slowly_keep_so_much_in_memory_and_no_more(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(application, "_MOST_SENT", 2500)
    (tmp_path / "answer").write_bytes(bytes(1000))
    app = app_of(SimpleNamespace())
    with ExitStack() as stack:
        files = [stack.enter_context((tmp_path / "answer").open("rb")) for _ in range(4)]
        sent = [app._response(Page(file)) for file in files[:2]]
        with pytest.raises(ApiError, match="answers are being read") as refused:
            app._response(Page(files[2]))
        assert refused.value.code == "service_unavailable"
        for file in (files[0], files[2]):  # one was read to its end, the other is given up
            file.close()
        sent.append(app._response(Page(files[3])))
        assert {each.headers["content-length"] for each in sent} == {"1000"}
