"""The stacks of the simulated processes, as `monarch stacks` gets them from agents."""

from __future__ import annotations

from collections.abc import Iterator

from monarch.stacks.host import GetHostStacks, is_among
from monarch.stacks.model import CLIENT, HAS_ENDED, Kernel, Mailbox, ProcStacks, ThreadStack, Wait

from .faults import STACKS
from .world import DemoHost, DemoWorld, Proc


def of_host(
    world: DemoWorld, host: DemoHost, wanted: GetHostStacks, now: float
) -> Iterator[ProcStacks]:
    """The answer of an agent."""
    if host is world.hosts[0] and wanted.mesh in (None, CLIENT) and wanted.ranks in (None, [0]):
        yield _program(world, now)
    for proc in host.procs:
        mesh, rank = proc.mesh, proc.rank
        if mesh.uid in world.stopped or wanted.mesh not in (None, mesh.name, mesh.uid):
            continue
        if not is_among(wanted.ranks, rank, proc.coordinates):
            continue
        end = world.end(proc, now)
        if end is None:
            yield _look(world, proc, now)
        elif wanted.ended and not end.is_stop:
            note, ago = f"{HAS_ENDED}: {end.reason}", max(0.0, now - world.fault_at)
            yield ProcStacks(
                mesh.name, rank, mesh.size, 0, host.machine, "", note, (), proc.address, ago=ago
            )


def _program(world: DemoWorld, now: float) -> ProcStacks:
    """The client waits for the trainers' answers in each step."""
    silent = tuple(proc.address for proc in world.all_trainers() if world.lives(proc, now))
    step = int(world.steps(now))
    age = now - world.begin_of(step)
    wait = Wait(age, world.trainers.actor_uid, silent, f"step {step}") if silent else None
    waits_for = f"trainer.step(); {len(silent):,} ranks have not answered" if silent else ""
    thread = ThreadStack(
        "MainThread", STACKS["program"], waits_for=waits_for, wait=wait, ran=int(step * 4e6)
    )
    if world.is_pending:
        frames, waits_for = world.fault.others, world.fault.inside
        wait = Wait(now - world.fault_at, 0, ())
        thread = ThreadStack("MainThread", frames, waits_for=waits_for, wait=wait, ran=0)
    kernel = Kernel("S", thread.ran, 0, 0)
    machine = world.hosts[0].machine
    return ProcStacks(
        CLIENT, 0, 1, 2100, machine, "itself", "", (thread,), world.client, {}, (), kernel
    )


def _look(world: DemoWorld, proc: Proc, now: float) -> ProcStacks:
    mesh = proc.mesh
    seen = ProcStacks(
        mesh.name, proc.rank, mesh.size, world.pid(proc), proc.host.machine, "itself", "", (), proc.address, proc.coordinates
    )  # fmt: skip
    if not world.lives(proc, now):
        return seen._replace(pid=0, how="", note="has not started yet")
    is_odd = world.is_odd(proc) and world.lasts(now)
    ran = int(world.busy(proc, now) * 1e9)
    if is_odd and world.fault.kernel == "T":
        note = "is stopped (SIGSTOP, or Ctrl-Z)"
        return seen._replace(how="", note=note, kernel=Kernel("T", ran, 0, 0))
    frames, _ = world.does(proc, now)
    if is_odd and world.fault_name == "gil":
        thread = ThreadStack("", frames)
        return seen._replace(how="signal", threads=(thread,), kernel=Kernel("R", ran, 0, 0))
    queued = world.queue(proc, now)
    held = tuple(each.address for each in world.all_trainers()) if queued else ()
    boxes = (Mailbox(mesh.actor, mesh.actor_uid, queued, held),)
    threads = (_thread(world, proc, now, is_odd, ran),) if frames else ()
    return seen._replace(threads=threads, mailboxes=boxes, kernel=Kernel("S", ran, 0, 0))


def _thread(world: DemoWorld, proc: Proc, now: float, is_odd: bool, ran: int) -> ThreadStack:
    mesh = proc.mesh
    frames, since = world.does(proc, now)
    step = int(world.steps(now, world.is_odd(proc)))
    if is_odd and world.fault_name == "slow-loader":
        ran = int((now - world.since) * 1e6)  # it looks again
    thread = ThreadStack(
        f"monarch-actor-{mesh.actor}", frames, mesh.actor, mesh.endpoint, "", mesh.actor_uid, f"step {step} {proc.rank}",
        ran=ran, inside=world.fault.inside if is_odd else "",
    )  # fmt: skip
    if world.fault_name == "deadlock" and world.lasts(now):
        if is_odd:
            return _waits(thread, now - since, world.odd_loader, "loader.next()")
        if proc is world.odd_loader:
            return _waits(thread, now - since, world.odd, "trainer.state()")
    return thread


def _waits(thread: ThreadStack, age: float, whom: Proc, what: str) -> ThreadStack:
    wait = Wait(age, whom.mesh.actor_uid, (whom.address,))
    return thread._replace(waits_for=f"{what} of rank {whom.rank}", wait=wait)
