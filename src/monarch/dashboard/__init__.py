"""The files of the dashboard's pages, as built from `dashboard/web`.

The admin interface (`admin.front`) serves them, and answers the requests of the pages.

This package only reads files. It knows nothing of a program.

Imports no other package of `monarch`.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

_STATIC = Path(__file__).parent / "static"

RECORDED = Path(__file__).with_name("recorded.duckdb.xz")
"""The file of a simulated run, which ``monarch demo`` shows. ``python -m benchmarks.demo --record``
writes it, from the root of the repository.
"""

MEDIA = {
    "index.html": "text/html; charset=utf-8",
    "app.js": "text/javascript; charset=utf-8",
    "app.css": "text/css; charset=utf-8",
    **dict.fromkeys(("icon.svg", "good.svg", "late.svg", "bad.svg"), "image/svg+xml"),
    "licenses.txt": "text/plain; charset=utf-8",
}
"""The files that are served, and their types."""


@cache
def content(name: str) -> bytes:
    """Return the content of a file.

    Args:
        name: One of `MEDIA`.

    Raises:
        KeyError: It is none of those.
    """
    if name not in MEDIA:
        raise KeyError(name)
    return (_STATIC / name).read_bytes()
