"""The tree of hosts, procs and actors as Monarch 0.7 has it in its snapshots.

One is made for each question, at that moment.

Each process gives what it knows, so the rows of one answer belong together: they have the same
`snapshot_id`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from .._core.plane import Failure, OwnedActors, actors_of, handled_by, life_events, status_of
from .._ours import user_name
from .._patterns.activities import owners_of
from .registry import AGENT, Asked, produces

Row = tuple[Any, ...]

_NOW = "now"
"""The id of the snapshot that a question makes."""

_ROOT = "root"


@produces("nodes")
def _nodes(asked: Asked) -> Iterator[Row]:
    for owner in owners_of(asked.service.hub):
        yield _NOW, str(owner.instance.actor_id), "actor", asked.now_us


@produces("children")
def _children(asked: Asked) -> Iterator[Row]:
    parent = str(asked.service.hub.address)
    for number, owner in enumerate(owners_of(asked.service.hub)):
        yield _NOW, parent, str(owner.instance.actor_id), number, False, owner.ending is not None


@produces("proc_nodes")
def _proc_nodes(asked: Asked) -> Iterator[Row]:
    address = asked.service.hub.address
    yield _NOW, str(address), address.proc, len(owners_of(asked.service.hub)), 0, False, 0


@produces("actor_nodes")
def _actor_nodes(asked: Asked) -> Iterator[Row]:
    for cell in actors_of(asked.service.hub):
        active = list(cell.handling().values())
        endpoint = active[0] if active else None
        durations: Any = getattr(cell.sampler, "durations", {})
        took = sum(each.total for each in durations.copy().values()) // 1000
        yield (
            _NOW, str(cell.instance.actor_id), status_of(cell).lower(), cell.record.class_name or "",
            f"{cell.uid:x}", handled_by(cell), int(cell.since * 1e6), endpoint, took, len(cell.queued()), False,
        )  # fmt: skip


@produces("actor_executions")
def _executions(asked: Asked) -> Iterator[Row]:
    for cell in actors_of(asked.service.hub):
        yield _NOW, str(cell.instance.actor_id), len(cell.handling()), True, False


@produces("active_handlers")
def _handlers(asked: Asked) -> Iterator[Row]:
    for cell in actors_of(asked.service.hub):
        for name, count in Counter(cell.handling().values()).items():
            yield _NOW, str(cell.instance.actor_id), name, count, None


@produces("actor_failures")
def _failures(asked: Asked) -> Iterator[Row]:
    """The failures of what the actors of this process own: their owner was told of each."""
    hub = asked.service.hub
    times = {
        (event.address, event.uid): event.time // 1000
        for event in life_events()
        if event.status == "Failed"
    }
    for owner in owners_of(hub):
        for mesh in owner.ownership.meshes():
            if not isinstance(mesh, OwnedActors):
                continue
            for rank, address in enumerate(mesh.processes):
                end, own = hub.process_fate(address), hub.actors.fate(address, mesh.spec.uid)
                failure = own or (mesh.failure_of(rank, end) if end is not None else None)
                if failure is None or failure.is_stop or not mesh.has_failed(rank):
                    continue
                root = _root_of(failure)
                who = owner.instance.actor_id._replace(
                    actor_name=mesh.name, uid=mesh.spec.uid, proc_id=address
                )
                yield (
                    _NOW, str(who), failure.reason, root.actor or root.proc,
                    _named(root), times.get((address, mesh.spec.uid)), root is not failure,
                )  # fmt: skip


def _named(failure: Failure) -> str | None:
    rank = f"[{failure.rank}]" if failure.rank is not None else ""
    return f"{failure.mesh}{rank}" if failure.mesh else None


def _root_of(failure: Failure) -> Failure:
    while failure.source is not None:
        failure = failure.source
    return failure


@produces("actor_inbound_orderings")
def _orderings(asked: Asked) -> Iterator[Row]:
    """A connection brings the messages of a sender in order, so nothing is put in order here."""
    for cell in actors_of(asked.service.hub):
        yield _NOW, str(cell.instance.actor_id), False, True, 0, 0, 0, 0, 0


@produces("snapshots", AGENT)
def _snapshots(asked: Asked) -> Iterator[Row]:
    if _is_of_client(asked):
        yield _NOW, asked.now_us


@produces("root_nodes", AGENT)
def _roots(asked: Asked) -> Iterator[Row]:
    if _is_of_client(asked):
        yield _NOW, _ROOT, 1 + len(asked.description.hosts), asked.now_us, user_name()


@produces("host_nodes", AGENT)
def _hosts(asked: Asked) -> Iterator[Row]:
    agent = asked.description.agent
    yield _NOW, str(agent), agent.host, sum(proc.end is None for proc in asked.description.procs)


@produces("nodes", AGENT)
def _host_and_procs(asked: Asked) -> Iterator[Row]:
    description = asked.description
    if _is_of_client(asked):
        yield _NOW, _ROOT, "root", asked.now_us
        yield _NOW, str(description.root), "proc", asked.now_us
    yield _NOW, str(description.agent), "host", asked.now_us
    for proc in description.procs:
        yield _NOW, str(proc.address), "proc", asked.now_us


@produces("children", AGENT)
def _children_of_host(asked: Asked) -> Iterator[Row]:
    description = asked.description
    yield _NOW, _ROOT, str(description.agent), 0, False, False
    if _is_of_client(asked):
        yield _NOW, str(description.agent), str(description.root), 0, False, False
    for proc in description.procs:
        yield (
            _NOW, str(description.agent), str(proc.address), 1 + proc.rank, False,
            proc.end is not None,
        )  # fmt: skip


@produces("proc_nodes", AGENT)
def _ended_procs(asked: Asked) -> Iterator[Row]:
    for proc in asked.description.procs:
        if proc.end is not None:
            yield _NOW, str(proc.address), proc.address.proc, 0, 0, not proc.end.is_stop, 0


def _is_of_client(asked: Asked) -> bool:
    """Return whether the client of the program runs on this host."""
    return asked.description.root.is_client
