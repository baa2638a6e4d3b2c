"""What an episode does while nothing fails."""

from __future__ import annotations

import itertools
import threading
from typing import Any

from chaos.calls import ADVERBS, Sent, Violation, plan
from chaos.consequences import Event
from chaos.episode import MOST_ACTORS, MOST_IN_FLIGHT, MOST_PROCS, Episode, Held, NotNow
from chaos.model import ALIVE, CLIENT, Instance, View
from chaos.outcome import DEAD, RAISED, VALUE, Outcome
from chaos.table import operation
from monarch.actor import Channel


@operation(weight=6)
def spawn_procs(episode: Episode) -> None:
    if len(episode.world.living_procs()) >= MOST_PROCS:
        raise NotNow
    episode.settle()
    sizes = episode.rng.choice([{"n": 1}, {"n": 2}, {"n": 3}, {"n": 4}, {"a": 2, "b": 2}, {}])
    procs = episode.spawn_procs(episode.any_owner(), sizes)
    if procs.owner is None and episode.rng.random() < 0.5:
        episode.demand("spawn", f"{procs.name}.initialized", procs.handle.initialized)


@operation(weight=10)
def spawn_actors(episode: Episode) -> None:
    meshes = [mesh for mesh in episode.world.procs if mesh.state == ALIVE]
    if not meshes or sum(1 for _ in episode.world.living()) >= MOST_ACTORS:
        raise NotNow
    episode.settle()
    where = episode.any_view(episode.rng.choice(meshes))
    actors = episode.spawn_actors(episode.any_owner(), where, *episode.any_class())
    all_live = all(instance.state == ALIVE for instance in actors.instances)
    if actors.owner is None and all_live and episode.rng.random() < 0.5:
        episode.demand("spawn", f"{actors.name}.initialized", actors.handle.initialized)
    if episode.rng.random() < 0.7:
        episode.collect(*episode.send(View(actors, {}), "call"))


@operation(weight=4)
def spawn_and_call(episode: Episode) -> None:
    """Procs, actors on them and calls of these, with no wait in between."""
    if len(episode.world.living_procs()) >= MOST_PROCS:
        raise NotNow
    episode.settle()
    procs = episode.spawn_procs(None, {"n": episode.rng.randint(1, 3)})
    actors = episode.spawn_actors(None, View(procs, {}), *episode.any_class())
    for _ in range(episode.rng.randint(2, 6)):
        adverb = episode.rng.choice(("call", "stream", "broadcast"))
        episode.in_flight.append(episode.send(episode.any_view(actors), adverb))


def _settled_target(episode: Episode) -> View:
    """Actors to call, of which all live for certain."""
    view = episode.any_target()
    episode.settle()
    if any(instance.state != ALIVE for instance in view.instances):
        raise NotNow
    return view


@operation(weight=40)
def call(episode: Episode) -> None:
    view = episode.any_target()
    episode.collect(*episode.send(view))


@operation(weight=20)
def send_ahead(episode: Episode) -> None:
    """Calls that are left in flight."""
    for _ in range(episode.rng.randint(1, 8)):
        view = episode.any_target()
        if len(episode.in_flight) >= MOST_IN_FLIGHT:
            raise NotNow
        adverb = episode.rng.choice(("call", "stream", "broadcast"))
        episode.in_flight.append(episode.send(view, adverb))


@operation(weight=10)
def collect(episode: Episode) -> None:
    episode.note("collect what is in flight")
    episode.collect_all()


@operation(weight=10)
def fail(episode: Episode) -> None:
    """An endpoint raises, and the caller is told."""
    view = episode.any_target()
    what = f"client: {view}.fail.call()"
    episode.note(what)
    stamp = episode.stamp(view.instances)
    outcome = episode.wait("fail", what, view.handle.fail.call(stamp, what))
    states = [instance.state for instance in view.instances]
    if outcome.kind == VALUE or (outcome.kind == DEAD and all(state == ALIVE for state in states)):
        raise Violation(f"{what}: an ActorError was due, it came: {outcome}")
    if outcome.kind == RAISED and (
        outcome.value != f"Boom: {what}" or (ALIVE not in states and "going" not in states)
    ):
        raise Violation(f"{what}: raised something else: {outcome}")


@operation(weight=15)
def relay(episode: Episode) -> None:
    """One actor calls others, and says what came of it."""
    relays = list(episode.world.living())
    target = episode.any_target()
    if not relays:
        raise NotNow
    through = episode.rng.choice(relays)
    if through in target.instances:
        raise NotNow
    _judge_relayed(episode, *_send_relayed(episode, through, target))


def _send_relayed(
    episode: Episode, through: Instance, target: View, adverb: str | None = None
) -> tuple[Sent, Any]:
    if adverb is None:
        adverb = episode.rng.choice(
            [a for a in ADVERBS if a != "call_one" or len(target.ranks) == 1]
        )
    by_owner = target.mesh.owner is through
    sent = plan(
        episode.world, through, target, adverb, episode.rng.randint(1, 9), episode.any_payload(), by_owner
    )  # fmt: skip
    episode.note(sent.what)
    stamp = episode.stamp([through])
    future = episode.view_of(through).handle.relay.call_one(
        stamp, target.handle, adverb, sent.stamp, sent.by, sent.payload
    )
    return sent, future


