"""The server, as an ASGI application.

It checks a request, finds its route, and has a thread answer it within a time limit.

Routes that ask the program take a place in a queue, of which some are served at a time; none is
sent away. Routes that read files have a queue of their own, so that they do not wait for questions
to ten thousand ranks, which go on when they are not waited for any more. What ends a requester's
wait: the answer, the time limit of the route, the end of the program, or the close of the
connection.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import threading
import time
from collections.abc import AsyncGenerator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from functools import partial
from typing import IO, Any
from weakref import WeakSet

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse

from .._listening import is_ours
from ..errors import MonarchError, QueryError, SupervisionError
from . import child, guard, routes, runs
from .arrow import MOST_BODY as MOST_OF_ARROW
from .feeds import FeedReader
from .guard import Guard
from .keys import may
from .program import WatchedProgram
from .routes import NO_ROLE, STATUS, ApiCall, ApiError, Events, Handler, LoginLink, Page, Route

logger = logging.getLogger("monarch.admin")

MOST_BODY = 1 << 20
"""Bytes of a body."""

_MOST_THREADS = 32
_MOST_READERS = 4  # requests at a time that read files
_MOST_SENT = 512 << 20  # bytes of answers that wait for their readers
_MOST_STREAMS = 64  # readers of events at a time
_BODY_LIMIT = 10.0  # seconds in which a body must have come
_PIECE = 1 << 18  # bytes of a large answer that are sent at a time
_CODES = {
    QueryError: "bad_request", ValueError: "bad_request", MemoryError: "bad_request", TimeoutError: "gateway_timeout",
    SupervisionError: "service_unavailable", ConnectionError: "service_unavailable", ImportError: "not_implemented",
    NotImplementedError: "not_implemented", MonarchError: "proxy_error", ChildProcessError: "internal_error",
}  # fmt: skip
_OF_A_FILE = 15.0  # seconds of a route that asks no process, where the file of a run is read


class App:
    """The ASGI application of the admin interface.

    Args:
        program: The program that is served.
        doors: Looks at requests.
        at_once: Routes that ask the program at a time; others wait for their turn.
    """

    def __init__(self, program: WatchedProgram, doors: Guard, at_once: int) -> None:
        self._program = program
        self._guard = doors
        self._pool = ThreadPoolExecutor(_MOST_THREADS, "monarch-admin")
        self._places = asyncio.Semaphore(at_once)
        self._readers = asyncio.Semaphore(_MOST_READERS)
        self._over = asyncio.Event()
        self._sent: WeakSet[IO[bytes]] = WeakSet()  # answers that are in memory until they are read
        self.streams = 0
        self.last_asked = time.monotonic()

    def end(self) -> None:
        """End all waits for the program, which has ended. Called in the event loop."""
        self._over.set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request."""
        if scope["type"] != "http":  # nothing else is spoken here
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            return
        try:
            await self._serve(scope, receive, send)
        finally:
            self.last_asked = time.monotonic()

    async def _serve(self, scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope, receive)
        try:
            response = await self._answer(request)
        except ApiError as error:
            response = _json(error.to_json(_path(request)), STATUS[error.code])
            if error.code == "unauthorized":
                response.headers["WWW-Authenticate"] = "Bearer"
        except ClientDisconnect:
            return
        response.headers.update(guard.HEADERS)
        if isinstance(response, StreamingResponse):
            stream: Any = response.body_iterator
            async with aclosing(stream):  # however it ends: its feed stops without readers
                await response(scope, receive, send)
        else:
            await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        headers, method = dict(request.headers), request.method
        self._guard.check_sender(method, headers)
        run, path = runs.split(_path(request))
        found, names = routes.find(path)
        wanted = "GET" if method == "HEAD" else method
        chosen = next((each for each in found if each.method == wanted), None)
        is_open = chosen is not None and chosen.role == NO_ROLE
        role = NO_ROLE if is_open else self._guard.role_of(headers, time.time())
        if not found:
            return Response(status_code=404)
        if chosen is None:
            allowed = ", ".join(routes.methods(found))
            raise ApiError("method_not_allowed", f"{path} takes {allowed}, not {method}")
        if not is_open and not may(role, chosen.role):
            raise ApiError(
                "forbidden", f"this needs the role {chosen.role!r}, and yours is {role!r}"
            )
        try:
            content = b""
            if method == "POST" and not is_open:
                content = await asyncio.wait_for(_content(request, chosen.takes), _BODY_LIMIT)
        except asyncio.TimeoutError:
            raise ApiError(
                "request_timeout", f"the body did not come within {_BODY_LIMIT:g} s"
            ) from None
        is_json = chosen.takes == routes.JSON
        body = _object(content) if is_json else {}
        base = str(request.base_url).rstrip("/") + (f"/runs/{run}" if run else "")
        call = ApiCall(
            self._program, names, dict(request.query_params), body, base, role,
            headers.get("accept", ""), headers.get("last-event-id", ""), threading.Event(),
            b"" if is_json else content,
        )  # fmt: skip
        stranger = next((name for name in call.query if name not in chosen.fields), None)
        if stranger is not None and path.startswith("/v1/") and method != "POST":
            known = ", ".join(chosen.fields) or "none"
            raise ApiError(
                "bad_request", f"{path} has no parameter {stranger[:80]!r}; it has {known}"
            )
        if method == "HEAD" and chosen.answers == routes.EVENTS:  # which would go on
            return Response(media_type=chosen.answers)
        if chosen.sql:
            chosen = chosen._replace(handler=partial(child.handle, chosen.handler))
        if run and not is_open:
            chosen = chosen._replace(handler=partial(_of_run, run, chosen.handler))
        if not is_open and (run or self._program.saved):
            chosen = chosen._replace(seconds=chosen.seconds or _OF_A_FILE, reads=True)
        answer = await self._ask(chosen, call, request)
        if isinstance(answer, LoginLink):
            return self._exchange(request, answer)
        return self._response(answer)

    def _exchange(self, request: Request, link: LoginLink) -> Response:
        """A session for a link."""
        own = request.scope["server"]
        ours = request.client is not None and own is not None and is_ours(request.client, own)
        role = self._guard.keys.use_code(link.code, time.time(), ours)
        if role is None:
            raise ApiError(
                "unauthorized",
                "this link was used, is too old, or is for another user: `monarch admin` prints"
                " another one",
            )
        self._program.expect()
        return _json({"session": self._guard.keys.session(role, time.time()), "role": role})

    async def _ask(self, chosen: Route, call: ApiCall, request: Request) -> Any:
        """Return the handler's answer, within its time, and as long as the client waits for it."""
        if not chosen.asks:
            return await self._run(chosen, call)
        limit = chosen.limit
        begun = asyncio.Event()
        asking = asyncio.ensure_future(self._in_turn(chosen, call, begun))
        over, gone = asyncio.ensure_future(self._over.wait()), asyncio.ensure_future(_gone(request))
        try:
            await asyncio.wait(
                [asking, over, gone], timeout=limit, return_when=asyncio.FIRST_COMPLETED
            )
            if asking.done():
                return asking.result()
            if gone.done():
                raise ClientDisconnect
            if over.done():
                raise ApiError("service_unavailable", "the program has ended")
            why = "no place in the queue became free"
            if begun.is_set():
                why = "the program did not answer"
            raise ApiError("gateway_timeout", f"{why} within {limit:g} s")
        finally:
            for each in (asking, over, gone):  # who still waits for a place leaves the queue
                each.cancel()
            if call.abandoned is not None:
                call.abandoned.set()

    async def _in_turn(self, chosen: Route, call: ApiCall, begun: asyncio.Event) -> Any:
        places = self._readers if chosen.reads else self._places
        await places.acquire()
        begun.set()
        running = asyncio.ensure_future(self._run(chosen, call))
        running.add_done_callback(partial(self._left, places))
        # a thread goes on to its end, and keeps the place until then
        return await asyncio.shield(running)

    def _left(self, places: asyncio.Semaphore, running: asyncio.Future[Any]) -> None:
        places.release()
        if not running.cancelled():
            running.exception()  # is told already, or comes too late

    async def _run(self, chosen: Route, call: ApiCall) -> Any:
        try:
            return await asyncio.get_running_loop().run_in_executor(
                self._pool, chosen.handler, call
            )
        except ApiError:
            raise
        except Exception as error:
            code = next((code for kind, code in _CODES.items() if isinstance(error, kind)), None)
            if code is not None:
                is_lost = code == "service_unavailable"
                why = f"the program has ended, or lost a host: {error}" if is_lost else str(error)
                raise ApiError(code, why) from None
            if self._program.ended.is_set():
                raise ApiError("service_unavailable", "the program has ended") from None
            logger.exception("%s %s", chosen.method, chosen.path)
            raise ApiError("internal_error", f"{type(error).__name__}: {error}") from None

    def _response(self, answer: Any) -> Response:
        if isinstance(answer, Events):
            if self.streams >= _MOST_STREAMS:
                raise ApiError(
                    "service_unavailable", f"{_MOST_STREAMS} readers of events are let in at a time"
                )
            return StreamingResponse(self._stream(answer), media_type=routes.EVENTS)
        if not isinstance(answer, Page):
            return _json(answer)
        if isinstance(answer.body, (str, bytes)):
            return Response(answer.body, media_type=answer.media)
        self._sent.add(answer.body)
        sizes = {file: os.fstat(file.fileno()).st_size for file in self._sent if not file.closed}
        if sum(sizes.values()) > _MOST_SENT:  # who reads one slowly keeps it in memory
            raise ApiError(
                "service_unavailable", f"{_MOST_SENT >> 20} MiB of answers are being read"
            )
        length = {"Content-Length": str(sizes[answer.body])}
        return StreamingResponse(_pieces(answer.body), headers=length, media_type=answer.media)

    async def _stream(self, events: Events) -> AsyncGenerator[str, None]:
        self.streams += 1
        try:
            async with aclosing(FeedReader(events.feed).texts()) as texts:
                async for text in texts:
                    yield text
        finally:
            self.streams -= 1


