"""Questions to an admin interface over HTTP: one connection for each, closed afterwards."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import parse_qs, quote, urlencode, urlsplit

from .._namedtuple import NamedTuple
from .._own_address import is_loopback
from ..errors import MonarchError

PATIENCE = 60.0
"""Seconds without a byte after which an answer is given up; routes answer within this."""
SILENCE = 40.0
"""Seconds without an event after which a stream is broken: the server sends one every 5 s."""

FAILURES = (MonarchError, OSError, http.client.HTTPException, ValueError)
"""What a question may raise: refused, no connection, cut off, no JSON."""


Query = Mapping[str, str | int]


class AdminError(MonarchError):
    """An answer that is an error.

    Args:
        code: As docs/admin.md has them; ``http`` where a proxy answers.
        message: For people.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Access(NamedTuple):
    """How to get in.

    Attributes:
        url: Of the server, with the path under which a proxy has it.
        headers: That let in.
        context: For TLS.
    """

    url: str
    headers: Mapping[str, str]
    context: ssl.SSLContext | None = None


class Line:
    """Asks one thing at a time. Another thread may end that: `close`.

    Args:
        access: Whom.
    """

    def __init__(self, access: Access) -> None:
        self._access = access
        self._socket: socket.socket | None = None
        self._closed = False

    def get(self, path: str, **query: str | int) -> Any:
        """The JSON of an answer.

        Raises:
            AdminError: It is refused, or no JSON: a proxy answers.
            OSError: There is no connection. See `FAILURES`.
        """
        with self._asked(path, query) as answer:
            return _json(answer)

    def text(self, path: str) -> str:
        """GET a text and return it."""
        with self._asked(path, {}) as answer:
            return _content(answer, "text/plain").decode(errors="replace")

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """POST JSON and return the decoded response."""
        with self._asked(path, {}, json.dumps(body).encode()) as answer:
            return _json(answer)

    def node(self, reference: str) -> Any:
        """The payload of a node of the tree."""
        return self.get(f"/v1/{quote(reference, safe='')}")

    def events(self, path: str, **query: str | int) -> Iterator[tuple[str, Any]]:
        """Server-sent events as they come: name and data. An empty name: the server is still there.

        Raises:
            AdminError: The program has ended, or can't be looked at.
            ConnectionError: They have an end.
        """
        with self._asked(path, query, patience=SILENCE) as answer:
            name = ""
            for line in answer:
                if line.startswith(b"event: "):
                    name = line[7:].strip().decode()
                elif line.startswith(b"data: "):
                    data = json.loads(line[6:])
                    if name in ("error", "end"):
                        raise AdminError(name, data["message"])
                    yield (name, data) if name != "beat" else ("", None)
                elif line.startswith(b":"):
                    yield "", None
        raise ConnectionError("the server has closed the connection")

    def close(self) -> None:
        """End the pending request, and refuse further ones; from any thread."""
        self._closed = True
        sock = self._socket
        if sock is not None:
            with suppress(OSError):  # it has ended by itself
                # of TLS, too: its own says good-bye, which may block
                socket.socket.shutdown(sock, socket.SHUT_RDWR)

    @contextmanager
    def _asked(
        self, path: str, query: Query, body: bytes | None = None, patience: float = PATIENCE
    ) -> Iterator[http.client.HTTPResponse]:
        connection = _connect(self._access, patience)
        try:
            with _without_tls_told(self._access):
                connection.connect()
            self._socket = connection.sock
            if self._closed:
                raise ConnectionError("it is over")
            method, kind = "GET", {}
            if body is not None:
                method, kind = "POST", {"Content-Type": "application/json"}
            headers = {**self._access.headers, **kind, "Connection": "close"}
            where = urlsplit(self._access.url).path + path
            where += f"?{urlencode(query)}" if query else ""
            connection.request(method, where, body, headers)
            with connection.getresponse() as answer:
                if answer.status >= 300:
                    raise _error(answer)
                yield answer
        finally:
            self._socket = None
            connection.close()


