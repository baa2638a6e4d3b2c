"""The producers of tables: functions by the name of the table, and where they run."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from .._core.plane import ControlService, HostDescription, ProcAddress
from .._namedtuple import NamedTuple

if TYPE_CHECKING:
    from ..logs.filter import LineFilter

PROC, AGENT = "proc", "agent"
"""Where a producer runs: in each process that runs actors, the client among them; or in the host
agents.
"""


class Asked(NamedTuple):
    """The arguments of a producer.

    Attributes:
        service: Of the process that is asked.
        now_us: When, in microseconds since 1970.
        since_us: Before that, no events are wanted; None for all. What a producer has beyond that
            is left out later.
        root: The client of the program that is meant; None for everybody's.
        scratch: What producers of one question share.
        described: The entries of this process, ended ones included, of one program alone; None
            in a process that is no agent.
        lines: Which lines of logs are wanted; None for all.
    """

    service: ControlService
    now_us: int
    since_us: int | None
    root: ProcAddress | None
    scratch: dict[str, Any]
    described: HostDescription | None
    lines: LineFilter | None = None

    @property
    def description(self) -> HostDescription:
        """The description of the host, for a producer in an agent."""
        assert self.described is not None
        return self.described


class Incomplete(Exception):
    """The error of a producer after its last row.

    The text tells the missing rows, and the reason.
    """


Producer = Callable[[Asked], Iterable[tuple[Any, ...]]]

_FILLERS = {
    ".dead": "messages message_status_events sent_messages history",
    ".gpus": "gpus gpu_processes",
    ".instruments": "metric_gauges metric_sums metric_histograms metric_history",
    ".log_lines": "logs events",
    ".messages": "messages message_status_events sent_messages history",
    ".nodes": "snapshots nodes children root_nodes host_nodes proc_nodes actor_nodes actor_executions"
    " actor_failures actor_inbound_orderings active_handlers",
    ".spans": "spans span_events",
    ".steps": "steps",
    ".stack_rows": "stacks pyspy_dumps pyspy_stack_traces pyspy_frames",
    ".torch_events": "torch_events",
}  # by module: the tables of which it fills some rows
_OTHERS = (".processes", ".hosts")
_producers: dict[tuple[str, str], Producer] = {}
_own_thread: set[str] = set()


def produces(
    table: str, where: str = PROC, own_thread: bool = False
) -> Callable[[Producer], Producer]:
    """Mark what fills a table, with rows in the order of its columns.

    It must not wait: for no other process, and for no lock that code of the program may hold.

    Args:
        table: Its name.
        where: It runs.
        own_thread: Whether it runs on a thread of its own: it calls functions of the program, or
            has many rows to make.
    """

    def mark(producer: Producer) -> Producer:
        _producers[table, where] = producer
        if own_thread:
            _own_thread.add(table)
        return producer

    return mark


def producer_of(table: str, where: str) -> Producer | None:
    """Return the producer of a table in this kind of process; None if there is none."""
    fillers = [module for module, tables in _FILLERS.items() if table in tables.split()]
    for module in fillers or _OTHERS:
        importlib.import_module(module, __package__)
    return _producers.get((table, where))


def takes_a_thread(table: str) -> bool:
    """Return whether the I/O thread can't fill this table."""
    return table in _own_thread


def living_procs(description: HostDescription, root: ProcAddress | None) -> dict[ProcAddress, str]:
    """The processes of a host that live, with names for people: of one program, or all (None)."""
    machine, client = description.machine, description.root
    names = {}
    if client.is_client and root in (None, client):
        names[client] = f"the client on {machine}"
    for proc in description.procs:
        if root in (None, proc.root) and proc.end is None and proc.pid:
            names[proc.address] = f"{proc.mesh}[{proc.rank}] on {machine}"
    return names
