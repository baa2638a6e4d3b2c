"""Secrets that hosts share, so that they let each other in and nobody else.

`write_secret_file` makes one for good, ``monarch secret`` does the same from a terminal;
`make_secret` gives the text, for MONARCH_SECRET. `attach_to_workers` and the worker loops of
`monarch.actor` say where they look for it; `read_secret_file` is for programs that look elsewhere.
"""

from __future__ import annotations

from ._core.net.secret import find_secret as find_secret
from ._core.net.secret import make_secret, read_secret_file, write_secret_file
from ._public import publish

__all__ = ["make_secret", "read_secret_file", "write_secret_file"]

publish(__name__, globals(), __all__)
