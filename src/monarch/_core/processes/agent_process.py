"""Starting the host agent: as a child of the client, or of a worker, with which it ends."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from ... import config
from ..._child_watch import PR_SET_PDEATHSIG, Lifeline
from ..._guards.surroundings import explained, require_pidfd
from ..extension import in_every_proc
from ..net import unix
from ..wire.address import ProcAddress
from .specs import AgentSpec, write_spec

if TYPE_CHECKING:
    import subprocess

    from ..net.trust import Trust
    from ..wire.channel import Channel


def start_agent(
    address: ProcAddress,
    root: ProcAddress,
    channel: Channel | None = None,
    trust: Trust | None = None,
    report: int = -1,
    local_host: str = "",
    then: Callable[[], object] = lambda: None,
) -> subprocess.Popen[bytes]:
    """Start the agent of this host; it need not be up yet to be called.

    For the arguments see `AgentSpec`; `local_host` is by default that of `address`. `then` is called
    when it may be connected to; what that raises ends it.

    Raises:
        RuntimeError: The system does not allow what it needs; the text says what.
    """
    import subprocess  # only here: every proc imports this module, and starts no agent

    from ..._new_python import main_of

    require_pidfd()
    name = address._replace(host=local_host or address.host)
    # bound only once the agent runs (see below), which has the socket by inheritance
    listener = unix.unbound()
    # opened here, where the number is surely this process's
    parent = os.pidfd_open(os.getpid())
    own = AgentSpec(
        address, root, os.getpid(), parent, listener.fileno(), config.exported(),
        tuple(in_every_proc), name.host, channel, trust, report,
    )  # fmt: skip
    spec = write_spec(own)
    # imports make no garbage, and looking for some takes a twentieth of the time until the agent is
    # up
    first = "import ctypes, gc; gc.disable(); "
    first += f"ctypes.CDLL(None).prctl({PR_SET_PDEATHSIG}, {int(signal.SIGCONT)}); "
    code = main_of(f"{__package__}.agent_main", first)
    # as multiprocessing does
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    adopted = channel.listening.fd if channel is not None else -1
    lifeline = Lifeline()
    given = listener.fileno(), spec, parent, lifeline.fd
    try:
        agent = subprocess.Popen(
            [sys.executable, *flags, "-c", code, str(spec)],
            stdin=subprocess.DEVNULL,
            pass_fds=[fd for fd in (*given, report, adopted) if fd >= 0],
            start_new_session=True,  # Ctrl-C in the terminal is for the client alone
        )
        lifeline.tie(agent)
        try:
            # now that there is a process which removes it, should this one be killed
            unix.listen(name, listener)
            then()
        except BaseException:
            with agent:
                agent.kill()
            unix.release(name)  # for another try
            raise
        return agent
    except OSError as error:
        raise explained(error, "the host agent") from error
    finally:
        for fd in (listener.detach(), *given[1:]):
            if fd >= 0:  # `listen` closes the socket that it can't use
                os.close(fd)
