"""An actor with plain functions as endpoints.

One thread, one message at a time, no event loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from ... import config
from ..calls.message import decode_meta
from ..calls.waits import enter_actor
from ..hub.contracts import Origin
from ..hub.pressure import SMALL
from ..net.connection import Connection
from ..net.waiter import Waiter, put_back, take_waiter
from ..supervision.failure import Failure
from ..supervision.ownership import OwnedMesh
from ..wire.frame import EXPLICIT, Frame
from .cell import ASIDE, ActorCell, report_cleanup_error
from .context import Context, current

if TYPE_CHECKING:
    import asyncio


class SyncCell(ActorCell):
    """The cell of an actor with plain endpoints.

    While its thread waits for the next message, it reads the connection that the last one came
    over.

    What ends that wait: a message, a supervision event, or `end`, all of which come through the
    mailbox.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._inbox: deque[tuple[Origin, Frame] | None]
        # one per message: this can wait, `_inbox` can be looked into
        self._arrivals = self.hub.queue()
        # set while the thread waits at a connection, not at the mailbox
        self._waiter: Waiter | None = None
        self._first: deque[Callable[[], object]] = deque()  # what runs before the next message
        # while an endpoint runs one, by `run_awaitable`
        self._loop: asyncio.AbstractEventLoop | None = None

    def receive(self, origin: Origin, frame: Frame) -> None:
        if frame.flags & ASIDE:
            self.heard(origin, frame)
            return
        self._put((origin, frame))
        self.pressure.came(origin, frame)
        if self._ending is not None:
            self._refuse_queued(self._ending)
            self._wake()  # the wake-up that `end` queued may have been taken out with the messages

    def judge(self, failure: Failure, mesh: OwnedMesh) -> None:
        self.call_soon(lambda: self._judge(failure, mesh))

    def call_soon(self, function: Callable[[], object]) -> None:
        # before the wake-up: the thread looks at `_first` after each item
        self._first.append(function)
        self._wake()

    def _next_is(self, function: Callable[[], object]) -> None:
        self._first.appendleft(function)
        self._inbox.append(None)
        self._arrivals.put(None)

    def _wake(self) -> None:
        self._put(None)

    def _put(self, item: tuple[Origin, Frame] | None) -> None:
        # before the token: the thread that gets a token expects to find an item
        self._inbox.append(item)
        self._arrivals.put(None)
        if self._waiter is not None:
            self._waiter.wake()

    def _drain(self) -> list[tuple[Origin, Frame]]:
        items = [self._pop() for _ in _drain_queue(self._arrivals)]
        return [item for item in items if item is not None]

    def _pop(self) -> tuple[Origin, Frame] | None:
        try:
            return self._inbox.popleft()
        except IndexError:  # one was taken out, as its caller has cancelled it
            return None

    def _remove(self, item: tuple[Origin, Frame]) -> bool:
        try:
            self._inbox.remove(item)
        except ValueError:  # it has just begun
            return False
        self.pressure.went(item[1])
        return True

    def run_awaitable(self, awaitable: Awaitable[object]) -> None:
        """Wait for something async in an endpoint; while that waits, the endpoint does."""
        import asyncio

        asyncio.run(self._await(awaitable))

    async def _await(self, awaitable: Awaitable[object]) -> None:
        import asyncio

        self._loop = asyncio.get_running_loop()
        self._active[asyncio.current_task()] = self._active.pop(None)  # waits are noted by task
        try:
            await awaitable
        finally:
            self._active[None] = self._active.pop(asyncio.current_task())
            self._loop = None

    def limited(self) -> Collection[object] | None:
        if self._loop is None:
            return ()
        from .actor_loop import limited_tasks

        return limited_tasks(self._loop)

    def queued(self) -> list[tuple[Origin, Frame]]:
        return [item for item in self._inbox.copy() if item is not None]

    def _run(self) -> None:
        enter_actor(self)
        current.set(self._context)
        try:
            if self._construct():
                self._serve()
        except BaseException as error:
            # nothing of ours may leave an actor that takes calls and handles none
            self._fail(error)
        finally:
            self._finish()

    def _serve(self) -> None:
        first, pressure = self._first, self.pressure
        handle = self._handle
        last: Origin | None = None
        self.hub.pulse.serves(self)
        while True:
            item = self._next(last)
            last = item[0] if item is not None else None
            while first and self._ending is None:
                first.popleft()()
            if self._ending is not None:
                if item is not None:
                    self.hub.refuse(*item, self._ending)
                return
            if item is not None:
                if pressure.paused or len(item[1].payload) > SMALL or item[1].buffers:
                    pressure.went(item[1])
                sampler = self.sampler  # an actor that marks steps gets one meanwhile
                if sampler is None:
                    handle(*item)
                elif sampler.gap > 1:
                    sampler.gap -= 1
                    handle(*item)
                else:
                    sampler.begin(*item)
                    handle(*item)
                    sampler.done(item[1])
            item = None  # what came with a message is not kept until the next one comes

    def _next(self, last: Origin | None) -> tuple[Origin, Frame] | None:
        """The next message, or None for a wake-up."""
        if self._inbox:
            self._arrivals.get()
            return self._pop()
        if isinstance(last, Connection):
            self._read_until_message(last)
        self._arrivals.get()
        if not self.hub.pulse.beating:
            self.hub.pulse.start()
        return self._pop()

    def _read_until_message(self, connection: Connection) -> None:
        if not connection.borrow():
            return
        try:
            waiter = take_waiter()
        except OSError:  # out of descriptors: the poller's thread reads, as it always can
            connection.give_back()
            return
        self._waiter = waiter
        try:
            while not self._inbox and connection.readable_by_borrower:
                if waiter.wait(connection.fd, None):
                    connection.receive()
        except BaseException as error:
            connection.give_back(error)
            raise
        finally:
            self._waiter = None
            put_back(waiter)
        connection.give_back()

    def _handle(self, origin: Origin, frame: Frame) -> None:
        name, extent = decode_meta(frame.meta)
        here = Context(self, frame.rank, extent, name)
        current.set(here)
        explicit = bool(frame.flags & EXPLICIT)
        self._active[None] = (origin, frame)
        self.begun[name] += 1
        try:
            args, kwargs = self._arguments(origin, frame, explicit)
            result = self._method(name)(self.actor, *args, **kwargs)
            if here._hooks:
                result = here._handled(result)
        except Exception as error:
            here._handled(error=error)
            self._raised(origin, frame, name, error, explicit)
        except BaseException as error:
            here._handled(error=error)
            self._fail(error)
            return  # its caller is answered with the failure
        else:
            if frame.request and not explicit:
                self._answer(origin, frame, name, result)
        self._active.clear()

    def _judge(self, failure: Failure, mesh: OwnedMesh) -> None:
        if not self.ownership.cares_for(mesh):  # any more
            return
        current.set(self._context)
        hook = getattr(self.actor, "__supervise__", None)
        try:
            handled = hook is not None and hook(self.public(failure, mesh))
            self._context._handled()
        except BaseException as error:
            self._context._handled(error=error)
            self.fail_unhandled(failure, error)
        else:
            self._verdict(failure, handled)

    def _finish(self) -> None:
        current.set(self._context)
        failure = self._refuse_active()
        for stopping in self._stop_owned(failure):
            with suppress(TimeoutError):
                stopping.exception(timeout=config.value("stop_actor_timeout"))
        cleanup = getattr(self.actor, "__cleanup__", None)
        if cleanup is not None:
            try:
                cleanup(None if failure.is_stop else Exception(failure.explain()))
            except BaseException as error:
                report_cleanup_error(self.record, error)
        self.actor = None
        self._finished()


def _drain_queue(queue: SimpleQueue[Any]) -> list[Any]:
    """Everything queued right now."""
    items = []
    while True:
        try:
            items.append(queue.get_nowait())
        except Empty:
            return items
