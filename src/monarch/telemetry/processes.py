"""The rows of a process with actors: its actors, what they own, and what they wait for."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from .._core import plane
from .._patterns.activities import blocked, longest, owners_of
from .._patterns.attaching import attached
from .ids import actor_id, event_id, host_id, mesh_id, proc_id
from .registry import Asked, produces
from .rows import shape_json, view_json

Row = tuple[Any, ...]


@produces("actors")
def _actors(asked: Asked) -> Iterator[Row]:
    hub, pid = asked.service.hub, os.getpid()
    here = proc_id(hub.address)
    cells = {cell.uid: cell for cell in plane.actors_of(hub)}
    for owner in owners_of(hub):
        cell = cells.get(owner.uid)
        record = owner.record
        if cell is None:
            status, endpoint, since, queue, handled = "Client", None, None, 0, 0
        else:
            endpoint, since = longest(cell)
            status = plane.status_of(cell)
            queue = len(cell.queued())
            handled = plane.handled_by(cell)
        yield (
            actor_id(hub.address, owner.uid), _us(owner.since), mesh_id(owner.uid), record.rank.rank, str(record), record.name,
            record.name, record.class_name, here, pid, status, endpoint, queue, handled, owner.incarnation, since,
        )  # fmt: skip
    for owner in owners_of(hub):
        for mesh in owner.ownership.meshes():
            if isinstance(mesh, plane.OwnedActors):
                yield from _ended(asked, mesh)


def _ended(asked: Asked, mesh: plane.OwnedActors) -> Iterator[Row]:
    """Actors of processes that have ended, or were stopped, of which only their owner knows."""
    spec = mesh.spec
    for rank, address in enumerate(mesh.processes):
        failed = mesh.has_failed(rank)
        if not failed and not mesh.let_go:
            continue
        if asked.service.hub.process_fate(address) is None:
            continue
        yield (
            actor_id(address, spec.uid), _us(mesh.since), mesh_id(spec.uid), rank, mesh.path(rank), spec.name, spec.name,
            mesh.class_name(rank), proc_id(address), 0, "Failed" if failed else "Stopped", None, 0, 0, mesh.incarnation(rank), None,
        )  # fmt: skip


@produces("meshes")
def _meshes(asked: Asked) -> Iterator[Row]:
    hub = asked.service.hub
    if hub.address.is_client:
        yield (
            mesh_id(hub.address.mesh), asked.now_us, "Proc", "client", hub.address.proc, shape_json({}),
            host_id(hub.address.host), view_json({}), None,
        )  # fmt: skip
        for name, extent in attached():
            yield (
                mesh_id(f"hosts {name}"), asked.now_us, "Host", name, name, shape_json(extent), None,
                None, None,
            )  # fmt: skip
    for owner in owners_of(asked.service.hub):
        by = actor_id(asked.service.hub.address, owner.uid)
        path = str(owner.record)
        for mesh in owner.ownership.meshes():
            view: Mapping[str, int]
            if isinstance(mesh, plane.OwnedProcs):
                extent, kind, parent = mesh.extent, "Proc", host_id(mesh.processes[0].host)
                view = {"hosts": len({address.host for address in mesh.processes})}
            elif isinstance(mesh, plane.OwnedActors):
                extent = view = mesh.spec.extent
                parent = mesh_id(mesh.processes[0].mesh)
                kind = f"Python<{mesh.spec.class_name.rpartition('.')[2]}>"
            else:
                continue
            yield (
                mesh_id(mesh.uid), _us(mesh.since), kind, mesh.name, f"{path}.<{mesh.name}>", shape_json(extent), parent,
                view_json(view), by,
            )  # fmt: skip


@produces("handled")
def _handled(asked: Asked) -> Iterator[Row]:
    hub = asked.service.hub
    here = proc_id(hub.address)
    for cell in plane.actors_of(hub):
        active = list(cell.handling().values())
        raised = cell.raised.copy()
        who = actor_id(hub.address, cell.uid), here, cell.record.name, cell.record.rank.rank
        for endpoint, begun in plane.begun_by(cell).items():
            yield *who, endpoint, begun - active.count(endpoint), *raised.get(endpoint, (0, None))


@produces("actor_status_events")
def status_events(asked: Asked) -> Iterator[Row]:
    """The status events of actors; also in host agents."""
    for event in plane.life_events():
        who = actor_id(event.address, event.uid)
        yield event_id(who, event.time), event.time // 1000, who, event.status, event.reason or None


@produces("waits")
def _waits(asked: Asked) -> Iterator[Row]:
    hub = asked.service.hub
    here = proc_id(hub.address)
    nobody_else = [None if owner.thread is not None else owner.uid for owner in owners_of(hub)]
    for wait in blocked(hub):
        uid, endpoint = None, None
        if wait.actor is not None:
            uid = wait.actor.uid
            endpoint = wait.actor.handling().get(wait.task)
        elif len(nobody_else) == 1:  # the client, which has no actors in its process
            uid = nobody_else[0]
        who = actor_id(hub.address, uid) if uid is not None else None
        for address in wait.silent or (None,):
            whom = (
                (actor_id(address, wait.uid), mesh_id(wait.uid), proc_id(address))
                if address
                else (None, None, None)
            )
            yield who, here, endpoint, _us(wait.since), wait.waits_for, *whom


@produces("statistics")
def _statistics(asked: Asked) -> Iterator[Row]:
    counted = plane.statistics_of(
        asked.service.hub, [len(cell.queued()) for cell in plane.actors_of(asked.service.hub)]
    )
    yield proc_id(asked.service.hub.address), asked.now_us, *counted


def _us(seconds: float) -> int:
    return int(seconds * 1e6)
