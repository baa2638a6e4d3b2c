"""Tables of how things are: what the simulated processes and their agents say of themselves."""

from __future__ import annotations

import json
from collections.abc import Iterator

from monarch.stacks.host import GetHostStacks
from monarch.telemetry.ids import actor_id, host_id, mesh_id, proc_id
from monarch.telemetry.rows import shape_json, stack_rows, view_json

from . import stacks
from .question import NOW, HostQuestion, Row, fills
from .world import GPU_MEMORY, GPU_USED, Proc, noise

_GIB = 1 << 30
_DISK = 2048 * _GIB


@fills("actors")
def _actors(asked: HostQuestion) -> Iterator[Row]:
    world, began = asked.world, int(asked.world.since * 1e6)
    if asked.is_head:
        yield (
            world.client_actor, began, mesh_id(2), 0, "<root>", "client", "client", "RootClient", proc_id(world.client), 2100,
            "Client", None, 0, 0, 0, None,
        )  # fmt: skip
    for proc in asked.procs:
        mesh = proc.mesh
        frames, since = world.does(proc, asked.now)
        dead = world.end(proc, asked.now) is not None
        if not dead and not world.lives(proc, asked.now):
            continue
        status = "Failed" if dead else "Processing" if frames else "Idle"
        yield (
            proc.actor_id, began, mesh_id(mesh.actor_uid), proc.rank, f"<root>.<{mesh.class_name} {mesh.actor}[{proc.rank}]>",
            mesh.actor, mesh.actor, mesh.class_name, proc.id, world.pid(proc), status, mesh.endpoint if frames or dead else None,
            world.queue(proc, asked.now), world.handled(proc, asked.now), world.incarnation(proc),
            int(since * 1e6) if frames else None,
        )  # fmt: skip


@fills("meshes")
def _meshes(asked: HostQuestion) -> Iterator[Row]:
    world, began = asked.world, int(asked.world.since * 1e6)
    if not asked.is_head:
        return
    for mesh in world.meshes:
        if mesh.uid in world.stopped:
            continue
        among = world.hosts[:1] if mesh is world.metrics else world.hosts[1:]
        shape, view = shape_json(mesh.extent), view_json({"hosts": len(among)})
        number = world.mesh_number(mesh)
        yield (
            number, began, "Proc", mesh.name, f"<root>.<{mesh.name}>", shape, host_id(among[0].name), view, world.client_actor
        )  # fmt: skip
        kind = f"Python<{mesh.class_name.rpartition('.')[2]}>"
        yield (
            mesh_id(mesh.actor_uid), began, kind, mesh.actor, f"<root>.<{mesh.actor}>", shape, number,
            view_json(mesh.extent), world.client_actor
        )  # fmt: skip


@fills("hosts")
def _hosts(asked: HostQuestion) -> Iterator[Row]:
    world, host = asked.world, asked.host
    used = sum(world.memory(proc, asked.now) for proc in asked.alive)
    cpu = sum(world.busy(proc, asked.now) for proc in asked.alive)
    sent = int(world.steps(asked.now)) * 1_400_000_000
    load = round(1.1 * sum(bool(world.does(proc, asked.now)[0]) for proc in asked.alive), 2)
    yield (
        host.id, asked.us, host.name, host.machine, 2101, 192, load, 2048 * _GIB, 2048 * _GIB - used - 40 * _GIB, 0, cpu, sent, sent,
        int((world.since - 86_400) * 1e6), "/", _DISK, _DISK * 41 // 100,
    )  # fmt: skip


@fills("procs")
def _procs(asked: HostQuestion) -> Iterator[Row]:
    world = asked.world
    if asked.is_head:
        yield (
            proc_id(world.client), asked.us, mesh_id(world.client.mesh), "client", 0, 1, "{}", asked.host.id, 2100, "up", None, None,
            None, 0.004 * world.steps(asked.now), _GIB // 2, 3 * _GIB, 14, 900, "sleeping",
        )  # fmt: skip
    for proc in asked.procs:
        end, mesh = world.end(proc, asked.now), proc.mesh
        state: Row = ("up", None, None, None)
        if end is not None:
            state = "ended", end.reason, end.exit_code, end.signal
        seen: Row = (None,) * 6
        pid = world.pid(proc)
        if end is None and world.lives(proc, asked.now):
            rss = world.memory(proc, asked.now)
            stopped = world.is_odd(proc) and world.fault.kernel == "T" and world.lasts(asked.now)
            runs = bool(world.does(proc, asked.now)[0]) and world.fault.speed
            os_state = "stopped" if stopped else "running" if runs else "sleeping"
            seen = (round(world.busy(proc, asked.now), 2), rss, rss + 30 * _GIB, 41, 210, os_state)
        elif end is None:
            state, pid = ("starting", None, None, None), 0
        yield (
            proc.id, asked.us, world.mesh_number(mesh), mesh.name, proc.rank, mesh.size, json.dumps(proc.coordinates),
            asked.host.id, pid, *state, *seen,
        )  # fmt: skip


@fills("gpus")
def _gpus(asked: HostQuestion) -> Iterator[Row]:
    world = asked.world
    for proc in asked.procs:
        if proc.mesh is not world.trainers:
            continue
        gpu, uuid = _gpu(asked, proc)
        lasts, odd = world.lasts(asked.now), world.is_odd(proc)
        busy, used = world.gpu_busy(proc, asked.now), world.gpu_memory(proc, asked.now)
        is_hot = lasts and odd and world.fault_name == "straggler"
        hot = 84.0 if is_hot else 58.0 + 6.0 * noise(proc.rank, int(asked.now))
        yield (
            asked.host.id, asked.us, "nvidia", gpu, uuid, "NVIDIA H100 80GB HBM3", GPU_MEMORY,
            used, round(busy, 1), round(hot, 1), round(120.0 + 5.6 * busy, 1), int(world.lives(proc, asked.now)),
        )  # fmt: skip