def _judge_relayed(episode: Episode, sent: Sent, future: Any) -> None:
    outcomes: list[Outcome] = episode.demand("relay", sent.what, future)
    sent.judge(outcomes)


@operation(weight=4)
def crowd(episode: Episode) -> None:
    """Many actors call one at the same time."""
    living = list(episode.world.living())
    if len(living) < 3:
        raise NotNow
    episode.settle()
    living = list(episode.world.living())
    target, *callers = episode.rng.sample(living, min(len(living), 6))
    episode.note(f"{[str(caller) for caller in callers]}: all call {target}.add at once")
    calls = [
        _send_relayed(episode, caller, episode.view_of(target), "call_one") for caller in callers
    ]
    for sent, future in calls:
        _judge_relayed(episode, sent, future)


@operation(weight=3)
def threads(episode: Episode) -> None:
    """Several client threads call the same actors; each counts as a sender of its own."""
    view = _settled_target(episode)
    count, each = episode.rng.randint(2, 4), 5
    episode.note(f"client: {count} threads call {view}.add {each} times each")
    calls = [
        [
            plan(episode.world, f"{CLIENT}.{thread}", view, "call", 1, None, True)
            for _ in range(each)
        ]
        for thread in range(count)
    ]
    outcomes: dict[int, Outcome] = {}

    def use(mine: list[Sent]) -> None:
        futures = [view.handle.add.call(*sent.arguments) for sent in mine]
        for sent, future in zip(mine, futures, strict=True):
            outcomes[id(sent)] = episode.wait("call", sent.what, future)

    running = [threading.Thread(target=use, args=(mine,)) for mine in calls]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    for sent in itertools.chain(*calls):
        sent.judge([outcomes[id(sent)]])


@operation(weight=5)
def hold(episode: Episode) -> None:
    """A call whose answer comes later, from another endpoint."""
    view = episode.any_target()
    what = f"client: {view}.hold.call()"
    episode.note(what)
    gone = any(instance.state not in (ALIVE, "going") for instance in view.instances)
    future = view.handle.hold.call(episode.stamp(view.instances))
    for instance in view.instances:
        instance.holding += 1
    episode.held.append(Held(what, view, future, gone))


@operation(weight=4)
def release(episode: Episode) -> None:
    if not episode.held:
        raise NotNow
    view = View(episode.rng.choice(episode.held).view.mesh, {})
    what = f"client: {view}.release.call()"
    episode.note(what)
    for held in episode.held:
        for instance in held.view.instances:
            if instance in view.instances:
                held.released.setdefault(instance, instance.counters[CLIENT])
    outcome = episode.wait("release", what, view.handle.release.call(episode.stamp(view.instances)))
    expected = [instance.holding for instance in view.instances]
    for instance in view.instances:
        instance.holding = 0
    if outcome.kind == VALUE and outcome.value.values() != expected:
        raise Violation(f"{what}: {expected} was due, {outcome.value.values()} came")
    if outcome.kind != VALUE and all(instance.state == ALIVE for instance in view.instances):
        raise Violation(f"{what}: {expected} was due, it came {outcome}")
    episode.collect_held()


@operation(weight=5)
def report(episode: Episode) -> None:
    """Actors send values through a port of the client's."""
    view = _settled_target(episode)
    count = episode.rng.randint(1, 20)
    what = f"client: {view}.report(port, {count})"
    episode.note(what)
    port, receiver = Channel[Any].open()
    view.handle.report.broadcast(episode.stamp(view.instances), port, count)
    due = dict.fromkeys(view.ranks, 0)
    for _ in range(count * len(due)):
        rank, index = episode.demand("port", what, receiver.recv())
        if index != due[rank]:
            raise Violation(f"{what}: rank {rank} should have sent {due[rank]}, it came {index}")
        due[rank] += 1


@operation(weight=3)
def stop_actors(episode: Episode) -> None:
    _stop(episode, [mesh for mesh in episode.world.actors if mesh.state == ALIVE])


@operation(weight=2)
def stop_procs(episode: Episode) -> None:
    _stop(episode, [mesh for mesh in episode.world.procs if mesh.state == ALIVE])


def _stop(episode: Episode, meshes: list[Any]) -> None:
    episode.settle()
    meshes = [mesh for mesh in meshes if mesh.state == ALIVE and not _owner_is_on(mesh)]
    if not meshes:
        raise NotNow
    mesh = episode.rng.choice(meshes)
    what = f"{mesh.owner or CLIENT}: {mesh.name}.stop()"
    episode.note(what)
    event = Event()
    event.stop(mesh)
    episode.begin(event)
    if mesh.owner is None:
        futures = [mesh.handle.stop() for _ in range(episode.rng.randint(1, 2))]
    else:
        handle = episode.view_of(mesh.owner).handle
        futures = [handle.stop_owned.call_one(episode.stamp([mesh.owner]), mesh.name)]
    for future in futures:
        if episode.demand("stop", what, future) is not None:
            raise Violation(f"{what}: a result")
    episode.settle()
    episode.collect_held()


def _owner_is_on(mesh: Any) -> bool:
    """Whether who would have to wait for the stop is stopped by it."""
    owner = mesh.owner
    event = Event()
    event.stop(mesh)
    return owner is not None and owner in event.stopped
