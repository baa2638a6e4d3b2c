"""A pipeline of async actors: three stages, each in its own process, all working at once.

Every stage holds a handle to the next and awaits it. ``concurrent_endpoint`` lets one stage have
many items under way, so the pipeline takes about as long as its slowest item, not as long as all of
them one after the other.

    python examples/async_pipeline.py
"""

import asyncio
import time

from monarch.actor import Actor, concurrent_endpoint, context, endpoint, this_host


class Store(Actor):
    """Last stage: keeps what arrives.

    A plain endpoint: one message at a time, in order of arrival.
    """

    def __init__(self) -> None:
        self.items: dict[str, int] = {}

    @endpoint
    async def put(self, key: str, value: int) -> None:
        self.items[key] = value

    @endpoint
    async def contents(self) -> dict[str, int]:
        return dict(sorted(self.items.items()))


class Score(Actor):
    """Middle stage: some slow work per item, many items at a time."""

    def __init__(self, store: Store) -> None:
        self.store = store

    @concurrent_endpoint
    async def score(self, key: str, text: str) -> int:
        await asyncio.sleep(0.2)
        value = sum(map(ord, text)) % 1000
        await self.store.put.call_one(key, value)
        return value


class Fetch(Actor):
    """First stage: waits for something slow, then hands on to the next stage and waits for it."""

    def __init__(self, score: Score) -> None:
        self.next = score

    @concurrent_endpoint
    async def fetch(self, key: str) -> str:
        await asyncio.sleep(0.2)
        value = await self.next.score.call_one(key, f"contents of {key}")
        return f"{key} scored {value} by way of {context().actor_instance.name}"


async def run() -> None:
    procs = this_host().spawn_procs(per_host={"stages": 3})
    # A mesh is a value: hand it to the constructor of another actor, or send it in a message.
    store = procs.slice(stages=2).spawn("store", Store)
    score = procs.slice(stages=1).spawn("score", Score, store)
    fetch = procs.slice(stages=0).spawn("fetch", Fetch, score)
    await fetch.fetch.call_one("warm-up")

    started = time.monotonic()
    lines = await asyncio.gather(*(fetch.fetch.call_one(f"page-{i}") for i in range(20)))
    elapsed = time.monotonic() - started
    for line in lines[:3]:
        print(line)
    print(
        f"... {len(lines)} items through two stages of 0.2 s each; one by one they would have"
        " taken 8 s"
    )
    assert elapsed < 4, f"the items did not overlap: {elapsed:.1f} s"

    contents = await store.contents.call_one()
    print(f"the store holds {len(contents)} items")
    await procs.stop()


if __name__ == "__main__":
    asyncio.run(run())
