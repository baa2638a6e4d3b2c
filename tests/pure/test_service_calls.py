"""Calls of a service, with replicas that answer when the test says so."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from monarch._core.supervision.failure import Failure
from monarch._core.wire.address import ProcAddress
from monarch.service.calls import Message, ReplicaCall
from monarch.service.records import LEAST_LOADED, Way
from monarch.service.router import Replica, Router


class Actors:
    """The actors of a replica, and what they were asked."""

    def __init__(self, place: int) -> None:
        self.name = f"replica{place}"
        self.uid = place + 1
        self.procs = [ProcAddress("host", f"proc{place}")]
        self.asked: list[Any] = []

    def cast(self, meta: bytes, content: Any, request: Any, **how: Any) -> int:
        self.asked.append(request)
        return len(self.asked)

    def known_failure(self, hub: Any) -> None:
        return None


def test_a_call_that_is_cancelled_while_its_replica_is_lost_is_not_repeated() -> None:
    soon: list[Callable[[], None]] = []
    replicas = [Actors(place) for place in range(2)]

    def lose_the_replica(number: int, uid: int, procs: Any) -> bool:
        (lost,) = [each for each in replicas if each.uid == uid]
        lost.asked[0].peer_failed(lost.procs[0], Failure("crashed", "just now"))
        return True

    hub: Any = SimpleNamespace(
        end=None,
        requests={},
        request_ids=itertools.count(1),
        poller=SimpleNamespace(call_soon=soon.append, call_later=lambda seconds, function: None),
        cancel=lose_the_replica,
    )
    keeper: Any = None
    cell: Any = None
    router = Router(hub, 1, "service", keeper, Way(LEAST_LOADED, 1, True, 60.0, 1))
    for place, actors in enumerate(replicas):
        router._replicas.append(Replica(router, place, actors))
    message: Message = ("service.work()", (None, 0), cell, b"work", 0, (b"", []))
    call = ReplicaCall(message, router, session=None, timeout=None, retries=1)
    router.begin(call)
    assert call.future.cancel()
    while soon:
        soon.pop(0)()
    assert sorted(len(each.asked) for each in replicas) == [0, 1]
    assert call.future.cancelled()