def _gpu(asked: HostQuestion, proc: Proc) -> tuple[int, str]:
    gpu = proc.coordinates["gpus"]
    return gpu, f"GPU-{asked.host.id & 0xFFFFFFFF:08x}-{gpu}"


@fills("gpu_processes")
def _gpu_processes(asked: HostQuestion) -> Iterator[Row]:
    for proc in asked.trainers():
        of_host, pid = (asked.host.id, asked.us, "nvidia"), asked.world.pid(proc)
        yield *of_host, *_gpu(asked, proc), pid, proc.id, GPU_USED


@fills("statistics")
def _statistics(asked: HostQuestion) -> Iterator[Row]:
    for proc in asked.alive:
        handled = asked.world.handled(proc, asked.now)
        queued = asked.world.queue(proc, asked.now)
        yield (
            proc.id, asked.us, asked.world.pid(proc), handled, handled, handled * 820, handled * 1340, handled, handled, 2 * handled, 3,
            0, queued, int(bool(asked.world.does(proc, asked.now)[0])), 1,
        )  # fmt: skip


@fills("waits")
def _waits(asked: HostQuestion) -> Iterator[Row]:
    for look in stacks.of_host(asked.world, asked.host, GetHostStacks(), asked.now):
        for thread in look.threads:
            if thread.wait is None or look.address is None:
                continue
            is_client, whom = look.address.is_client, thread.wait.actor
            who = asked.world.client_actor if is_client else actor_id(look.address, thread.actor_id)
            since = int((asked.now - (thread.wait.age or 0.0)) * 1e6)
            waits = who, proc_id(look.address), thread.endpoint or None, since, thread.waits_for
            for address in thread.wait.silent:
                yield *waits, actor_id(address, whom), mesh_id(whom), proc_id(address)


@fills("handled")
def _handled(asked: HostQuestion) -> Iterator[Row]:
    for proc in asked.alive:
        world, mesh = asked.world, proc.mesh
        raised: Row = (0, None)
        if mesh is world.metrics and world.fault_name == "straggler" and world.lasts(asked.now):
            raised = 3, int(world.fault_at * 1e6)
        yield (
            proc.actor_id, proc.id, mesh.actor, proc.rank, mesh.endpoint, world.handled(proc, asked.now), *raised,
        )  # fmt: skip


@fills("stacks")
def _stacks(asked: HostQuestion) -> Iterator[Row]:
    return stack_rows(stacks.of_host(asked.world, asked.host, GetHostStacks(ended=True), asked.now))


# the tree of Monarch 0.7


def _node(proc: Proc) -> str:
    return f"{proc.mesh.actor}<{proc.mesh.actor_uid:x}>.{proc.address}"


@fills("nodes")
def _nodes(asked: HostQuestion) -> Iterator[Row]:
    if asked.is_head:
        yield NOW, f"client<2>.{asked.world.client}", "actor", asked.us
    for proc in asked.alive:
        yield NOW, _node(proc), "actor", asked.us


@fills("children")
def _children(asked: HostQuestion) -> Iterator[Row]:
    if asked.is_head:
        yield NOW, str(asked.world.client), f"client<2>.{asked.world.client}", 0, False, False
    for proc in asked.alive:
        yield NOW, str(proc.address), _node(proc), 0, False, False


@fills("proc_nodes")
def _proc_nodes(asked: HostQuestion) -> Iterator[Row]:
    for proc in asked.alive:
        yield NOW, str(proc.address), proc.address.proc, 1, 0, False, 0


@fills("actor_nodes")
def _actor_nodes(asked: HostQuestion) -> Iterator[Row]:
    world = asked.world
    for proc in asked.alive:
        busy = bool(world.does(proc, asked.now)[0])
        took = int(world.busy(proc, asked.now) * 1e6)
        yield (
            NOW, _node(proc), "processing" if busy else "idle", proc.mesh.class_name, f"{proc.mesh.actor_uid:x}",
            world.handled(proc, asked.now), int(world.since * 1e6), proc.mesh.endpoint if busy else None, took,
            world.queue(proc, asked.now), False,
        )  # fmt: skip


@fills("actor_executions")
def _executions(asked: HostQuestion) -> Iterator[Row]:
    for proc in asked.alive:
        yield NOW, _node(proc), int(bool(asked.world.does(proc, asked.now)[0])), True, False


@fills("active_handlers")
def _handlers(asked: HostQuestion) -> Iterator[Row]:
    for proc in asked.alive:
        if asked.world.does(proc, asked.now)[0]:
            yield NOW, _node(proc), proc.mesh.endpoint, 1, None


@fills("actor_failures")
def _failures(asked: HostQuestion) -> Iterator[Row]:
    """Their owner tells them: the client."""
    odd = asked.world.odd
    end = asked.world.end(odd, asked.now)
    if asked.is_head and end is not None and not end.is_stop:
        name, at = odd.mesh.actor, int(asked.world.fault_at * 1e6)
        why = end.of(name, name, odd.mesh.actor_uid, odd.rank).reason
        yield NOW, _node(odd), why, odd.label, odd.label, at, False
