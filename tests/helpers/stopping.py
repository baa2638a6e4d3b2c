"""Actors that stop for the debugger. Their lines are found by the marks at their ends."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import traceback
from typing import Any

from monarch.actor import Actor, MeshFailure, concurrent_endpoint, context, endpoint

# ruff: noqa: T100


class Stopping(Actor):
    """Stops on request, or at once."""

    def __init__(self, early: bool = False) -> None:
        self.spins = True
        self.count = 0
        self.kept: list[Any] = []
        self.goes = threading.Event()
        if early:
            breakpoint()

    @endpoint
    def step(self, number: int, *ranks: int) -> int:
        doubled = number * 2
        if not ranks or context().actor_instance.rank.rank in ranks:
            breakpoint()
        tripled = doubled + number
        return tripled  # noqa: RET504  # which can be changed before

    @endpoint
    def twice(self) -> str:
        breakpoint()
        found = "between"
        breakpoint()
        return found

    @endpoint
    def fail(self, stops: bool) -> None:
        if stops:
            breakpoint()
        raise ValueError("no such thing")

    @endpoint
    def say(self, what: str) -> str:
        return what

    @endpoint
    def spin(self) -> int:
        while self.spins:
            self.count += 1  # spinning
        return self.count

    @endpoint
    def add(self, count: int) -> int:
        total = 0
        for number in range(count):
            total += number  # adding
        return total

    @endpoint
    def compute(self, number: int) -> int:
        breakpoint()
        total = self.double(number)
        for each in range(3):
            total += each
        return total  # the sum

    def double(self, number: int) -> int:
        doubled = number * 2
        return doubled  # noqa: RET504  # a line to step to

    @endpoint
    def is_traced(self) -> bool:
        return sys.gettrace() is not None

    @endpoint
    def step_on(self, other: Any, timeout: float | None = None, of_call: bool = False) -> int:
        step = other.step.options(timeout=timeout) if of_call else other.step
        result: int = step.call_one(1).get(timeout=None if of_call else timeout)
        return result

    @endpoint
    def in_a_thread(self) -> int:
        thread = threading.Thread(target=self._stop)
        thread.start()
        thread.join()
        return self.count

    @endpoint
    def leave_a_thread(self) -> None:
        threading.Thread(target=self._stop_later).start()

    @endpoint
    def go(self) -> None:
        self.goes.set()

    def _stop_later(self) -> None:
        self.goes.wait(20)
        self._stop()

    @endpoint
    def fork_and_stop(self) -> str:
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            try:
                breakpoint()
            except NotImplementedError as error:
                os.write(writing, str(error).encode())
            os._exit(0)
        os.waitpid(child, 0)
        os.close(writing)
        with os.fdopen(reading) as file:
            return file.read()

    def _stop(self) -> None:
        breakpoint()
        self.count = 7

    @endpoint
    def run(self, function: Any) -> Any:
        return function(1)

    @endpoint
    def trace(self, function: Any) -> str:
        try:
            function(1)
        except Exception:
            return traceback.format_exc()
        return ""

    @endpoint
    def own(self, mesh: Any) -> None:
        self.kept.append(mesh)

    @endpoint
    def own_one_that_fails(self) -> None:
        child = context().actor_instance.proc.spawn("child", Failing)
        self.kept.append(child)
        child.fail.broadcast()

    def __supervise__(self, failure: MeshFailure) -> bool:
        self.count = 1
        breakpoint()
        self.count = 2
        return True


class Failing(Actor):
    @endpoint
    def fail(self) -> None:
        raise RuntimeError("on purpose")


class AsyncStopping(Actor):
    """The same on an event loop."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()

    @endpoint
    async def step(self, number: int) -> int:
        doubled = number * 2
        breakpoint()
        await asyncio.sleep(0)
        return doubled

    @concurrent_endpoint
    async def wait_and_stop(self, name: str) -> str:
        breakpoint()
        await self.gate.wait()
        return name + "!"

    @concurrent_endpoint
    async def open(self) -> None:
        self.gate.set()

    @endpoint
    async def fail(self) -> None:
        raise ValueError("no such thing")
