"""How an episode ends: everything is stopped, or shut down, or the host agent is killed.

Afterwards nothing waits any more.
"""

from __future__ import annotations

import os
import signal

from chaos.calls import Violation
from chaos.consequences import HOST, KILLED, Death, Event
from chaos.episode import Episode
from chaos.model import ALIVE, Proc, Procs, View
from chaos.outcome import DEAD, outcome_of
from helpers.workers import own_agent
from monarch.actor import shutdown_context, this_host


def stop_all(episode: Episode) -> None:
    """The client stops what it owns, in any order, all at once or one after the other."""
    episode.settle()
    meshes = [
        mesh for mesh in episode.world.owned if mesh.state == ALIVE or isinstance(mesh, Procs)
    ]
    episode.rng.shuffle(meshes)
    at_once = episode.rng.random() < 0.5
    futures = []
    for mesh in meshes:
        episode.note(f"client: {mesh.name}.stop()")
        event = Event()
        event.stop(mesh)
        episode.begin(event)
        futures.append((mesh.name, mesh.handle.stop()))
        if not at_once:
            episode.demand("stop", *futures.pop())
    for future in futures:
        episode.demand("stop", *future)
    _nothing_waits(episode)


def shut_down(episode: Episode) -> None:
    """The whole context, while things live."""
    if episode.rng.random() < 0.5:
        episode.settle()
    episode.note("client: shutdown_context()")
    event = Event()
    for mesh in episode.world.owned:
        event.stop(mesh)
    for expected in episode.unsettled:  # who leaves does not listen any more
        for hearing in expected.hearings.values():
            hearing.certain = False
    episode.begin(event)
    episode.demand("shutdown", "shutdown_context()", shutdown_context())
    _nothing_waits(episode)  # which began a new context
    episode.demand("shutdown", "shutdown_context()", shutdown_context())


def kill_agent(episode: Episode) -> None:
    """The host agent is killed, and everything under it with it; after a shutdown the program can
    go on.
    """
    episode.settle()
    procs = episode.world.living_procs()
    event = Event()
    event.kill(dict.fromkeys(procs, Death(HOST)))
    for proc in procs:
        # an actor that has just stopped by itself may be taken along before its owner knows, and is
        # heard of in place of the proc
        for instance in proc.instances:
            event.may_be_heard(instance, Death(HOST))
    for hearing in event.hearings.values():
        # the processes go with the agent: either may be seen first
        hearing.deaths.add(Death(KILLED, int(signal.SIGKILL)))
        if hearing.hearer is not None or (
            isinstance(hearing.subject, Proc) and hearing.subject.instances
        ):
            hearing.certain = False
    episode.note("kill the host agent")
    episode.tally.injected("host agent killed")
    episode.begin(event)
    os.kill(own_agent(), signal.SIGKILL)
    _nothing_waits(episode)
    _next_use_is_refused(episode)
    episode.demand("shutdown", "shutdown_context()", shutdown_context())


ENDINGS = {"stop": stop_all, "shutdown": shut_down, "agent": kill_agent}


def _next_use_is_refused(episode: Episode) -> None:
    procs = this_host().spawn_procs(per_host={"n": 1}, name=f"{episode.world.prefix}after")
    error = None
    try:
        procs.initialized.get(timeout=episode.patience)
    except Exception as raised:
        error = raised
    if error is None or isinstance(error, TimeoutError):
        raise Violation(f"spawn_procs under a killed agent: {error!r}")
    episode.note(f"spawn_procs: {outcome_of(error)}")


def _nothing_waits(episode: Episode) -> None:
    """Calls in flight are done; what was there refuses new ones."""
    episode.settle()
    episode.collect_all()
    episode.collect_held()
    if episode.held:
        raise Violation(f"still held: {[held.what for held in episode.held]}")
    for mesh in episode.rng.sample(episode.world.actors, min(3, len(episode.world.actors))):
        sent, answer = episode.send(View(mesh, {}), "call")
        episode.collect(sent, answer)
        if episode.wait("call", sent.what, answer).kind != DEAD:
            raise Violation(f"{sent.what}: answered after the end of everything")
    episode.review()
