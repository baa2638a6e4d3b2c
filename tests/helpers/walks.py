"""The troubles of the walk in docs/hangs.md, and what is to be seen of each."""

from __future__ import annotations

import re

WALKS = {
    "missing-collective": ("Stuck", "trainers[10]", "recv_into (data.py:31)"),
    "straggler": ("Slow", "trainers[10]", "slower than the others by"),
    "lost-rank": ("Stuck", "without trainers[10]", "exited with non-zero code 3"),
    "dead-rank": ("Stuck", "without trainers[10]", "had used all of the 236,223 MB that it may have"),
    "silent-host": ("Stuck", "host tcp://10.0.0.2:26600", "does not answer"),
}
"""Of each trouble what the first action has to show: a hang, a straggler, a lost rank, memory that
ran out, a failed host. The sixth, a job that waits for its hosts, has no program yet:
`monarch status`, in test_slurm_job.py.
"""


def plain(text: str) -> str:
    """A text without the ends of lines at which it was folded."""
    return re.sub(r"\s+", " ", text)
