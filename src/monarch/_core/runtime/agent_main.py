"""The process of the host agent, from its first line to its last; what it does in between is in `agent`."""

from __future__ import annotations

import gc
import logging
import os
import pickle
import resource
import signal
import socket
import sys

from ... import config
from ..supervision.failure import STOPPED, Failure
from . import proc, spawner
from .agent import Agent
from .control import control_pair
from .node import Node
from .spawn_request import AgentSpec


def main() -> None:
    """Entry of the process; its one argument is a descriptor to read its `AgentSpec` from."""
    _open_standard_streams()
    with os.fdopen(int(sys.argv[1]), "rb") as file:
        own: AgentSpec = pickle.load(file)
    parent = os.pidfd_open(own.parent)
    if os.getppid() != own.parent:
        return  # it was gone before we could watch it
    here, there = control_pair()
    spawner_parent = os.getpid()
    spawner_pid = os.fork()
    if spawner_pid == 0:
        here.close()
        inherited = own.channel.listening.fd if own.channel is not None else -1
        for fd in (own.listener, parent, own.report, inherited):
            if fd >= 0:
                os.close(fd)
        spawner.die_with_parent(spawner_parent)
        spec = spawner.Spawner(there, own.address.host, own.preload).serve()
        there.close()
        if spec is not None:
            proc.run_forked(spec)
        return
    there.close()
    gc.enable()  # see `start_agent`
    signal.signal(signal.SIGINT, spawner.ignore_interrupt)
    config.inherit(own.config)
    _allow_many_descriptors()
    node = Node(own.address, own.root, socket.socket(fileno=own.listener))
    agent = Agent(node, here, spawner_pid)
    node.poller.add(parent, lambda events: agent.parent_gone(parent))
    if own.channel is None or _let_others_in(agent, own):
        node.poller.run()
    if agent.gateway is not None:
        agent.gateway.close(f"its agent has ended: {agent.reason}")
    node.close(Failure(STOPPED, "the host agent has ended"))
    here.close()


def _let_others_in(agent: Agent, own: AgentSpec) -> bool:
    """Listen for other hosts, and tell whoever started this agent how that went."""
    logging.basicConfig(format="%(asctime)s %(message)s")  # whom a worker has refused, and when
    assert own.channel is not None and own.trust is not None
    try:
        channel, error = agent.open_gateway(own.trust).listen(own.channel), ""
    except Exception as refused:  # the address is taken, is none of this machine, ...
        channel, error = own.channel, str(refused) or type(refused).__name__
    with os.fdopen(own.report, "wb") as report:
        pickle.dump((channel.name, error), report)
    return not error


def _open_standard_streams() -> None:
    """A client without stdin, stdout or stderr hands none on: no other descriptor may get their numbers."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def _allow_many_descriptors() -> None:
    """An agent holds three descriptors per proc, and connections: use what the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


if __name__ == "__main__":
    main()
