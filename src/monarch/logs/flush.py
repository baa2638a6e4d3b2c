"""`flush_logs`: a program waits until all that its procs have printed is on screen and in files."""

from __future__ import annotations

from .._core import plane
from ..actor import Future


def flush_logs() -> Future[None]:
    """Flush the output of this program's procs, on every host, to the screen and to files.

    It covers all that they have printed and logged by now.

    `ProcMesh.flush_logs` does so for the hosts of one mesh. Neither is needed for lines printed
    before an answer, as they are shown before the program gets that; nor at the end of a program,
    of a mesh or of a cell of a notebook.

    Returns:
        A future that is done then. Where the output of this program is not read, that may be never:
        give `get` a time.

    Raises:
        RuntimeError: This is not the client, which shows the output.
    """
    return plane.flush_logs()
