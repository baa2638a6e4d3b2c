"""Actors that wait for each other in a circle, and the error that says so."""

from __future__ import annotations

from typing import Any

from monarch.actor import Actor, endpoint, this_host
from monarch.errors import DeadlockError


# region deadlock
class Player(Actor):
    @endpoint
    def meet(self, other: Any) -> None:
        self.other = other

    @endpoint
    def ping(self) -> Any:
        return self.other.pong.call_one().get()  # waits, and so can't answer pong ...

    @endpoint
    def pong(self) -> Any:
        return self.other.score.call_one().get()  # ... which asks back

    @endpoint
    def score(self) -> str:
        return "1:0"


procs = this_host().spawn_procs()
left, right = procs.spawn("left", Player), procs.spawn("right", Player)
left.meet.call_one(right).get()
right.meet.call_one(left).get()

try:
    left.ping.call_one().get()
except DeadlockError as error:
    # an error as any other: it came from an endpoint, and both actors go on
    for wait in error.chain:
        print(wait)
assert left.score.call_one().get() == "1:0"
# endregion
