"""Suspends time limits of calls to actors in the debugger, whichever process called.

It does the same for calls to actors that wait for one, directly or through others.

The root client knows who is in the debugger. It tells each proc of the program when that changes,
and once a second as long as a rank is: a proc answers which of its actors wait for one of those,
who then count as well. A host or proc that does not answer is not waited for. Nothing is sent while
no rank is in the debugger.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._core import plane
from .._patterns.activities import blocked
from ..programs import agents_of
from .protocol import InDebugger, value_of

_AGAIN = 1.0  # seconds

ActorAt = tuple[plane.ProcAddress, int]


class Patience:
    """The root client's knowledge of stopped ranks, and its messages about them.

    All of it on the I/O thread.

    Args:
        hub: That of the root client.
    """

    def __init__(self, hub: plane.Hub) -> None:
        self._hub = hub
        self._actors: set[ActorAt] = set()
        # those that wait for one, by their procs
        self._waiting: dict[plane.ProcAddress, set[ActorAt]] = {}
        self._told: set[plane.ProcAddress] = set()
        self._ticks = False

    def set(self, actors: set[ActorAt]) -> None:
        """Take note of all that are in the debugger."""
        if actors == self._actors:
            return
        self._actors = actors
        if not actors:
            self._waiting.clear()
        self._note()
        if not self._ticks:
            self._ticks = True
            self._tick()
        elif actors:
            self._tell_hosts()

    def _tick(self) -> None:
        if self._actors:
            self._tell_hosts()
            self._hub.poller.call_later(_AGAIN, self._tick)
            return
        self._ticks = False
        for proc in self._told:
            plane.send_record(self._hub, proc, InDebugger(()))
        self._told.clear()

    def _note(self) -> None:
        _replace(self._actors.union(*self._waiting.values()))

    def _tell_hosts(self) -> None:
        def here(description: Any) -> None:
            self._tell(description)
            for agent in agents_of(description.hosts):
                self._describe(agent, self._tell)

        self._describe(self._hub.address.agent, here)

    def _describe(self, agent: plane.ProcAddress, then: Callable[[Any], object]) -> None:
        plane.ask_one(
            self._hub, agent, plane.DescribeHost(), lambda reply: _if_answered(reply, then)
        )

    def _tell(self, description: Any) -> None:
        record = InDebugger(tuple(plane.debugged.copy()))
        for proc in description.procs if self._actors else ():
            if proc.root == self._hub.address:
                self._told.add(proc.address)
                self._tell_proc(proc.address, record)

    def _tell_proc(self, proc: plane.ProcAddress, record: InDebugger) -> None:
        def waits(uids: Any) -> None:
            if self._actors:
                self._waiting[proc] = {(proc, uid) for uid in uids}
                self._note()

        plane.ask_one(self._hub, proc, record, lambda reply: _if_answered(reply, waits))


def _if_answered(reply: Any, then: Callable[[Any], object]) -> None:
    if (value := value_of(reply)) is not None:
        then(value)


def _replace(actors: set[ActorAt]) -> None:
    plane.debugged.difference_update(plane.debugged - actors)
    plane.debugged.update(actors)


def take(hub: plane.Hub, request: plane.ControlRequest, record: InDebugger) -> None:
    """Take note of them, in a proc."""
    _replace(set(record.actors))
    request.answer(_waiting_here() if record.actors else [])


def _waiting_here() -> list[int]:
    """The actors here that wait for one.

    Actors that wait with a time limit are not noted: any actor may be the one they wait for.
    """
    found: set[int] = set()
    hub = plane.current_hub()
    for wait in blocked(hub):
        if any((proc, wait.uid) in plane.debugged for proc in wait.silent):
            found.update(
                [wait.actor.uid]
                if wait.actor is not None
                else [actor.uid for actor in plane.actors_of(hub)]
            )
    return list(found)
