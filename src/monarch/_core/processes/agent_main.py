"""The first code of the host agent's process: forks the spawner, while there is no thread yet.

Both then import what only they need, at the same time on two cores. So nothing but what both need
may be imported above `main`.
"""

from __future__ import annotations

import gc
import os
import pickle
import select
import sys

from ..._guards.surroundings import explained
from ..._title import set_title

# with which both serve; it brings most of what either needs
from ..hub import message_hub as message_hub
from ..net import unix
from ..wire import picklers as picklers
from . import spawner
from .control import control_pair
from .specs import AgentSpec

_MOMENT = 0.001  # seconds


def main() -> None:
    """Entry of the process; its one argument is a descriptor to read its `AgentSpec` from."""
    _open_standard_streams()
    with os.fdopen(int(sys.argv[1]), "rb") as file:
        own: AgentSpec = pickle.load(file)
    if not _is_wanted(own):
        unix.release_all(own.local_host)
        return
    here, there = control_pair()
    this = os.getpid()
    try:
        spawner_pid = os.fork()
    except OSError as error:
        raise SystemExit(
            f"monarch: {explained(error, 'the process that forks its procs')}"
        ) from None
    if spawner_pid:
        there.close()
        set_title("monarch agent")
        from . import agent_run

        # imported modules stay: the first collection would look at all of them, for 5 ms
        gc.freeze()
        gc.enable()  # see `start_agent`
        agent_run.run(own, here, spawner_pid)
        return
    here.close()
    inherited = own.channel.listening.fd if own.channel is not None else -1
    for fd in (own.listener, own.report, inherited):
        if fd >= 0:
            os.close(fd)
    spawner.die_with_parent(this)
    set_title("monarch spawner")
    from . import proc

    forks = spawner.Spawner(there, own.local_host, own.preload, own.parent_fd)
    spec = forks.serve()
    there.close()
    if spec is not None:
        proc.run_forked(spec, forks.inherited)


def _is_wanted(own: AgentSpec) -> bool:
    """Wait until the listener listens; False if the process that starts this one ends before."""
    while not unix.listens(own.listener):
        if select.select([own.parent_fd], [], [], _MOMENT)[0]:
            return False
    return True


def _open_standard_streams() -> None:
    """Hand on no missing stdin, stdout or stderr: no other descriptor may get their numbers."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
