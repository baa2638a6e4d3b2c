"""The pages of the dashboard: what `dashboard/web` is built into.

The admin interface serves them, and answers what they ask.

Nothing here knows of a program: it is files.

Imports no other package of `monarch`.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

_STATIC = Path(__file__).parent / "static"

MEDIA = {
    "index.html": "text/html; charset=utf-8",
    "app.js": "text/javascript; charset=utf-8",
    "app.css": "text/css; charset=utf-8",
    "icon.svg": "image/svg+xml",
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
