"""The routes of the dashboard's own files.

What its pages show they ask for by the other routes, as everybody does.
"""

from __future__ import annotations

from .. import dashboard
from .routes import ApiError, Call, Page, route


@route("GET", "/", seconds=0, answers="text/html")
def _front(call: Call) -> Page:
    """The dashboard: where a link of `monarch dashboard` leads."""
    return _file("index.html")


@route("GET", "/assets/{name}", seconds=0, answers="text/plain")
def _asset(call: Call) -> Page:
    """A file of the dashboard."""
    return _file(call.path["name"])


def _file(name: str) -> Page:
    try:
        return Page(dashboard.content(name), dashboard.MEDIA[name])
    except KeyError:
        raise ApiError("not_found", f"the dashboard has no file {name[:80]!r}") from None
