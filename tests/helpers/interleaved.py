"""One sender, many receivers, every adverb, whole meshes and slices mixed: what each receiver must
have got, in order.
"""

from __future__ import annotations

import random
from typing import Any

from helpers.waiting import PATIENCE
from monarch.actor import Actor, endpoint


def interleave(recorders: Any, sender: str, seed: int, steps: int) -> list[list[tuple[str, int]]]:
    """Send `steps` messages to random parts of a one-dimensional mesh of recorders, in random ways.

    Returns:
        What each rank got of them, in order.
    """
    chance = random.Random(seed)
    (label,) = recorders.extent
    count = len(recorders)
    expected: list[list[tuple[str, int]]] = [[] for _ in range(count)]
    calls = []
    for number in range(steps):
        message = (sender, number)
        way = chance.choice(["call", "broadcast", "stream", "call_one", "part", "stride"])
        if way == "call_one":
            ranks = [chance.randrange(count)]
            calls.append(recorders.slice(**{label: ranks[0]}).record.call_one(message))
        elif way in ("part", "stride"):
            start = chance.randrange(count)
            end = chance.randrange(start, count) + 1
            selection = slice(start, end, 1 if way == "part" else chance.randint(2, 5))
            ranks = list(range(count))[selection]
            recorders.slice(**{label: selection}).record.broadcast(message)
        else:
            ranks = list(range(count))
            result = getattr(recorders.record, way)(message)
            calls.extend([result] if way == "call" else list(result or ()))
        for rank in ranks:
            expected[rank].append(message)
    for call in calls:
        call.get(timeout=PATIENCE)
    return expected


class Interleaver(Actor):
    @endpoint
    def interleave(
        self, recorders: Any, sender: str, seed: int, steps: int
    ) -> list[list[tuple[str, int]]]:
        return interleave(recorders, sender, seed, steps)


def check(recorders: Any, expected: list[list[list[tuple[str, int]]]], seed: int) -> None:
    """Each rank has got what each sender sent it, all of it and in that sender's order."""
    logs = [
        [tuple(message) for message in log]
        for log in recorders.recorded.call().get(timeout=PATIENCE).values()
    ]
    for rank, log in enumerate(logs):
        for of_sender in expected:
            wanted = of_sender[rank]
            sender = next((name for messages in of_sender for name, _ in messages), None)
            got = [message for message in log if message[0] == sender]
            assert got == wanted, (
                f"seed {seed}, {sender} to rank {rank}: got {got}, wanted {wanted}"
            )
