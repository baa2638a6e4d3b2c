"""Access control: the checks of a request before anything answers it. Pure.

`Host` must be a name of this server, or a page of a stranger could reach it under a name of its own
(DNS rebinding). A request other than GET and HEAD must come from a page of this server, or from no
page at all. All but the dashboard's own files, which are the same for everybody, and the exchange
of a link needs a token, or the session that the link was exchanged for.

A page keeps the session itself, and sends it in a header. As a cookie, browsers would send it to
each server of this host, on any port: to those of other users as well.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from .keys import Keys
from .routes import ApiError

READS = ("GET", "HEAD")
METHODS = (*READS, "POST")
"""All that there are; a route takes one of them."""

HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""Of each answer, errors included."""


SESSION = "X-Monarch-Session"
"""The header. It is not `Authorization`, which a proxy may want for itself."""

_HOST = re.compile(r"(?:\[([0-9a-fA-F:.]+)\]|([0-9a-zA-Z._-]+))(?::[0-9]{1,5})?")


class Guard:
    """Looks at requests.

    Args:
        keys: What opens.
        names: Of this server, without ports.
    """

    def __init__(self, keys: Keys, names: Sequence[str]) -> None:
        self.keys = keys
        self._names = frozenset(name.lower() for name in names)

    def check_sender(self, method: str, headers: Mapping[str, str]) -> None:
        """Refuse a request with a foreign Host, an unknown method, or the Origin of another server.

        Args:
            method: In capitals.
            headers: By name, in lower case.

        Raises:
            ApiError: It is refused.
        """
        host = headers.get("host", "")
        if _name_of(host) not in self._names:
            raise ApiError(
                "wrong_host", f"this server has no name {host[:200]!r}; --host-name adds one"
            )
        if method not in METHODS:
            raise ApiError("method_not_allowed", f"there is no route for {method[:20]}")
        if method in READS:
            return
        origin = headers.get("origin")
        own = [f"{scheme}://{host}".lower() for scheme in ("http", "https")]
        if origin is not None and origin.lower() not in own:  # anything at all may stand there
            raise ApiError("forbidden", f"a page of {origin[:200]!r} may do nothing here")
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            raise ApiError("forbidden", "a page of another site may do nothing here")

    def role_of(self, headers: Mapping[str, str], now: float) -> str:
        """The role of the requester.

        Raises:
            ApiError: He has not said who he is.
        """
        role = self.keys.role_of_session(headers.get(SESSION.lower(), ""), now)
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if role is None and scheme.lower() == "bearer":
            role = self.keys.role_of_token(token.strip())
        if role is None:
            raise ApiError(
                "unauthorized",
                "a token is needed, or a link that was not used yet: `monarch admin` prints one",
            )
        return role


def _name_of(host: str) -> str:
    """Without the port; empty if it is none."""
    found = _HOST.fullmatch(host)
    return (found[1] or found[2]).lower() if found else ""
