"""The code of a new interpreter that becomes a process of ours.

``python -c`` and ``python -m`` look for modules in the working directory first, those of the standard
library among them. Other users may have put some there, which would run as this user, with all that
the process knows.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

_NOT_FROM_HERE = "import sys; '' in sys.path[:1] and sys.path.pop(0); "
_PLACE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

MAIN = _NOT_FROM_HERE + "from {} import main; main()"
"""For ``-c``: has the `main` of a module run."""


def main_of(module: str, first: str = "") -> str:
    """As `MAIN`; this package is found where this process has found it.

    Args:
        module: Of this package.
        first: Statements that come before its import.
    """
    return f"{_NOT_FROM_HERE}{first}sys.path.append({_PLACE!r}); from {module} import main; main()"


def started_elsewhere(args: Sequence[str]) -> list[str]:
    """The arguments of an interpreter, where ``-m`` and a module of ours is `MAIN` of that."""
    is_ours = len(args) == 2 and args[0] == "-m" and args[1].startswith("monarch.")
    return ["-c", MAIN.format(args[1])] if is_ours else [*args]
