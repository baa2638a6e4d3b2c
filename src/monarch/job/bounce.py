"""New workers in the place of those that run, on the same hosts, in the same allocation.

This is the command `monarch bounce`.

A worker that is told so starts its program anew when it has been shut down, as the same process:
with the same address, owner and lifeline, however it was started. Processes there end; code and
settings are read anew. Folders that were synced are synced before that, while the old workers run,
and the new ones are told.

What ends the waits: the answer of each host, or its loss; the end of each shutdown, which is
bounded; `_UP_WITHIN` for the new ones.
"""

from __future__ import annotations

import time

from ..errors import JobError, MonarchError
from ..programs import PATIENCE, StartAgain, ask_agents
from ..sync import Workspace
from .base.code import Synchronizer
from .base.trait import JobTrait
from .base.worker_spec import START_AGAIN
from .overview import addresses_of

_UP_WITHIN = 60.0  # seconds
_AGAIN = 0.2  # seconds


def bounce(job: JobTrait) -> int:
    """Have all workers of a running job start anew. Programs that use it see their hosts shut down.

    Args:
        job: It runs, and this program is not attached to it.

    Returns:
        The number of workers.

    Raises:
        JobError: One of them does not know how to, and nothing was changed; or did not come up
            again.
        NotADirectoryError: A folder that was synced is gone; nothing was changed.
        SupervisionError: One is lost.
        SyncError: One of those that run did not get the folders that were synced before; nothing
            was changed.
    """
    workspace = None if job._workspace is None else Workspace.of(job._workspace)
    meshes = job.state(None)._hosts
    if workspace is not None:
        Synchronizer(job, meshes, workspace).sync()
    addresses = [address for hosts in meshes.values() for address in addresses_of(hosts)]
    for sure in (False, True):
        answers = ask_agents(addresses, StartAgain(START_AGAIN, sure))
        for address, answer in zip(addresses, answers, strict=True):
            if not answer.get(timeout=PATIENCE):
                raise JobError(
                    f"the worker on {address} was not started by a job: end it and start another by"
                    " hand"
                )
    for ended in [hosts.shutdown() for hosts in meshes.values()]:
        ended.get()
    _wait_until_up(job, workspace)
    return len(addresses)


def _wait_until_up(job: JobTrait, workspace: Workspace | None) -> None:
    """Attach the new workers, and bring them a workspace.

    An early connection may still find the old one, in its last moments, and is tried again.
    """
    end = time.monotonic() + _UP_WITHIN
    while True:
        try:
            meshes = job.state(None)._hosts
            for hosts in meshes.values():
                hosts.initialized.get(timeout=max(_AGAIN, end - time.monotonic()))
            if workspace is not None:
                Synchronizer(job, meshes, workspace).sync()
            return
        except (MonarchError, RuntimeError, TimeoutError) as error:
            if time.monotonic() >= end:
                raise JobError(
                    f"{job!r} did not come up again: {str(error).strip() or 'no answer'}"
                ) from error
        time.sleep(_AGAIN)
