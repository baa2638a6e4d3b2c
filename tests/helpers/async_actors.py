"""Actor classes with async endpoints."""

from __future__ import annotations

import asyncio

from monarch.actor import Actor, Port, concurrent_endpoint, endpoint


class Sequential(Actor):
    def __init__(self) -> None:
        self.running = 0
        self.most = 0

    @endpoint
    async def pause(self, seconds: float) -> int:
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(seconds)
        self.running -= 1
        return self.most


class Concurrent(Actor):
    def __init__(self) -> None:
        self.running = 0
        self.most = 0
        self.started: list[int] = []
        self.event = asyncio.Event()

    @concurrent_endpoint
    async def pause(self, seconds: float) -> int:
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(seconds)
        self.running -= 1
        return self.most

    @concurrent_endpoint
    async def start(self, number: int) -> int:
        self.started.append(number)
        await self.event.wait()
        return number

    @endpoint
    async def let_go(self) -> None:
        self.event.set()

    @endpoint
    async def started_so_far(self) -> list[int]:
        return self.started

    @concurrent_endpoint
    async def fail(self) -> None:
        await asyncio.sleep(0)
        raise ValueError("concurrent failure")

    @concurrent_endpoint
    async def wait_for_ever(self, port: Port[str]) -> None:
        port.send("started")
        try:
            await asyncio.Event().wait()
        finally:
            port.send("cancelled")

    @concurrent_endpoint(explicit_response_port=True)
    async def answer(self, port: Port[int], x: int) -> None:
        port.send(x)

    async def __cleanup__(self, exc: Exception | None) -> None:
        self.started.clear()


class Cancelled(Actor):
    @endpoint
    async def cancel_yourself(self) -> None:
        raise asyncio.CancelledError("from inside")

    @endpoint
    async def await_something_cancelled(self) -> None:
        task = asyncio.get_running_loop().create_task(asyncio.sleep(60))
        task.cancel()
        await task

    @concurrent_endpoint
    async def cancel_concurrently(self) -> None:
        raise asyncio.CancelledError

    @endpoint
    async def alive(self) -> bool:
        return True