def _of_run(run: str, handler: Handler, call: ApiCall) -> Any:
    """Answer a handler's question about a run that has left a file."""
    try:
        return handler(call._replace(program=runs.opened(call.program.folder, run)))
    except FileNotFoundError as error:  # it has gone meanwhile
        raise ApiError("not_found", str(error)) from None


async def _pieces(file: IO[bytes]) -> AsyncGenerator[bytes, None]:
    """The content of a file that is in memory, or was written just now."""
    with file:
        while piece := file.read(_PIECE):
            yield piece


async def _gone(request: Request) -> None:
    """Waits until who asks has closed the connection; the body must have been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _path(request: Request) -> str:
    """As it was sent, percent-encoded, without what a proxy has put before it."""
    raw: bytes = request.scope.get("raw_path") or request.url.path.encode()
    return raw.decode("latin-1").partition("?")[0].removeprefix(request.scope.get("root_path", ""))


async def _content(request: Request, takes: str) -> bytes:
    """The body of a request, of the type that its route takes."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    most = MOST_BODY if takes == routes.JSON else MOST_OF_ARROW
    content = bytearray()
    async for piece in request.stream():
        content += piece
        if len(content) > most:
            raise ApiError("too_large", f"a body has at most {most:,} bytes")
    if content and kind != takes:
        raise ApiError("unsupported_media_type", f"a body is {takes}, not {kind[:80]!r}")
    return bytes(content)


def _object(content: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(content or b"{}")
    except (ValueError, RecursionError) as error:
        raise ApiError("bad_request", f"the body is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise ApiError("bad_request", "the body is a JSON object")
    return found


def _json(content: Any, status: int = 200) -> Response:
    return Response(routes.as_json(content), status, media_type=routes.JSON)
