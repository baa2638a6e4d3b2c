"""The API of Kubernetes, as far as a job needs it.

It has six verbs on objects of one namespace, and errors that say what to do.

It speaks HTTP itself. The official client is needed for the credentials of a kubeconfig alone (see
`config`): its generated calls differ from release to release, take 130 MB, and give no
hold on the socket of a watch.
"""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

from ...errors import JobError

Object = dict[str, Any]
"""An object of Kubernetes, as JSON has it."""

NO_ANSWER = 0
"""`ApiError.status` where no answer has come."""

_LIMIT = 30.0  # seconds that the server may take to say something; a watch, so long beyond its end
_TRANSIENT = {NO_ANSWER, 429, 500, 502, 503, 504}
_MERGE = "application/merge-patch+json"


class Resource(NamedTuple):
    """A kind of object: ``Resource("apps", "v1", "statefulsets")``.

    The group of the oldest ones is empty.
    """

    group: str
    version: str
    plural: str

    @property
    def api_version(self) -> str:
        """The ``apiVersion`` of objects."""
        return f"{self.group}/{self.version}" if self.group else self.version


PODS = Resource("", "v1", "pods")
EVENTS = Resource("", "v1", "events")
SECRETS = Resource("", "v1", "secrets")


class Server(NamedTuple):
    """The address of the API, and the credentials for it.

    Attributes:
        url: ``https://host:port``, and maybe a path.
        headers: Gives the headers with the credentials; asked before each request, as tokens
            expire.
        ca_file: Certificates of those who signed that of the server; None for those of the system.
        cert_file: Our certificate, if that is how it knows us.
        key_file: Its key.
        verify: Whether the server has to prove who it is.
        name: What its certificate calls it, if not the host of the URL.
        proxy: URL of the HTTP proxy on the way to it.
    """

    url: str
    headers: Callable[[], Mapping[str, str]]
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    verify: bool = True
    name: str | None = None
    proxy: str | None = None


class ApiError(JobError):
    """The server has refused a request, or none could be reached.

    Args:
        text: The cause, and the remedy.
        status: As HTTP has it; `NO_ANSWER` if there was none.
    """

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status

    @property
    def is_transient(self) -> bool:
        """True if the same request may succeed later."""
        return self.status in _TRANSIENT


