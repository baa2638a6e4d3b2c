"""Actor classes that many tests use.

They cross to procs by reference, which is itself part of what is tested.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from monarch.actor import (
    Actor,
    Channel,
    Point,
    Port,
    PortReceiver,
    ProcMesh,
    context,
    current_rank,
    endpoint,
    this_host,
    this_proc,
)


class Echo(Actor):
    @endpoint
    def say(self, value: Any) -> Any:
        return value

    @endpoint
    def pid(self) -> int:
        return os.getpid()

    @endpoint
    def show(self, text: str) -> None:
        print(text)

    @endpoint
    def exit_at_once(self) -> None:
        os._exit(1)

    @endpoint
    def environment(self, name: str) -> str | None:
        return os.environ.get(name)


class HostUser(Actor):
    @endpoint
    def from_this_host(self) -> tuple[int, list[int]]:
        procs = this_host().spawn_procs(per_host={"n": 2})
        try:
            return os.getpid(), procs.spawn("echo", Echo).pid.call().get().values()
        finally:
            procs.stop().get()

    @endpoint
    def from_this_proc(self) -> tuple[int, int]:
        return os.getpid(), this_proc().spawn("echo", Echo).pid.call_one().get()


class Counter(Actor):
    def __init__(self, value: int = 0) -> None:
        self.value = value

    @endpoint
    def get(self) -> int:
        return self.value

    @endpoint
    def add(self, by: int = 1) -> int:
        self.value += by
        return self.value

    @endpoint
    def describe(self, first: int, /, second: int, *rest: int, key: int, **more: int) -> str:
        return f"{first} {second} {rest} {key} {sorted(more.items())}"


class Ranks(Actor):
    """Says which rank it has, as a message and as an instance."""

    def __init__(self) -> None:
        self.rank_at_start = dict(current_rank())

    @endpoint
    def message_rank(self) -> dict[str, int]:
        return dict(context().message_rank)

    @endpoint
    def message_extent(self) -> dict[str, int]:
        return dict(context().message_rank.extent)

    @endpoint
    def instance_rank(self) -> dict[str, int]:
        return dict(context().actor_instance.rank)

    @endpoint
    def point(self) -> Point:
        return current_rank()

    @endpoint
    def at_start(self) -> dict[str, int]:
        return self.rank_at_start

    @endpoint
    def pid(self) -> int:
        return os.getpid()


class OddError(Exception):
    """Can't be rebuilt from its `args`."""

    def __init__(self, code: int, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail


class KeywordOnlyError(Exception):
    def __init__(self, *, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class HoldsALock(Exception):
    """Can't be pickled at all."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock = threading.Lock()


class RaisesWhenRebuilt(Exception):
    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _refuse_to_rebuild, ("rebuilding refused",)


def _refuse_to_rebuild(text: str) -> Exception:
    raise RuntimeError(text)


class Unpicklable:
    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        raise TypeError("this object stays at home")


class FailsToUnpickle:
    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _refuse_to_rebuild, ("no rebuilding at the receiver",)


class Failing(Actor):
    """Raises on demand, and says whether it is still there."""

    def __init__(self, fail_ranks: tuple[int, ...] = ()) -> None:
        self.fail_ranks = fail_ranks
        self.handled = 0

    @endpoint
    def fail(self, text: str = "on purpose") -> int:
        raise ValueError(text)

    @endpoint
    def fail_by_rank(self) -> int:
        rank = context().actor_instance.rank.rank
        if rank in self.fail_ranks:
            raise ValueError(f"rank {rank} fails")
        return rank

    @endpoint
    def fail_with_cause(self) -> None:
        try:
            raise KeyError("the first problem")
        except KeyError as e:
            raise ValueError("the second problem") from e

    @endpoint
    def fail_oddly(self, kind: str) -> None:
        if kind == "odd":
            raise OddError(7, "seven")
        if kind == "keyword_only":
            raise KeywordOnlyError(reason="because")
        if kind == "holds_a_lock":
            raise HoldsALock("locked up")
        if kind == "raises_when_rebuilt":
            raise RaisesWhenRebuilt("first words")
        if kind == "stop_iteration":
            raise StopIteration(3)
        if kind == "local_class":

            class LocalError(Exception):
                pass

            raise LocalError("made inside a function")
        raise AssertionError(kind)

    @endpoint
    def return_unpicklable(self) -> Any:
        return Unpicklable()

    @endpoint
    def return_lock(self) -> Any:
        return threading.Lock()

    @endpoint
    def take(self, value: Any) -> str:
        return type(value).__name__

    @endpoint
    def alive(self) -> bool:
        self.handled += 1
        return True

    @endpoint
    def exit_by_exception(self) -> None:
        raise SystemExit(3)


class Recorder(Actor):
    """Keeps what it was told, in the order of handling."""

    def __init__(self) -> None:
        self.log: list[Any] = []

    @endpoint
    def record(self, value: Any) -> int:
        self.log.append(value)
        return len(self.log)

    @endpoint
    def recorded(self) -> list[Any]:
        return self.log


class AsyncRecorder(Actor):
    def __init__(self) -> None:
        self.log: list[Any] = []

    @endpoint
    async def record(self, value: Any, pause: float = 0.0) -> int:
        if pause:
            await asyncio.sleep(pause)
        self.log.append(value)
        return len(self.log)

    @endpoint
    async def recorded(self) -> list[Any]:
        return self.log


class Gate(Actor):
    """An endpoint that waits until it is let through, by a file that the test makes: no timing in
    the test.
    """

    def __init__(self) -> None:
        self.passed = 0

    @endpoint
    def wait_for_file(self, path: str, started: Port[int] | None = None) -> str:
        if started is not None:
            started.send(context().actor_instance.rank.rank)
        while not os.path.exists(path):
            time.sleep(0.005)
        self.passed += 1
        return "through"

    @endpoint
    def say(self, value: Any) -> Any:
        return value


class Cleaner(Actor):
    """Reports its `__cleanup__` through a port: (name, the text of the exception or None)."""

    def __init__(self, name: str, report: Port[Any]) -> None:
        self.name = name
        self.report = report
        self.kept: list[Any] = []

    @endpoint
    def ready(self) -> bool:
        return True

    @endpoint
    def spawn_child(self, name: str) -> None:
        """A child on procs of this actor's own."""
        procs = this_host().spawn_procs(per_host={"child": 1})
        child = procs.spawn(name, Cleaner, name, self.report)
        child.ready.call().get()
        self.kept.append((procs, child))

    @endpoint
    def spawn_child_on(self, procs: ProcMesh, name: str) -> None:
        """A child on somebody else's procs."""
        child = procs.spawn(name, Cleaner, name, self.report)
        child.ready.call().get()
        self.kept.append(child)

    @endpoint
    def fail(self) -> None:
        raise ValueError("cleaner fails")

    def __cleanup__(self, exc: Exception | None) -> None:
        self.report.send((self.name, None if exc is None else str(exc)))


class Sender(Actor):
    """Sends through ports it is given."""

    def __init__(self) -> None:
        self.kept: list[Port[Any]] = []

    @endpoint
    def send_all(self, port: Port[Any], values: list[Any]) -> None:
        for value in values:
            port.send(value)

    @endpoint
    def send_from_thread(self, port: Port[Any], values: list[Any]) -> None:
        def send_all() -> None:
            for value in values:
                port.send(value)

        thread = threading.Thread(target=send_all)
        thread.start()
        thread.join()

    @endpoint
    def send_exception(self, port: Port[Any], text: str) -> None:
        port.exception(ValueError(text))

    @endpoint
    def keep(self, port: Port[Any]) -> None:
        self.kept.append(port)

    @endpoint
    def send_kept(self, value: Any) -> None:
        for port in self.kept:
            port.send(value)

    @endpoint
    def return_kept(self) -> list[Port[Any]]:
        return self.kept


class Desk(Actor):
    """Takes questions now and answers them later, from another endpoint."""

    def __init__(self) -> None:
        self.open: list[tuple[str, Port[str]]] = []

    @endpoint(explicit_response_port=True)
    def ask(self, port: Port[str], question: str) -> None:
        self.open.append((question, port))

    @endpoint
    def answer(self, text: str) -> int:
        for question, port in self.open:
            port.send(f"{question}: {text}")
        count = len(self.open)
        self.open.clear()
        return count

    @endpoint
    def refuse(self, text: str) -> None:
        for _, port in self.open:
            port.exception(KeyError(text))
        self.open.clear()

    @endpoint(explicit_response_port=True)
    def ask_and_answer_from_thread(self, port: Port[str], question: str) -> None:
        threading.Thread(target=lambda: port.send(f"{question}: from a thread")).start()

    @endpoint(explicit_response_port=True)
    def raise_instead(self, port: Port[str]) -> None:
        raise ValueError("no answer today")

    @endpoint
    def waiting(self) -> int:
        return len(self.open)


def open_channel() -> tuple[Port[Any], PortReceiver[Any]]:
    """A channel for any kind of value."""
    channel: tuple[Port[Any], PortReceiver[Any]] = Channel[Any].open()
    return channel
