"""An actor with coroutines as endpoints: one thread, one event loop, one endpoint at a time.

Three kinds of tasks share the loop: `_main` (construct, wait for the end, clean up), `_serve` (one
endpoint after the other, without a task of its own each), and one task per concurrent endpoint.
Supervision hooks and tasks that the actor made run whenever an endpoint suspends.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections import deque
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any

from ... import config
from ..calls.message import decode_meta
from ..calls.waits import enter_actor
from ..hub.contracts import Origin
from ..hub.pressure import SMALL
from ..net.connection import Connection
from ..supervision.failure import Failure
from ..supervision.ownership import OwnedMesh
from ..wire.frame import EXPLICIT, Frame
from .actor_loop import ActorLoop, limited_tasks
from .cell import ASIDE, ActorCell, report_cleanup_error
from .context import Context, NotYet, current

_YIELD_EVERY = 64  # messages, so that a backlog cannot starve the other tasks of the loop


class Slots:
    """How many invocations of one endpoint run, and which calls of it wait for one to end.

    Waits for nothing.

    Used on the actor's thread. Waiting calls may be taken out on any thread, when the actor ends.
    """

    __slots__ = ("_bound", "_running", "waiting")

    def __init__(self) -> None:
        self._bound = self._running = 0
        self.waiting: deque[tuple[Origin, Frame]] = deque()

    def take(self, bound: int) -> bool:
        """Claim a slot if fewer than `bound` are taken, and return whether it was claimed.

        Args:
            bound: How many may run at a time. Another class may have another one, which counts
                those of the old class, too.
        """
        self._bound = bound
        if self._running >= bound:
            return False
        self._running += 1
        return True

    def give_back(self) -> tuple[Origin, Frame] | None:
        """One has ended: what takes its place, if something waits."""
        if self._running <= self._bound:
            with suppress(IndexError):
                return self.waiting.popleft()
        self._running -= 1
        return None


class AsyncCell(ActorCell):
    """An actor with a loop that waits for `_arrival`: a message ends the wait, or `end` cancels it."""

    loop_kind = ActorLoop

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._loop: ActorLoop | None = None
        self._thread_id: int | None = None
        self._last_origin: Origin | None = None
        self._inbox: deque[tuple[Origin, Frame]]
        self._sleeping = False
        self._arrival: asyncio.Future[None] | None = None
        self._end_seen: asyncio.Future[None] | None = None
        self._concurrent: set[asyncio.Task[None]] = set()
        self._slots: dict[str, Slots] = {}  # of endpoints with a bound on their concurrency
        self._supervising: asyncio.Lock | None = None
        self._early: deque[Callable[[], object]] = deque()
        self._serving: asyncio.Task[None] | None = None

    def receive(self, origin: Origin, frame: Frame) -> None:
        if frame.flags & ASIDE:
            self.heard(origin, frame)
            return
        # before the look at `_sleeping`, as the actor sets that before it looks at the inbox: one
        # of the two sees the other
        self._inbox.append((origin, frame))
        if self._sleeping:
            self._sleeping = False
            if threading.get_ident() == self._thread_id:  # the loop itself read it
                self._wake_serve()
            else:
                self._in_loop(self._wake_serve)
        self.pressure.came(origin, frame)
        if self._ending is not None:
            self._refuse_queued(self._ending)

    def judge(self, failure: Failure, mesh: OwnedMesh) -> None:
        self._in_loop(lambda: self._start_task(self._judge(failure, mesh)))

    def call_soon(self, function: Callable[[], object]) -> None:
        self._in_loop(lambda: self._start_task(self._call_hook(function)))

    def _in_loop(self, callback: Callable[[], object]) -> None:
        """Run on the loop; before there is one the callback waits, after its end it is dropped."""
        with self._lock:
            if self._loop is None:
                self._early.append(callback)
                return
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError:  # the loop is closed: the actor has ended
            pass

    def _next_is(self, function: Callable[[], object]) -> None:
        loop = self._loop
        if loop is not None:
            ready: Any = loop._ready  # type: ignore[attr-defined]  # `call_soon` would append
            ready.appendleft(asyncio.Handle(function, (), loop))

    def _wake(self) -> None:
        self._in_loop(self._see_end)

    def _see_end(self) -> None:
        if self._end_seen is not None and not self._end_seen.done():
            self._end_seen.set_result(None)

    def _wake_serve(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)

    def _drain(self) -> list[tuple[Origin, Frame]]:
        items = []
        for queue in self._queues():
            with suppress(IndexError):  # another thread may drain, too
                while True:
                    items.append(queue.popleft())
        return items

    def _remove(self, item: tuple[Origin, Frame]) -> bool:
        for queue in self._queues():
            with suppress(ValueError):  # it waits in another one, or has just begun
                queue.remove(item)
                (self.pressure.went if queue is self._inbox else self.pressure.taken_up)(item[1])
                return True
        return False

    def _queues(self) -> list[deque[tuple[Origin, Frame]]]:
        return [*(slots.waiting for slots in self._slots.copy().values()), self._inbox]

    def queued(self) -> list[tuple[Origin, Frame]]:
        return [item for queue in self._queues() for item in queue.copy()]

    @property
    def serving(self) -> object:
        return self._serving

    def limited(self) -> Collection[object] | None:
        return () if self._loop is None else limited_tasks(self._loop)

    # on the actor's thread

    def _run(self) -> None:
        enter_actor(self)
        current.set(self._context)
        self._thread_id = threading.get_ident()
        loop = self.loop_kind()
        asyncio.set_event_loop(loop)
        self._end_seen = loop.create_future()
        try:
            self._run_main(loop)
        finally:
            self._finished()
            asyncio.set_event_loop(None)
            loop.close()

    def _run_main(self, loop: ActorLoop) -> None:
        try:
            loop.run_until_complete(self._main())
        except BaseException as error:  # a task raised SystemExit, or cancelled even this one
            self._fail(error)
            with suppress(BaseException):
                loop.run_until_complete(self._end_steps())
        loop.run_until_complete(loop.shutdown_asyncgens())

    async def _main(self) -> None:
        self._supervising = asyncio.Lock()
        loop = asyncio.get_running_loop()
        assert isinstance(loop, ActorLoop)
        with self._lock:
            self._loop = loop
            # under the lock in which `_loop` is set: a callback is either here or goes to the loop
            early, self._early = self._early, deque()
        for callback in early:
            loop.call_soon(callback)
        if self._construct():
            self._serving = loop.create_task(self._serve())
            # an endpoint may cancel the task that runs it: no actor may stay that takes calls and
            # handles none
            self._serving.add_done_callback(self._serve_ended)
        assert self._end_seen is not None
        await self._end_seen
        await self._end_steps()

    def _serve_ended(self, task: asyncio.Task[None]) -> None:
        if self._ending is None:
            error = None if task.cancelled() else task.exception()
            if error is None:
                error = RuntimeError("the task that handles its messages was cancelled")
            self._fail(error)

    async def _end_steps(self) -> None:
        failure = self._refuse_active()
        await _cancel(self._concurrent)
        await self._clean_up(failure)
        if self._serving is not None:
            await _cancel({self._serving})
        await _cancel(asyncio.all_tasks() - {asyncio.current_task()})
        self.actor = None

    async def _clean_up(self, failure: Failure) -> None:
        for stopping in self._stop_owned(failure):
            await asyncio.wait([stopping.as_asyncio()], timeout=config.value("stop_actor_timeout"))
        cleanup = getattr(self.actor, "__cleanup__", None)
        if cleanup is not None:
            try:
                await cleanup(None if failure.is_stop else Exception(failure.explain()))
            except BaseException as error:
                report_cleanup_error(self.record, error)

    async def _serve(self) -> None:
        inbox, pressure = self._inbox, self.pressure
        handle = self._handle
        handled = 0
        self.hub.pulse.serves(self)
        while True:
            while not inbox:
                await self._wait_for_message()
                handled = 0
            try:
                item = inbox.popleft()
            except IndexError:  # the thread that ends this actor drained it
                continue
            self._last_origin = item[0]
            if pressure.paused or len(item[1].payload) > SMALL or item[1].buffers:
                pressure.went(item[1])
            name, _ = decode_meta(item[1].meta)
            attribute: Any = getattr(type(self.actor), name, None)
            if getattr(attribute, "concurrent", False):
                self._start_concurrent(item, name, attribute.concurrency)
            elif (sampler := self.sampler) is None:  # an actor that marks steps gets one
                await handle(*item)
                await self._absorb_cancel()
            elif sampler.gap > 1:
                sampler.gap -= 1
                await handle(*item)
                await self._absorb_cancel()
            else:
                await self._handle_sampled(*item)
                await self._absorb_cancel()
            del item  # what came with a message is not kept until the next one comes
            handled += 1
            if handled % _YIELD_EVERY == 0:
                await asyncio.sleep(0)

    async def _absorb_cancel(self) -> None:
        """An endpoint that cancelled the current task and returned must not cancel the next one."""
        task: Any = self._serving
        if self._ending is not None or task is None:
            return
        if getattr(task, "_must_cancel", False):
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
        if hasattr(task, "uncancel"):  # since Python 3.11 cancellations are counted
            while task.cancelling():
                task.uncancel()

    async def _wait_for_message(self) -> None:
        assert self._loop is not None
        self._arrival = self._loop.create_future()
        self._sleeping = True
        if self._inbox:  # it came before the flag was up, and did not wake us
            self._sleeping = False
            return
        last = self._last_origin
        self._loop.expect(last if isinstance(last, Connection) else None)
        await self._arrival
        if not self.hub.pulse.beating:
            self.hub.pulse.start()

    async def _handle_sampled(self, origin: Origin, frame: Frame) -> None:
        assert self.sampler is not None
        if self.sampler.gap > 1:
            self.sampler.gap -= 1
            await self._handle(origin, frame)
            return
        self.sampler.begin(origin, frame)
        try:
            await self._handle(origin, frame)
        finally:
            self.sampler.done(frame)

    async def _handle(self, origin: Origin, frame: Frame) -> None:
        name, extent = decode_meta(frame.meta)
        here = Context(self, frame.rank, extent, name)
        current.set(here)
        explicit = bool(frame.flags & EXPLICIT)
        task = asyncio.current_task()
        self._active[task] = (origin, frame)
        self.begun[name] += 1
        try:
            try:
                args, kwargs = self._arguments(origin, frame, explicit)
            except NotYet as not_yet:
                await self._until(not_yet)
                args, kwargs = self._arguments(origin, frame, explicit)
            result = await self._invoke(name, args, kwargs)
            if here._hooks:
                result = here._handled(result)
        except (Exception, asyncio.CancelledError) as error:
            here._handled(error=error)
            if self._ending is not None and isinstance(error, asyncio.CancelledError):
                raise
            self._raised(origin, frame, name, error, explicit)
        except BaseException as error:
            here._handled(error=error)
            self._fail(error)
            return  # its caller is answered with the failure
        else:
            if frame.request and not explicit:
                self._answer(origin, frame, name, result)
        self._active.pop(task, None)

    async def _until(self, not_yet: NotYet) -> None:
        loop = asyncio.get_running_loop()
        there = asyncio.Event()

        def wake() -> None:
            with suppress(RuntimeError):  # the loop was closed: the actor has ended
                loop.call_soon_threadsafe(there.set)

        not_yet.subscribe(wake)
        await there.wait()

    async def _invoke(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        method = self._method(name)
        if inspect.iscoroutinefunction(method):
            return await method(self.actor, *args, **kwargs)
        # a plain function, called through as_endpoint, may block as in a sync actor
        asyncio._set_running_loop(None)
        try:
            return method(self.actor, *args, **kwargs)
        finally:
            asyncio._set_running_loop(self._loop)

    def _start_concurrent(self, item: tuple[Origin, Frame], name: str, bound: int | None) -> None:
        slots = None
        if bound is not None:
            slots = self._slots.get(name)
            if slots is None:
                slots = self._slots[name] = Slots()
            if not slots.take(bound):
                slots.waiting.append(item)
                self.pressure.set_aside(*item)
                if self._ending is not None:  # and what waits may have been refused already
                    self._refuse_queued(self._ending)
                return
        self._run_concurrent(item, slots)

    def _run_concurrent(self, item: tuple[Origin, Frame], slots: Slots | None) -> None:
        assert self._loop is not None
        handle = self._handle if self.sampler is None else self._handle_sampled
        task = self._loop.create_task(handle(*item))
        self._concurrent.add(task)
        # the loop holds tasks weakly only: the set keeps it alive, too
        task.add_done_callback(self._concurrent.discard)
        if slots is not None:
            task.add_done_callback(lambda _: self._slot_free(slots))

    def _slot_free(self, slots: Slots) -> None:
        item = slots.give_back()
        if item is not None:
            self.pressure.taken_up(item[1])
            self._run_concurrent(item, slots)

    def queue_again(self) -> None:
        """Look once more at the calls that wait for a slot.

        Their endpoint may have another bound now, or none.
        """
        for slots in self._slots.values():
            with suppress(IndexError):  # the thread that ends this actor may drain, too
                while True:
                    # from the end, and to the front of the inbox: they came before the queued ones,
                    # and keep their order
                    item = slots.waiting.pop()
                    self._inbox.appendleft(item)
                    self.pressure.taken_up(item[1])
                    self.pressure.came(*item)
        if self._ending is not None:  # and what waits may have been refused already
            self._refuse_queued(self._ending)

    def _start_task(self, coroutine: Any) -> None:
        assert self._loop is not None
        self._loop.create_task(coroutine)

    async def _judge(self, failure: Failure, mesh: OwnedMesh) -> None:
        assert self._supervising is not None
        # a hook may await: failures are judged one after the other, in the order in which they came
        async with self._supervising:
            if not self.ownership.cares_for(mesh):  # any more
                return
            current.set(self._context)
            hook = getattr(self.actor, "__supervise__", None)
            try:
                handled = hook is not None and hook(self.public(failure, mesh))
                if inspect.isawaitable(handled):
                    handled = await handled
                self._context._handled()
            except BaseException as error:
                self._context._handled(error=error)
                self.fail_unhandled(failure, error)
            else:
                self._verdict(failure, handled)

    async def _call_hook(self, function: Callable[[], object]) -> None:
        result = function()
        if inspect.isawaitable(result):
            await result


async def _cancel(tasks: set[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait for their end, or for `cleanup_timeout`.

    A task may swallow its cancellation.
    """
    pending = {task for task in tasks if not task.done()}
    for task in pending:
        task.cancel()
    if pending:
        await asyncio.wait(pending, timeout=config.value("cleanup_timeout"))