class Api:
    """The objects of a namespace.

    All methods raise `ApiError`.

    Args:
        server: Where they are.
        namespace: Which.
    """

    def __init__(self, server: Server, namespace: str) -> None:
        self._server = server
        self._namespace = namespace

    def get(self, resource: Resource, name: str) -> Object | None:
        """Return an object; None if there is none."""
        try:
            return self._ask("get", "GET", resource, name)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def list(self, resource: Resource, **query: str) -> Object:
        """Return the list of those that a `labelSelector` or a `fieldSelector` matches."""
        return self._ask("list", "GET", resource, query=query)

    def watch(
        self, resource: Resource, version: str, seconds: int, **query: str
    ) -> Iterator[tuple[str, Object]]:
        """Watch matching objects for some seconds, from a version of their list on.

        It yields pairs of ``"ADDED"``, ``"MODIFIED"``, ``"DELETED"`` or ``"BOOKMARK"``, and
        the object. If the version is too old, the error has status 410.
        """
        query = {**query, "watch": "1", "resourceVersion": version, "allowWatchBookmarks": "true"}
        query["timeoutSeconds"] = str(seconds)
        connection, answer = self._request(
            "watch", "GET", resource, query=query, limit=seconds + _LIMIT
        )
        try:
            while line := self._read(answer.readline):
                event = self._parse(line)
                if event["type"] == "ERROR":
                    status = event["object"]
                    raise ApiError(
                        f"watch of {resource.plural}: {status.get('message')}",
                        status.get("code", 500),
                    )
                yield event["type"], event["object"]
        finally:
            answer.close()
            connection.close()

    def create(self, resource: Resource, content: Object) -> Object:
        """Make an object; if there is one of that name, the error has status 409."""
        return self._ask("create", "POST", resource, body=content)

    def patch(self, resource: Resource, name: str, content: Object) -> Object:
        """Merge something into an object."""
        return self._ask("patch", "PATCH", resource, name, body=content)

    def delete(self, resource: Resource, name: str, **query: str) -> None:
        """Delete an object, and in the background what belongs to it.

        Without effect if there is none.
        """
        try:
            query = {"propagationPolicy": "Background", **query}
            self._ask("delete", "DELETE", resource, name, query=query)
        except ApiError as error:
            if error.status != 404:
                raise

    def log(self, pod: str, container: str, lines: int, previous: bool) -> str:
        """Return the last lines that a container has printed.

        `previous` asks for those of the run before.
        """
        query = {"container": container, "tailLines": str(lines), "previous": str(previous).lower()}
        connection, answer = self._request("get", "GET", PODS, f"{pod}/log", query=query)
        with closing(connection):
            return str(self._read(answer.read).decode(errors="replace"))

    def _ask(self, *what: Any, **more: Any) -> Object:
        connection, answer = self._request(*what, **more)
        with closing(connection):
            return self._parse(self._read(answer.read))

    def _request(
        self,
        verb: str,
        method: str,
        resource: Resource,
        name: str = "",
        *,
        query: Mapping[str, str] | None = None,
        body: Object | None = None,
        limit: float = _LIMIT,
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        root = f"/apis/{resource.group}" if resource.group else "/api"
        path = f"{urlsplit(self._server.url).path.rstrip('/')}{root}/{resource.version}/namespaces/{self._namespace}/{resource.plural}"
        path += (f"/{name}" if name else "") + (f"?{urlencode(query)}" if query else "")
        headers = {**self._server.headers(), "Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = _MERGE if method == "PATCH" else "application/json"
        try:
            connection = _connection(self._server, limit)
        except OSError as error:  # a file with a certificate
            raise ApiError(f"credentials for {self._server.url}: {error}", 401) from error
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            if answer.status >= 400:
                raise self._refusal(answer, verb, resource, name)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise self._no_answer(error) from error
        except BaseException:
            connection.close()
            raise
        return connection, answer

    def _read(self, read: Callable[[], bytes]) -> bytes:
        try:
            return read()
        except (OSError, http.client.HTTPException) as error:
            raise self._no_answer(error) from error

    def _parse(self, data: bytes) -> Object:
        try:
            found: Object = json.loads(data)
        except ValueError as error:  # it is cut off
            raise self._no_answer(error) from error
        return found

    def _no_answer(self, error: Exception) -> ApiError:
        return ApiError(
            f"the API of Kubernetes at {self._server.url} can't be reached: {error}",
            # who it is does not change by itself
            401 if isinstance(error, ssl.SSLError) else NO_ANSWER,
        )

    def _refusal(
        self, answer: http.client.HTTPResponse, verb: str, resource: Resource, name: str
    ) -> ApiError:
        text = answer.read().decode(errors="replace")
        try:
            said = json.loads(text)["message"]
        except (ValueError, KeyError, TypeError):
            said = text.strip() or answer.reason
        what = (
            f"{verb} {resource.plural}{f' {name!r}' if name else ''} in namespace"
            f" {self._namespace!r}"
        )
        if answer.status == 401:
            said = (
                f"{self._server.url} does not accept the credentials ({said}): the token has"
                " expired, or the kubeconfig is of another cluster; `kubectl auth whoami` tries"
                " them"
            )
        elif answer.status == 403:
            part = f"{resource.plural}/{name.partition('/')[2]}" if "/" in name else resource.plural
            said += (
                f". A Role must allow it: apiGroups: [{json.dumps(resource.group)}], resources:"
                f" [{part}], verbs: [{verb}]"
            )
        return ApiError(f"{what}: {said}", answer.status)


class _Tls(http.client.HTTPSConnection):
    """TLS to a server that may present a certificate for another name."""

    def __init__(
        self, host: str, port: int, limit: float, context: ssl.SSLContext, name: str
    ) -> None:
        super().__init__(host, port, timeout=limit, context=context)
        self._tls, self._name = context, name

    def connect(self) -> None:
        http.client.HTTPConnection.connect(self)
        self.sock = self._tls.wrap_socket(self.sock, server_hostname=self._name)


def _connection(server: Server, limit: float) -> http.client.HTTPConnection:
    url = urlsplit(server.url)
    host, port = url.hostname or "", url.port or (443 if url.scheme == "https" else 80)
    way = urlsplit(server.proxy) if server.proxy else None
    first = (host, port) if way is None else (way.hostname or "", way.port or 80)
    connection: http.client.HTTPConnection
    if url.scheme == "https":
        connection = _Tls(*first, limit, _context(server), server.name or host)
    else:
        connection = http.client.HTTPConnection(*first, timeout=limit)
    if way is not None:
        connection.set_tunnel(host, port)
    return connection


def _context(server: Server) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=server.ca_file)
    if not server.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if server.cert_file:
        context.load_cert_chain(server.cert_file, server.key_file)
    return context
