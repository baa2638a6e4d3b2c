"""The routes of the dashboard's own files.

What its pages show they ask for by the other routes, as everybody does.
"""

from __future__ import annotations

from .. import dashboard
from .program import WatchedProgram
from .routes import ApiCall, ApiError, Page, route


@route("GET", "/", seconds=0, answers="text/html")
def _front(call: ApiCall) -> Page:
    """The dashboard: where a link of `monarch dashboard` leads."""
    return front(call.program)


@route("GET", "/assets/{name}", seconds=0, answers="text/plain")
def _asset(call: ApiCall) -> Page:
    """A file of the dashboard."""
    return _file(call.path["name"])


def front(program: WatchedProgram) -> Page:
    """The page that shows the dashboard; what it asks for first is looked for meanwhile."""
    program.expect()
    return _file("index.html")


def _file(name: str) -> Page:
    try:
        return Page(dashboard.content(name), dashboard.MEDIA[name])
    except KeyError:
        raise ApiError("not_found", f"the dashboard has no file {name[:80]!r}") from None
