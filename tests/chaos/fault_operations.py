"""What breaks things.

Each works out what must follow before it does it, and may leave that to be waited for later.

They begin with `settle`: faults do not overlap, but for those of one operation. Calls may be in
flight.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress

from chaos.calls import Violation
from chaos.consequences import ABORTED, ANY, EXCEPTION, EXITED, KILLED, Death, Event
from chaos.episode import Episode, NotNow
from chaos.model import ALIVE, Instance, Proc, View
from chaos.outcome import RAISED
from chaos.table import operation
from monarch.testing import inject

LATER = 0.5  # share of faults whose consequences are not waited for at once


def _afterwards(episode: Episode) -> None:
    """Calls go on while the consequences come about; then those that survived must still answer."""
    for _ in range(episode.rng.randint(0, 3)):
        with suppress(NotNow):
            view = episode.any_target()
            episode.in_flight.append(
                episode.send(view, episode.rng.choice(("call", "stream", "broadcast")))
            )
    if episode.rng.random() < LATER:
        return
    episode.settle()
    episode.collect_all()
    episode.collect_held()
    _survivors_answer(episode)


def _survivors_answer(episode: Episode) -> None:
    survivors = list(episode.world.living())
    for instance in episode.rng.sample(survivors, min(3, len(survivors))):
        episode.collect(*episode.send(episode.view_of(instance), "call_one"))


def _pick(episode: Episode, make: Callable[[Instance], Event]) -> tuple[Instance, Event]:
    """A living actor of which it is certain what its end brings about."""
    living = list(episode.world.living())
    episode.rng.shuffle(living)
    for instance in living:
        event = make(instance)
        if not event.ambiguous:
            return instance, event
    raise NotNow


def _inhabited(episode: Episode) -> list[Proc]:
    """The processes with actors in them that live."""
    procs = [
        proc
        for proc in episode.world.living_procs()
        if any(i.state == ALIVE for i in proc.instances)
    ]
    if not procs:
        raise NotNow
    return procs


def _failure(instance: Instance, cause: str) -> Event:
    event = Event()
    event.fail(instance, cause)
    return event


@operation(weight=3)
def fail_unheard(episode: Episode) -> None:
    """An endpoint raises, and nobody waits for its answer: that ends the actor."""
    episode.settle()
    meshes = [mesh for mesh in episode.world.actors if mesh.state == ALIVE]
    if not meshes:
        raise NotNow
    view = episode.any_view(episode.rng.choice(meshes))
    event = Event()
    for instance in view.instances:
        if instance.state == ALIVE:
            event.fail(instance, EXCEPTION)
    if event.ambiguous or not event.failed:
        raise NotNow
    episode.note(f"client: {view}.fail.broadcast()")
    episode.tally.injected("fail_unheard")
    partly_gone = any(instance.state != ALIVE for instance in view.instances)
    episode.begin(event)
    stamp = episode.stamp(view.instances)
    try:
        view.handle.fail.broadcast(stamp, "nobody waits")
    except RuntimeError:
        if not partly_gone:
            raise Violation(f"{view}.fail.broadcast() raised, though every rank lived") from None
    _afterwards(episode)


@operation(weight=3)
def give_up(episode: Episode) -> None:
    """An actor ends itself, and its process stays."""
    episode.settle()
    how = episode.rng.choice(("abort", "kill", "SystemExit"))
    cause = EXCEPTION if how == "SystemExit" else ABORTED
    _tell_to_end(episode, *_pick(episode, lambda instance: _failure(instance, cause)), how)


@operation(weight=1)
def stop_itself(episode: Episode) -> None:
    episode.settle()

    def make(instance: Instance) -> Event:
        event = Event()
        event.stop_one(instance)
        return event

    _tell_to_end(episode, *_pick(episode, make), "stop")


@operation(weight=3)
def end_process(episode: Episode) -> None:
    """An actor ends the process that it is in."""
    episode.settle()
    how = episode.rng.choice(("exit 1", "exit 0", "exit 7", "SIGKILL", "SIGSEGV", "SIGTERM"))
    death = _death(how)
    _tell_to_end(episode, *_pick(episode, lambda instance: _kill([instance.proc], death)), how)


def _death(how: str) -> Death:
    if how.startswith("exit "):
        return Death(EXITED, None, int(how.removeprefix("exit ")))
    return Death(KILLED, int(signal.Signals[how]), None)


def _kill(procs: list[Proc], death: Death) -> Event:
    event = Event()
    event.kill(dict.fromkeys(procs, death))
    return event


def _tell_to_end(episode: Episode, instance: Instance, event: Event, how: str) -> None:
    adverb = episode.rng.choice(("call_one", "broadcast"))
    what = f"client: {instance}.end.{adverb}({how!r})"
    episode.note(what)
    episode.tally.injected(how)
    episode.begin(event)
    answer = getattr(episode.view_of(instance).handle.end, adverb)(episode.stamp([instance]), how)
    _afterwards(episode)
    if answer is not None and episode.wait("fault", what, answer).kind == RAISED:
        raise Violation(f"{what}: it ended, and was answered with an ActorError")


@operation(weight=4)
def kill_processes(episode: Episode) -> None:
    """Processes are killed from outside, sometimes several at the same time."""
    episode.settle()
    candidates = _inhabited(episode)
    victims = episode.rng.sample(
        candidates, min(len(candidates), episode.rng.choice((1, 1, 1, 2, 3)))
    )
    number = episode.rng.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM))
    event = _kill(victims, Death(KILLED, int(number)))
    if event.ambiguous:
        raise NotNow
    _learn_pids(episode, victims)
    for _ in range(episode.rng.randint(0, 3)):
        instance = next(i for i in victims[0].instances if i.state == ALIVE)
        episode.in_flight.append(episode.send(View(instance.mesh, {}), "call"))
    episode.note(f"kill -{number.name} {[str(victim) for victim in victims]}")
    episode.tally.injected(f"{number.name} from outside")
    episode.begin(event)
    for victim in victims:
        os.kill(victim.pid, number)
    _afterwards(episode)


def _learn_pids(episode: Episode, procs: list[Proc]) -> None:
    for proc in procs:
        if not proc.pid:
            instance = next(i for i in proc.instances if i.state == ALIVE)
            episode.collect(*episode.send(episode.view_of(instance), "call_one"))


@operation(weight=2)
def freeze(episode: Episode) -> None:
    """A process stands still for a moment: calls wait, and are answered afterwards."""
    episode.settle()
    victim = episode.rng.choice(_inhabited(episode))
    _learn_pids(episode, [victim])
    instance = next(i for i in victim.instances if i.state == ALIVE)
    seconds = episode.rng.choice((0.01, 0.05, 0.2))
    episode.note(f"freeze {victim} for {seconds} s")
    episode.tally.injected("freeze")
    with inject.hold(victim.pid):
        sent = [episode.send(View(instance.mesh, {}), "call") for _ in range(2)]
        time.sleep(seconds)
    for one in sent:
        episode.collect(*one)


@operation(weight=0)
def freeze_for_good(episode: Episode) -> None:
    """A process stands still for longer than `heartbeat_timeout`: it counts as dead, and is ended.

    Off unless given a weight.
    """
    episode.settle()
    victim = episode.rng.choice(_inhabited(episode))
    event = _kill([victim], Death(ANY))
    if event.ambiguous:
        raise NotNow
    _learn_pids(episode, [victim])
    episode.note(f"freeze {victim} for good")
    episode.tally.injected("freeze for good")
    episode.begin(event)
    os.kill(victim.pid, signal.SIGSTOP)
    _afterwards(episode)
