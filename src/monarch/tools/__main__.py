"""Starts the command; says what to install where its libraries are missing.

They are imported here and below only.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec

_LIBRARIES = ("typer", "rich")


def main() -> None:
    """Run the console script `monarch`."""
    missing = [name for name in _LIBRARIES if find_spec(name) is None]
    if missing:
        sys.exit(
            f"the command `monarch` needs {' and '.join(missing)}: pip install 'pymonarch[cli]'"
        )
    from . import cli  # needs the libraries that are checked above

    cli.main()


if __name__ == "__main__":
    main()
