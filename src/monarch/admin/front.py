"""The routes of the dashboard's own files, and the login.

The files are the same for everybody, and tell nothing of the program: a browser without a session
gets them, too. The pages get their data by the other routes, as any client does.
"""

from __future__ import annotations

from .. import dashboard
from .routes import NO_ROLE, ApiCall, ApiError, Field, LoginLink, Page, route

_CODE = {"code": Field("string", "Of the link", required=True)}


@route("GET", "/", role=NO_ROLE, seconds=0, answers="text/html")
def _front(call: ApiCall) -> Page:
    """The dashboard."""
    return _file("index.html")


@route("GET", "/login", role=NO_ROLE, seconds=0, answers="text/html", fields=_CODE)
def _login_page(call: ApiCall) -> Page:
    """The dashboard, which exchanges the link that has led to it.

    `monarch admin` and `monarch dashboard` print links.
    """
    return _file("index.html")


@route("POST", "/login", role=NO_ROLE, seconds=0, fields=_CODE)
def _login(call: ApiCall) -> LoginLink:
    """Exchange a link, once, for a session, to be sent as the header `X-Monarch-Session`."""
    return LoginLink(call.query.get("code", ""))


@route("GET", "/assets/{name}", role=NO_ROLE, seconds=0, answers="text/plain")
def _asset(call: ApiCall) -> Page:
    """A file of the dashboard."""
    return _file(call.path["name"])


def _file(name: str) -> Page:
    try:
        return Page(dashboard.content(name), dashboard.MEDIA[name])
    except KeyError:
        raise ApiError("not_found", f"the dashboard has no file {name[:80]!r}") from None
