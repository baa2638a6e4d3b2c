"""The code of a new interpreter that becomes a process of ours.

``python -c`` and ``python -m`` look for modules in the working directory first, those of the standard
library among them. Other users may have put some there, which would run as this user, with all that
the process knows.
"""

from __future__ import annotations

from collections.abc import Sequence

NOT_FROM_HERE = "import sys; '' in sys.path[:1] and sys.path.pop(0); "
"""For the begin of what follows ``-c``: nothing is imported from the working directory."""

MAIN = NOT_FROM_HERE + "from {} import main; main()"
"""Has the `main` of a module run."""


def started_elsewhere(args: Sequence[str]) -> list[str]:
    """The arguments of an interpreter, where ``-m`` and a module of ours is `MAIN` of that."""
    is_ours = len(args) == 2 and args[0] == "-m" and args[1].startswith("monarch.")
    return ["-c", MAIN.format(args[1])] if is_ours else [*args]
