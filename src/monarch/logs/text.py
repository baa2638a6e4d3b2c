"""Lines of logs as text for people who read files.

With time and host, in the look that the client gives to lines.
"""

from __future__ import annotations

import logging
from datetime import datetime

from .._words import in_job, named
from .line import LogEntry
from .terminal import TerminalStyle


def dated(entry: LogEntry, colours: bool) -> str:
    """Return an entry as text, with time, host, mesh and ranks.

    Only its first line begins with the time.

    Args:
        entry: A line, or several that are alike.
        colours: Whether it goes to a terminal that shows colours.
    """
    line = entry.line
    time = datetime.fromtimestamp(line.time).isoformat(" ", "milliseconds")
    level = logging.getLevelName(line.level) if line.level else ""
    # most programs write it themselves
    text = entry.text if level in entry.text else f"{level}: {entry.text}"
    quoted = entry._replace(text=text)
    place = f"{time} {named(in_job(line.host))}"
    if colours:
        place = f"\x1b[2m{place}\x1b[0m"
    return f"{place} {TerminalStyle(colours, screen=True).render(quoted)}"
