"""The terminal dashboard, ``monarch tui``.

It speaks the admin interface of a program over HTTP, and imports no engine.

`http` asks. `sources` are what screens show: each is kept current by a thread of `feed`, while a
screen of it is looked at. A screen (`now`, `ranks`, `stacks`, `waits`, `logs`, `failures`, `tree`,
`sql`) makes lines of its source, and a `listing` draws those that are in sight. Text of the program
is made harmless there (`text.plain`), and nowhere else. `app` puts it together; `health` is
``--diagnose``.

Read `app`, then `sources` and `now`.

Imports `logs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy_names

if TYPE_CHECKING:
    from .app import run
    from .health import diagnose
    from .http import Access, open_access

__getattr__, __dir__ = lazy_names(
    __name__, {"app": ("run",), "health": ("diagnose",), "http": ("Access", "open_access")}
)

__all__ = ["Access", "diagnose", "open_access", "run"]
