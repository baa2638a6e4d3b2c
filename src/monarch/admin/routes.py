"""The table of HTTP routes of the admin interface, and the types of a route, a call and an answer.

Modules such as `api`, `logs` and `v1` add their handlers with `route`. `app` serves from the table;
the OpenAPI document and the tests of security are made from it.

A handler is a function of a `ApiCall`. It runs on a thread, asks the program, and returns what `json`
takes, or a `Page`, or `Events`. An `ApiError` that it raises is the answer; `app` turns the
program's own errors into answers, too.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import unquote

from .. import config
from .._namedtuple import NamedTuple
from .keys import VIEW

if TYPE_CHECKING:
    from .feeds import Feed
    from .program import WatchedProgram

NO_ROLE = ""
"""In place of a role: this route needs none."""

STATUS = {
    "bad_request": 400, "unauthorized": 401, "forbidden": 403, "not_found": 404,
    "method_not_allowed": 405, "request_timeout": 408, "conflict": 409, "too_large": 413,
    "unsupported_media_type": 415, "wrong_host": 421, "internal_error": 500, "proxy_error": 500,
    "profile_failed": 500, "profile_output_unusable": 500, "not_implemented": 501,
    "service_unavailable": 503, "gateway_timeout": 504,
}  # fmt: skip
"""Codes of errors, and the status of the answer."""


class ApiError(Exception):
    """An answer that is an error.

    Args:
        code: One of `STATUS`.
        message: For people, in one sentence.
        details: For programs.
    """

    def __init__(self, code: str, message: str, details: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.details = details

    def __reduce__(self) -> tuple[Any, ...]:
        return ApiError, (self.code, str(self), self.details)

    def to_json(self, path: str) -> dict[str, Any]:
        """Return what the body says.

        Args:
            path: Of the request: below ``/api/`` an error is a text, as Monarch 0.7 has it
                there.
        """
        if path.startswith("/api/"):
            return {"error": str(self), "code": self.code}
        found = {"code": self.code, "message": str(self)}
        return {"error": found if self.details is None else {**found, "details": self.details}}


class Page(NamedTuple):
    """An answer that is no JSON.

    Attributes:
        body: Its text or bytes, or a file that is read from its begin and closed.
        media: Its type.
    """

    body: str | bytes | IO[bytes]
    media: str = "text/plain; charset=utf-8"


class Events(NamedTuple):
    """An answer that goes on: server-sent events.

    Attributes:
        feed: Where they come from.
    """

    feed: Feed


class LoginLink(NamedTuple):
    """An answer that lets a user in.

    Attributes:
        code: That was part of the link.
    """

    code: str


class ApiCall(NamedTuple):
    """A request.

    Attributes:
        program: The program that is looked at.
        path: Segments of the path, by the names in braces.
        query: Parameters of the query, the last one of a name.
        body: The JSON that was sent; empty for a GET.
        base: The URL of this server, as the one who asks has it.
        role: Of the requester.
        accept: Types of the answer that are taken, as the header has them.
        place: Where a stream goes on that was cut off; see `feeds.Event`.
        abandoned: Set when the answer is not waited for any more.
        content: The body as it was sent, where the route takes no JSON.
    """

    program: WatchedProgram
    path: Mapping[str, str]
    query: Mapping[str, str]
    body: Mapping[str, Any]
    base: str
    role: str
    accept: str = ""
    place: str = ""
    abandoned: threading.Event | None = None
    content: bytes = b""

    def number(self, name: str, default: float, low: float, high: float) -> float:
        """A number from the body, or the query.

        Raises:
            ApiError: It is none, or out of bounds.
        """
        given = self.body.get(name, self.query.get(name, default))
        try:
            found = float(given) if not isinstance(given, bool) else float("nan")
        except (TypeError, ValueError, OverflowError):  # of an integer with hundreds of digits
            found = float("nan")
        if not low <= found <= high:
            raise ApiError(
                "bad_request",
                f"{name} is a number from {low:g} to {high:g}, not {str(given)[:80]!r}",
            )
        return found

    def integer(self, name: str, default: int, low: float, high: float) -> int:
        """Return a whole number that was given, or its default."""
        found = self.number(name, default, low, high)
        if found != int(found):
            raise ApiError("bad_request", f"{name} is a whole number, not {found:g}")
        return int(found)

    def flag(self, name: str, default: bool = False) -> bool:
        """A boolean from the body; from the query ``true`` or ``1``.

        Raises:
            ApiError: It is none.
        """
        given = self.body.get(name, self.query.get(name, default))
        yes, no = ("true", "1", "", True), ("false", "0", False)
        if not isinstance(given, (str, bool)) or given not in (*yes, *no):
            raise ApiError("bad_request", f"{name} is true or false, not {given!r}")
        return given in yes

    def text(self, name: str, default: str | None = None) -> str:
        """A text from the body, or the query.

        Raises:
            ApiError: It is none, or missing.
        """
        given = self.body.get(name, self.query.get(name, default))
        if not isinstance(given, str):
            raise ApiError(
                "bad_request",
                f"{name!r} is missing" if given is None else f"{name} is a text, not {given!r}",
            )
        return given


Handler = Callable[[ApiCall], Any]


class Field(NamedTuple):
    """Something that a request may carry.

    Attributes:
        kind: ``string``, ``number``, ``integer`` or ``boolean``, as JSON Schema has it.
        about: What it means.
        required: Whether it must be there.
    """

    kind: str
    about: str
    required: bool = False


class Route(NamedTuple):
    """A row of the table.

    Attributes:
        method: GET, or POST for what does something or takes a body. A GET answers a HEAD as well.
        path: With names in braces; each stands for one segment, percent-encoded by the requester.
        role: That is needed.
        handler: What answers.
        about: What it is for, in one sentence.
        answers: Media type of the answer.
        fields: What the query may say, or the body of a POST.
        seconds: After which the answer is an error, its time in the queue included; or the key of
            the configuration that says so. 0: it asks no process, and needs no place in the queue.
        reads: Whether it reads files alone, and so does not wait in the queue of those that ask the
            program.
        takes: Media type of the body of a POST.
        sql: Whether the handler asks in SQL: a child process computes it.
    """

    method: str
    path: str
    role: str
    handler: Handler
    about: str
    answers: str
    fields: Mapping[str, Field]
    seconds: float | str
    reads: bool = False
    takes: str = "application/json"
    sql: bool = False

    @property
    def segments(self) -> list[str]:
        """The segments of its path."""
        return self.path[1:].split("/")

    @property
    def asks(self) -> bool:
        """True if the route asks processes of the program, or reads files."""
        return self.seconds != 0

    @property
    def limit(self) -> float:
        """Seconds after which the answer is an error."""
        return float(config.value(self.seconds)) if isinstance(self.seconds, str) else self.seconds

    @property
    def names(self) -> list[str]:
        """The names in braces."""
        return [each[1:-1] for each in self.segments if each[:1] == "{"]


ROUTES: list[Route] = []
"""All routes; those that come first win."""

JSON, TEXT, EVENTS = "application/json", "text/plain", "text/event-stream"


def route(
    method: str,
    path: str,
    *,
    role: str = VIEW,
    answers: str = JSON,
    seconds: float | str = 15.0,
    fields: Mapping[str, Field] = MappingProxyType({}),
    reads: bool = False,
    takes: str = JSON,
    sql: bool = False,
) -> Callable[[Handler], Handler]:
    """Add a handler to the table; its docstring says what the route is for.

    For the arguments see `Route`.
    """

    def add(handler: Handler) -> Handler:
        about = " ".join((handler.__doc__ or "").split())
        ROUTES.append(
            Route(method, path, role, handler, about, answers, fields, seconds, reads, takes, sql)
        )
        return handler

    return add


def as_json(content: Any) -> bytes:
    """An answer as it is sent."""
    text = json.dumps(content, separators=(",", ":"), default=str)
    return text.encode(errors="replace")


def find(raw_path: str) -> tuple[list[Route], dict[str, str]]:
    """The routes of a path, and what it has in the place of names.

    Args:
        raw_path: As it was sent: percent-encoded.
    """
    segments = raw_path[1:].split("/")
    for each in ROUTES:
        found = _match(each.segments, segments)
        if found is not None:
            return [other for other in ROUTES if other.path == each.path], found
    return [], {}


def methods(routes: Sequence[Route]) -> Iterator[str]:
    """The methods of the routes of one path; all others are refused."""
    for each in routes:
        yield each.method
        if each.method == "GET":
            yield "HEAD"


def _match(pattern: Sequence[str], segments: Sequence[str]) -> dict[str, str] | None:
    if len(pattern) != len(segments):
        return None
    found = {}
    for want, given in zip(pattern, segments, strict=True):
        if want[:1] == "{":
            if not given:
                return None
            found[want[1:-1]] = unquote(given)
        elif want != given:
            return None
    return found
