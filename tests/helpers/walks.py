"""The troubles of the walk in docs/hangs.md, and what is to be seen of each."""

from __future__ import annotations

import re

WALKS = {
    "missing-collective": ("Stuck", "trainers[10]", "recv_into (data.py:31)"),
    "straggler": ("Slow", "trainers[10]", "slower than the others by"),
    "lost-rank": ("Stuck", "without trainers[10]", "code 3"),
    "dead-rank": (
        "Stuck",
        "without trainers[10]",
        "had used all of the 236,223 MB that it may have",
    ),
    "silent-host": ("Stuck", "host h1 (tcp://10.0.0.2:26600)", "does not answer"),
    "pending-job": (
        "Fine",
        "the client is in state (main.py:18)",
        "Slurm job 9: PENDING (Resources)",
    ),
}
"""Of each trouble what the first action has to show: a hang, a straggler, a lost rank, memory that
ran out, a failed host, a job that waits for its hosts.
"""

STATUS = {"Fine": 0, "Slow": 3, "Stuck": 4}
"""Exit statuses of `monarch why`."""


def plain(text: str) -> str:
    """A text without the ends of lines at which it was folded."""
    return re.sub(r"\s+", " ", text)