def open_access(
    address: str,
    token: str = "",
    *,
    port: int = 1729,
    context: ssl.SSLContext | None = None,
    plaintext: bool = False,
) -> Access:
    """The way to a server by what a person types.

    Args:
        address: A URL; ``host`` or ``host:port``; or a link that `monarch admin` prints, which is
            used up.
        token: That `monarch admin --token` prints.
        port: Where the address names none, and is no URL.
        context: For TLS; with one, an address without a scheme means https.
        plaintext: Send the token to other machines without TLS as well.

    Raises:
        ValueError: The address is none; or the token would go to another machine without TLS.
        AdminError: The link was used.
        OSError: Nothing listens there.
    """
    url = address
    if "://" not in address:
        url = f"{'https' if context and not plaintext else 'http'}://{address}"
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(
            "an address is host:port, a URL, or a link that `monarch admin` prints, not"
            f" {address!r}"
        )
    if "://" not in address and parts.port is None:
        parts = parts._replace(netloc=f"{parts.netloc}:{port}")
    if parts.scheme == "http" and not plaintext and not is_loopback(str(parts.hostname)):
        raise ValueError(
            f"a token would go to {parts.hostname} without TLS: give an https URL, forward the port"
            " by ssh -L, or say --plaintext where the network may read it"
        )
    path = parts.path.removesuffix("/")
    code = parse_qs(parts.query).get("code", [""])[0] if path.endswith("/login") else ""
    base = f"{parts.scheme}://{parts.netloc}{path.removesuffix('/login') if code else path}"
    if code:
        answer = Line(Access(base, {}, context)).post(f"/login?{urlencode({'code': code})}", {})
        return Access(base, {"X-Monarch-Session": str(answer["session"])}, context)
    if not token:
        raise ValueError(
            "a token is needed: MONARCH_ADMIN_TOKEN=$(monarch admin --token), or give the link that"
            " `monarch admin` prints"
        )
    return Access(base, {"Authorization": f"Bearer {token}"}, context)


def _connect(access: Access, patience: float) -> http.client.HTTPConnection:
    """A connection, of which nothing is open yet."""
    parts = urlsplit(access.url)
    host = parts.hostname or ""
    if parts.scheme == "https":
        return http.client.HTTPSConnection(
            host, parts.port, timeout=patience, context=access.context
        )
    return http.client.HTTPConnection(host, parts.port, timeout=patience)


@contextmanager
def _without_tls_told(access: Access) -> Iterator[None]:
    """Say in a line why there is no TLS."""
    where = urlsplit(access.url).netloc
    try:
        yield
    except ssl.SSLCertVerificationError as error:
        why = (
            f"the certificate of {where} is not trusted: {error.verify_message}; --tls-ca names who"
            " has signed it"
        )
        raise ConnectionError(why) from None
    except ssl.SSLError as error:
        why = (error.reason or str(error)).replace("_", " ").lower()
        raise ConnectionError(
            f"{where} does not speak TLS as this does: {why}; is it an http URL?"
        ) from None


def told(error: Exception) -> str:
    """Return the text about a failed question, for people."""
    return str(error) or type(error).__name__ if isinstance(error, FAILURES) else unreadable(error)


def unreadable(error: Exception) -> str:
    """Say in words that an answer is of another version, or of no admin interface at all."""
    return f"an answer that this version can't read: {error!r}"


def _json(answer: http.client.HTTPResponse) -> Any:
    return json.loads(_content(answer, "application/json"))


def _content(answer: http.client.HTTPResponse, wanted: str) -> bytes:
    kind = answer.headers.get_content_type()
    if kind != wanted:
        raise AdminError(
            "http", f"the server answers with {kind}, not {wanted}, as no admin interface does"
        )
    return answer.read()


def _error(answer: http.client.HTTPResponse) -> AdminError:
    try:
        error = json.loads(answer.read())["error"]
        return AdminError(str(error["code"]), str(error["message"]))
    except (ValueError, KeyError, TypeError):
        return AdminError(
            "http",
            f"the server answers {answer.status} {answer.reason}, as no admin interface does",
        )
