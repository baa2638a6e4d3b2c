"""Counters of a process. They cost some tenths of a microsecond per message and are always on."""

from __future__ import annotations

import os

from ..._namedtuple import NamedTuple
from .contracts import Hub


class ProcStatistics(NamedTuple):
    """Counts of one process since it started, and what it holds at this moment.

    They are of its connections to processes of its own host, over which all its messages go; those
    to and from other hosts pass its host agent. Messages between actors of the same process cross
    no socket and are not counted.

    Attributes:
        pid: Of the process, on its host.
        messages_sent: Calls, answers and values to ports, one for each receiver; those of the
            runtime itself, too.
        messages_received: The same the other way.
        bytes_sent: Bytes written to sockets. Large buffers cross no socket: they are not among
            them.
        bytes_received: Bytes read from sockets.
        send_calls: ControlService calls that wrote.
        receive_calls: ControlService calls that read.
        io_thread_wakeups: How often the I/O thread woke up; threads that wait for answers read
            without it.
        connections_open: Connections to and from other processes of the host.
        bytes_queued: Bytes that wait for sockets, because receivers are slow.
        messages_queued: Messages that wait in the mailboxes of actors.
        calls_unanswered: Calls of this process that wait for answers.
        actors: Actors that have not ended.
    """

    pid: int
    messages_sent: int
    messages_received: int
    bytes_sent: int
    bytes_received: int
    send_calls: int
    receive_calls: int
    io_thread_wakeups: int
    connections_open: int
    bytes_queued: int
    messages_queued: int
    calls_unanswered: int
    actors: int


def statistics_of(hub: Hub, queues: list[int]) -> ProcStatistics:
    """Collect the statistics of a process.

    Args:
        hub: That of the process.
        queues: For each actor, how many messages wait for it.
    """
    traffic, connections = hub.traffic.total()
    return ProcStatistics(
        os.getpid(), traffic.messages_sent, traffic.messages_received, traffic.bytes_sent, traffic.bytes_received, traffic.send_calls,
        traffic.receive_calls, hub.poller.wakeups, connections, traffic.bytes_queued, sum(queues), len(hub.requests),
        len(queues),
    )  # fmt: skip
