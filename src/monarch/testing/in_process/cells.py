"""Actors with threads that take turns."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from typing import Any

from ..._core.actors.actor_loop import ActorLoop, ReadingSelector
from ..._core.actors.async_cell import AsyncCell
from ..._core.actors.proc_service import ProcService
from ..._core.actors.sync_cell import SyncCell
from ..._core.hub.message_hub import MessageHub
from ..._core.supervision.failure import Failure
from .hub import LocalHub
from .turns import Killed, Turn, Turns, my_turn

_LOOK = 0.001  # seconds between two looks at waits for things outside


class Quiet:
    """Stands for an `ActorPulse`, and does nothing.

    A look once a second would never let the clock come to rest.
    """

    beating = True
    hooks: list[Callable[[], None]] = []  # never called
    ticks = 0

    def start(self) -> None: ...

    def serves(self, cell: object) -> None: ...

    def since(self, uid: int, item: object) -> None: ...


class LocalService(ProcService):
    """The control records of a proc, or of the client, with actors that take turns."""

    def __init__(self, hub: MessageHub) -> None:
        super().__init__(hub)
        hub.pulse = Quiet()

    def cell_class(self, is_async: bool) -> type[SyncCell | AsyncCell]:
        return LocalAsyncCell if is_async else LocalSyncCell


def _alive(cell: Any) -> bool:
    hub: LocalHub = cell.hub
    return hub.alive


class LocalSyncCell(SyncCell):
    """Ends without a word with a proc that is killed."""

    def end(self, failure: Failure) -> None:
        if _alive(self):
            super().end(failure)

    def _finish(self) -> None:
        if _alive(self):
            super()._finish()


class LocalLoop(ActorLoop):
    """An event loop that waits by giving up the turn, with the time of the schedule."""

    def __init__(self) -> None:
        super().__init__()
        self._selector: Any = _Selector(self.reading)

    def time(self) -> float:
        turns: Turns = self._selector.turns
        return turns.now

    def _write_to_self(self) -> None:
        # what `call_soon_threadsafe` wakes it with; there is no public way
        super()._write_to_self()  # type: ignore[misc]
        self._selector.wake()

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., Any], *args: Any
    ) -> Any:
        turns: Turns = self._selector.turns
        turns.outside(1)
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(lambda _: turns.outside(-1))
        return future


class _Selector:
    def __init__(self, real: ReadingSelector) -> None:
        self._real = real
        turn = my_turn()
        assert turn is not None
        self._turn: Turn = turn
        self.turns: Turns = turn.turns

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def wake(self) -> None:
        self.turns.wake(self._turn)

    def select(self, timeout: float | None = None) -> Any:
        real = len(self._real.get_map()) > 1  # sockets, beside what `wake` stands for
        found = self._real.select(_LOOK if real and timeout != 0 else 0)
        if found or (timeout is not None and timeout <= 0):
            return found
        limit = min(_LOOK if real else math.inf, math.inf if timeout is None else timeout)
        self.turns.pause(self._turn, None if limit == math.inf else self.turns.now + limit)
        return self._real.select(0)


class LocalAsyncCell(AsyncCell):
    """Ends without a word with a proc that is killed."""

    loop_kind = LocalLoop

    def end(self, failure: Failure) -> None:
        if _alive(self):
            super().end(failure)

    async def _end_steps(self) -> None:
        if _alive(self):
            await super()._end_steps()

    def _run_main(self, loop: ActorLoop) -> None:
        with suppress(Killed):
            super()._run_main(loop)
        if not _alive(self):
            # they will not run to their end, of which asyncio would warn
            for task in asyncio.all_tasks(loop):
                # there is no public way
                task._log_destroy_pending = False  # type: ignore[attr-defined]

    def _finished(self) -> None:
        if _alive(self):
            super()._finished()
