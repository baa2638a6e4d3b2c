"""The actors of the tree.

Each counts, checks the order of what it is told, and notes in the journal what befalls it.

All kinds have the same endpoints: `Member` is sync, `AsyncMember` async; those named
`...Supervisor` have `__supervise__`.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from chaos.journal import Disorder, Ended, Heard, Journal
from chaos.outcome import VALUE, Outcome, outcome_of
from monarch.actor import Actor, MeshFailure, Port, context, endpoint, this_host
from monarch.testing import inject


class Boom(Exception):
    """What endpoints raise on purpose."""


class Stamp(NamedTuple):
    """Says of a message who sent it, and which of that sender's it is for each receiving rank."""

    sender: str
    numbers: Mapping[int, int]


class Answer(NamedTuple):
    rank: int
    counter: int
    """What this sender has added up: other senders' messages may come in between."""
    checksum: int
    pid: int


class Settings(NamedTuple):
    journal: Journal
    policy: str
    cleanup_raises: bool
    patience: float


def checksum(payload: Any) -> int:
    """The same for equal payloads: bytes, numpy arrays, None."""
    return 0 if payload is None else zlib.crc32(payload)


def end_process(how: str) -> None:
    if how.startswith("exit "):
        os._exit(int(how.removeprefix("exit ")))
    if how == "SIGKILL":
        inject.Crash().strike()
    os.kill(os.getpid(), signal.Signals[how])


class _Base(Actor):
    """What sync and async members share: everything that does not wait."""

    def __init__(self, settings: Settings) -> None:
        me = context().actor_instance
        faulthandler.register(signal.SIGUSR1)  # how the runner gets the stacks of a proc that hangs
        self.settings = settings
        self.name = me.name
        self.rank = me.rank.rank
        self.counters: dict[str, int] = {}
        self.last: dict[str, int] = {}
        self.held: list[Port[int]] = []
        self.owned: dict[str, Any] = {}

    def check(self, stamp: Stamp) -> None:
        number = stamp.numbers[self.rank]
        expected = self.last.get(stamp.sender, 0) + 1
        if number != expected:
            self.settings.journal.write(
                Disorder(self.name, self.rank, stamp.sender, expected, number)
            )
        self.last[stamp.sender] = number

    def do_add(self, stamp: Stamp, by: int, payload: Any) -> Answer:
        self.check(stamp)
        counter = self.counters[stamp.sender] = self.counters.get(stamp.sender, 0) + by
        return Answer(self.rank, counter, checksum(payload), os.getpid())

    def do_fail(self, stamp: Stamp, text: str) -> None:
        self.check(stamp)
        raise Boom(text)

    def do_end(self, stamp: Stamp, how: str) -> None:
        self.check(stamp)
        if how == "SystemExit":
            inject.Fail().strike()
        if how in ("abort", "kill", "stop"):
            getattr(context().actor_instance, how)("on purpose")
        else:
            end_process(how)

    def do_release(self, stamp: Stamp) -> int:
        self.check(stamp)
        for port in self.held:
            port.send(self.counters.get(stamp.sender, 0))
        count = len(self.held)
        self.held.clear()
        return count

    def do_report(self, stamp: Stamp, port: Port[Any], count: int) -> None:
        self.check(stamp)
        for index in range(count):
            port.send((self.rank, index))

    def do_spawn_procs(self, stamp: Stamp, name: str, sizes: dict[str, int]) -> Any:
        self.check(stamp)
        procs = self.owned[name] = this_host().spawn_procs(per_host=sizes, name=name)
        return procs

    def do_spawn(
        self, stamp: Stamp, procs: Any, name: str, kind: type[Any], settings: Settings
    ) -> Any:
        self.check(stamp)
        actors = self.owned[name] = procs.spawn(name, kind, settings)
        return actors

    def note_failure(self, failure: MeshFailure) -> bool:
        for rank in failure.ranks:
            self.settings.journal.write(
                Heard(
                    self.name,
                    self.rank,
                    failure.mesh_name,
                    rank,
                    failure.cause,
                    failure.signal,
                    failure.exit_code,
                )
            )
        if self.settings.policy == "raises":
            raise Boom("the supervisor stumbled")
        return self.settings.policy == "handles"

    def note_end(self, exc: Exception | None) -> None:
        self.settings.journal.write(Ended(self.name, self.rank, exc is not None))
        if self.settings.cleanup_raises:
            raise Boom("cleaning up stumbled")


