"""A host agent's process, from its spec to its end."""

from __future__ import annotations

import logging
import os
import pickle
import signal
import socket
from contextlib import suppress
from functools import partial

from ... import config
from ..._resources import allow_many
from ...errors import AddressError
from ..extension import engine_log
from ..hub.message_hub import MessageHub
from ..net import unix
from ..supervision.failure import STOPPED, Failure
from . import spawner
from .agent import Agent
from .spawner_link import SpawnerLink
from .specs import AgentSpec

_WARNED = 1.0  # seconds after a warning that a host without a client ends
_SETTLED = 10.0  # seconds after which there is time to look for what others have left behind


def run(own: AgentSpec, control: socket.socket, spawner_pid: int) -> None:
    """Serve until there is nothing left to serve.

    Args:
        control: Socket to the spawner.
        spawner_pid: Its process, a child of this one.
    """
    signal.signal(signal.SIGINT, spawner.ignore_interrupt)
    config.inherit(own.config)
    if config.value("file_log_level"):
        engine_log("agent", own.root.proc if own.channel is None else own.address.host)
    allow_many()
    hub = MessageHub(own.address, own.root, socket.socket(fileno=own.listener), own.local_host)
    agent = Agent(hub, partial(SpawnerLink, hub.poller, control, spawner_pid))
    if config.value("sigterm_warns"):
        signal.signal(
            signal.SIGTERM, lambda *_: hub.poller.call_soon(lambda: agent.end_when_unused(_WARNED))
        )
    hub.poller.add(own.parent_fd, lambda events: agent.parent_gone(own.parent_fd, own.parent))
    hub.poller.call_later(_SETTLED, unix.release_abandoned)
    agent.procs.memory.watch(hub.poller.call_later)
    if own.channel is None or _let_others_in(agent, own):
        hub.poller.run()
    agent.procs.kill_leftovers()
    for sink in set(agent.procs.output.sinks.values()):
        sink.close()
    if agent.gateway is not None:
        agent.gateway.close(f"its agent has ended: {agent.reason}")
    hub.close(Failure(STOPPED, "the host agent has ended"))
    control.close()
    with suppress(ProcessLookupError):
        # it may have been stopped before it could ask the kernel to be told of this end
        os.kill(spawner_pid, signal.SIGCONT)
    unix.release_all(own.local_host)


def _let_others_in(agent: Agent, own: AgentSpec) -> bool:
    """Listen for other hosts, and tell the starter of this agent how that went."""
    logging.basicConfig(format="%(asctime)s %(message)s")  # whom a worker has refused, and when
    assert own.channel is not None and own.trust is not None
    channel, error = own.channel, ""
    try:
        channel = agent.open_gateway(own.trust).links.listen(channel)
        # now: clients bring settings of their own
        agent.end_when_unused(config.value("worker_idle_limit"))
    except AddressError as refused:  # it is taken, or none of this machine; says so itself
        error = str(refused)
    except Exception as refused:
        error = f"cannot listen on {channel.name}: {str(refused) or type(refused).__name__}"
    with os.fdopen(own.report, "wb") as report:
        pickle.dump((channel.name, error), report)
    return not error
