"""Actors: state, endpoints, one message at a time."""

import asyncio
import time

from monarch.actor import Actor, concurrent_endpoint, endpoint, this_host

procs = this_host().spawn_procs(per_host={"workers": 2})


# region counter
class Counter(Actor):
    def __init__(self, start: int) -> None:
        self.value = start

    @endpoint
    def add(self, by: int = 1) -> int:
        self.value += by
        return self.report()

    def report(self) -> int:  # not an endpoint: a plain method, for the actor's own use
        return self.value


counters = procs.spawn("counters", Counter, start=10)
assert counters.add.call(by=5).get().values() == [15, 15]
assert counters.slice(workers=0).add.call_one().get() == 16
# endregion


# region checked
try:
    counters.add.call(bye=5)  # type: ignore[call-arg]  # mypy sees it as well
except TypeError as error:
    print(error)  # at once, and nothing was sent
# endregion


# region async_actor
class Fetcher(Actor):
    def __init__(self) -> None:
        self.seen: list[str] = []  # __init__ already runs on the actor's own event loop

    @endpoint
    async def fetch(self, name: str) -> str:
        await asyncio.sleep(0.1)
        self.seen.append(name)
        return name.upper()


fetcher = procs.slice(workers=0).spawn("fetcher", Fetcher)
started = time.monotonic()
answers = [fetcher.fetch.call_one(name) for name in ("a", "b", "c")]
assert [answer.get() for answer in answers] == ["A", "B", "C"]
assert time.monotonic() - started > 0.3  # one message at a time, async or not
# endregion


# region concurrent
class Gateway(Actor):
    @concurrent_endpoint
    async def fetch(self, name: str) -> str:
        await asyncio.sleep(0.1)
        return name.upper()


gateway = procs.slice(workers=0).spawn("gateway", Gateway)
assert gateway.fetch.call_one("warm-up").get() == "WARM-UP"
started = time.monotonic()
answers = [gateway.fetch.call_one(name) for name in ("a", "b", "c")]
assert [answer.get() for answer in answers] == ["A", "B", "C"]
assert time.monotonic() - started < 0.3  # three at a time
# endregion


# region bounded
class Crawler(Actor):
    @endpoint(concurrency=8)
    async def fetch(self, name: str) -> str:
        await asyncio.sleep(0.1)
        return name.upper()


# endregion


# region handles
class Caller(Actor):
    def __init__(self, counter: Counter) -> None:
        self.counter = counter

    @endpoint
    def bump(self) -> int:
        return self.counter.add.call_one(100).get()


caller = procs.slice(workers=1).spawn("caller", Caller, counters.slice(workers=0))
assert caller.bump.call_one().get() == 116
# endregion


# region mixed
class Mixed(Actor):
    @endpoint
    def one(self) -> None: ...

    @endpoint
    async def two(self) -> None: ...


try:
    procs.spawn("mixed", Mixed)
except ValueError as error:
    print(error)
# endregion