class Member(_Base):
    @endpoint
    def add(self, stamp: Stamp, by: int, payload: Any) -> Answer:
        return self.do_add(stamp, by, payload)

    @endpoint
    def fail(self, stamp: Stamp, text: str) -> None:
        self.do_fail(stamp, text)

    @endpoint
    def end(self, stamp: Stamp, how: str) -> None:
        self.do_end(stamp, how)

    @endpoint(explicit_response_port=True)
    def hold(self, port: Port[int], stamp: Stamp) -> None:
        self.check(stamp)
        self.held.append(port)

    @endpoint
    def release(self, stamp: Stamp) -> int:
        return self.do_release(stamp)

    @endpoint
    def report(self, stamp: Stamp, port: Port[Any], count: int) -> None:
        self.do_report(stamp, port, count)

    @endpoint
    def spawn_procs(self, stamp: Stamp, name: str, sizes: dict[str, int]) -> Any:
        return self.do_spawn_procs(stamp, name, sizes)

    @endpoint
    def spawn(
        self, stamp: Stamp, procs: Any, name: str, kind: type[Any], settings: Settings
    ) -> Any:
        return self.do_spawn(stamp, procs, name, kind, settings)

    @endpoint
    def stop_owned(self, stamp: Stamp, name: str) -> None:
        self.check(stamp)
        self.owned.pop(name).stop().get(timeout=self.settings.patience)

    @endpoint
    def relay(
        self, stamp: Stamp, target: Any, adverb: str, inner: Stamp, by: int, payload: Any
    ) -> list[Outcome]:
        """Calls `add` of other actors, and says how that ended."""
        self.check(stamp)
        try:
            answer = getattr(target.add, adverb)(inner, by, payload)
            if adverb == "stream":
                return [self._outcome(future) for future in answer]
            return [Outcome(VALUE) if answer is None else self._outcome(answer)]
        except Exception as error:
            return [outcome_of(error)]

    def _outcome(self, future: Any) -> Outcome:
        try:
            return Outcome(VALUE, future.get(timeout=self.settings.patience))
        except Exception as error:
            return outcome_of(error)

    def __cleanup__(self, exc: Exception | None) -> None:
        self.note_end(exc)


class Supervisor(Member):
    def __supervise__(self, failure: MeshFailure) -> bool:
        return self.note_failure(failure)


class AsyncMember(_Base):
    @endpoint
    async def add(self, stamp: Stamp, by: int, payload: Any) -> Answer:
        answer = self.do_add(stamp, by, payload)
        await asyncio.sleep(0)
        return answer

    @endpoint
    async def fail(self, stamp: Stamp, text: str) -> None:
        self.do_fail(stamp, text)

    @endpoint
    async def end(self, stamp: Stamp, how: str) -> None:
        self.do_end(stamp, how)

    @endpoint(explicit_response_port=True)
    async def hold(self, port: Port[int], stamp: Stamp) -> None:
        self.check(stamp)
        self.held.append(port)

    @endpoint
    async def release(self, stamp: Stamp) -> int:
        return self.do_release(stamp)

    @endpoint
    async def report(self, stamp: Stamp, port: Port[Any], count: int) -> None:
        self.do_report(stamp, port, count)

    @endpoint
    async def spawn_procs(self, stamp: Stamp, name: str, sizes: dict[str, int]) -> Any:
        return self.do_spawn_procs(stamp, name, sizes)

    @endpoint
    async def spawn(
        self, stamp: Stamp, procs: Any, name: str, kind: type[Any], settings: Settings
    ) -> Any:
        return self.do_spawn(stamp, procs, name, kind, settings)

    @endpoint
    async def stop_owned(self, stamp: Stamp, name: str) -> None:
        self.check(stamp)
        await self._bounded(self.owned.pop(name).stop())

    @endpoint
    async def relay(
        self, stamp: Stamp, target: Any, adverb: str, inner: Stamp, by: int, payload: Any
    ) -> list[Outcome]:
        """Calls `add` of other actors, and says how that ended."""
        self.check(stamp)
        try:
            answer = getattr(target.add, adverb)(inner, by, payload)
            if adverb == "stream":
                return [await self._outcome(future) for future in answer]
            return [Outcome(VALUE) if answer is None else await self._outcome(answer)]
        except Exception as error:
            return [outcome_of(error)]

    async def _outcome(self, future: Any) -> Outcome:
        try:
            return Outcome(VALUE, await self._bounded(future))
        except Exception as error:
            return outcome_of(error)

    async def _bounded(self, future: Any) -> Any:
        try:
            return await asyncio.wait_for(future, self.settings.patience)
        except asyncio.TimeoutError as error:  # not the builtin one before Python 3.11
            raise TimeoutError(str(error)) from None

    async def __cleanup__(self, exc: Exception | None) -> None:
        self.note_end(exc)


class AsyncSupervisor(AsyncMember):
    async def __supervise__(self, failure: MeshFailure) -> bool:
        await asyncio.sleep(0)
        return self.note_failure(failure)


def member_class(is_async: bool, policy: str) -> type[_Base]:
    if policy == "absent":
        return AsyncMember if is_async else Member
    return AsyncSupervisor if is_async else Supervisor
