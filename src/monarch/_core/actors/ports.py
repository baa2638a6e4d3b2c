"""Ports: one-way handles that can be sent anywhere, and the receiving end, which stays in its process.

Programs open them with `Channel.open`. The adverbs of endpoints use them for the answers of calls.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..._unsendable import explain
from ..calls.cancelled import cancelled_error
from ..calls.failed_call import Outcome, Reply
from ..calls.future import Future
from ..calls.pending import (
    FutureState,
    PendingOperation,
    has_failed,
    operation_of,
    subscribe,
    unread,
)
from ..calls.promise import Promise
from ..calls.rebuild import read_value
from ..calls.remote_error import format_remote, to_exception
from ..hub import prints
from ..hub.control import SingleAnswer, send_record
from ..hub.control_records import PortNews
from ..hub.open_response import ANSWERED, ARRIVED, GONE, HANDED_ON
from ..hub.pressure import Pressure
from ..supervision.failure import Failure
from ..wire import pickling
from ..wire.address import ProcAddress
from ..wire.frame import DEAD, EXCEPTION, NO_RANK, PORT, URGENT, VALUE, Frame
from .context import context, current_hub, running

if TYPE_CHECKING:
    from ..hub.contracts import Origin
    from ..hub.message_hub import MessageHub

T = TypeVar("T")


class Port(Generic[T]):
    """The sending end.

    Picklable; may be used from any thread, any number of times unless it was opened with ``once``.

    Values of one sender arrive in the order in which it sent them. Sending waits for the receiver
    only while more values than `mailbox_bytes_limit` and `mailbox_limit` allow have not been read;
    a port without a receiver drops the values that are sent to it.
    """

    __slots__ = ("_address", "_frame", "_once", "_used", "return_undeliverable")

    def __init__(self, address: ProcAddress, frame: Frame, once: bool = False) -> None:
        self._address = address
        self._frame = frame
        self._once = once
        self._used = False
        self.return_undeliverable = True

    def send(self, obj: T) -> None:
        """Send one value to the receiver.

        Args:
            obj: The value, pickled now.

        Raises:
            RuntimeError: The port was opened for one value, and that has been sent.
            ValueError: The value is larger than ``codec_max_frame_length``.
            BackpressureError: The port was full, and its receiver read nothing, for
                `message_delivery_timeout` seconds.
            Exception: Raised by pickling the value.
        """
        self._claim_use()
        try:
            payload, buffers = pickling.dumps_value(obj)
            current_hub().check_size(payload, buffers)
        except Exception as error:
            explain(error, "a value for a port cannot be sent")
            raise
        self._await_room()
        self._post(VALUE, payload, buffers)

    def exception(self, exc: BaseException) -> None:
        """Make the matching ``recv()``, or the caller who gave the port, raise `exc`.

        Args:
            exc: The exception, pickled now.

        Raises:
            RuntimeError, BackpressureError: As for `send`.
        """
        self._claim_use()
        told = format_remote(exc).encode(errors="backslashreplace")
        self._await_room()
        self._post(EXCEPTION, pickling.dumps_inline(exc), meta=told)

    def _claim_use(self) -> None:
        if self._once and self._used:
            raise RuntimeError(
                "this port was opened for one value, and that has been sent (OncePortRef already"
                " used)"
            )
        self._used = True

    def _await_room(self) -> None:
        full = current_hub().full
        if full and self._frame.kind == PORT:
            full.wait((self._address,), self._frame.target)

    def _post(
        self,
        flags: int,
        payload: Any,
        buffers: Any = (),
        rank: int | None = None,
        meta: bytes = b"",
    ) -> None:
        hub = current_hub()
        if prints.unshown:
            flags |= prints.flag(self._address, hub.root)
        frame = self._frame._replace(flags=flags, payload=payload, buffers=buffers, meta=meta)
        hub.send_to(self._address, frame if rank is None else frame._replace(rank=rank))

    def _of_rank(self, rank: int) -> Port[T]:
        """This port, for the answers of a rank."""
        return Port(self._address, self._frame._replace(rank=rank), self._once)

    def _as_request(self, proc: ProcAddress, rank: int) -> SingleAnswer:
        """A call to one rank; its answer goes on to this port."""

        def forward(answer: Reply) -> None:
            if isinstance(answer, Failure):
                self._post(DEAD, pickling.dumps_inline(answer), rank=rank)
            else:
                self._post(answer.flags, answer.payload, answer.buffers, answer.rank)

        return SingleAnswer(proc, forward)

    def __repr__(self) -> str:
        return f"<Port {self._frame.request or self._frame.target} of {self._address}>"

    def __reduce__(self) -> Any:
        return Port, (self._address, self._frame, self._once)


class ResponsePort(Port[Any]):
    """The port through which an explicit-port endpoint answers a call, now or later, or a copy.

    It tells the process of the actor that was called what becomes of it: see `open_response`.

    Args:
        address: The process of the caller.
        answer: The frame that answers it.
        called: The process of the actor that was called.
        hub: That of this process.
    """

    __slots__ = ("_called", "_hub")

    def __init__(
        self, address: ProcAddress, answer: Frame, called: ProcAddress, hub: MessageHub
    ) -> None:
        super().__init__(address, answer)
        self._called = called
        self._hub: MessageHub | None = hub

    def _post(self, *args: Any, **kwargs: Any) -> None:
        super()._post(*args, **kwargs)
        if self._hub is not None and self._hub.address != self._called:
            self._tell(ANSWERED)
        self._hub = None

    def __reduce__(self) -> Any:
        if self._hub is None:
            return super().__reduce__()
        message = next(self._hub.port_ids)
        self._tell(HANDED_ON, message)
        return _arrive, (self._address, self._frame, self._called, message)

    def __del__(self) -> None:
        self._tell(GONE)

    def _tell(self, news: int, message: int = 0) -> None:
        """Tell the process of the actor that was called; on any thread, inside of any lock."""
        if self._hub is not None:
            self._hub.poller.call_soon(self._news(self._hub, news, message, 0))

    def _news(self, hub: MessageHub, news: int, message: int, ranks: int) -> Callable[[], None]:
        frame = self._frame
        record = PortNews(self._address, frame.request, frame.rank, news, message, ranks)
        return partial(send_record, hub, self._called, record, flags=URGENT)


def _arrive(address: ProcAddress, answer: Frame, called: ProcAddress, message: int) -> Port[Any]:
    """Make the copy that a message has brought, which counts where an actor runs."""
    here = running()
    if here is None:
        return Port(address, answer)
    hub = here._cell.hub
    port = ResponsePort(address, answer, called, hub)
    # at once: the actor may be about to end its process
    port._news(hub, ARRIVED, message, here.message_rank.extent.nelements)()
    return port


class PortClosed(EOFError):
    """The port has no further value: the actor that opened it has ended."""


class PortReceiver(Generic[T]):
    """The receiving end; belongs to the actor that opened it and ends with it. Not picklable.

    ``async for value in receiver`` gives the values as they come.
    """

    def __init__(self, queue: _Queue, ranked: bool = False) -> None:
        self._queue = queue
        self._ranked = ranked

    def recv(self) -> Future[T]:
        """A future of the next value: places are taken in the order of the ``recv()`` calls.

        A wait that times out gives its place back; reading the same future again takes a new place
        at the end. The future raises EOFError when the actor that opened the port has ended.

        Raises:
            ValueError: The port was opened for one value, and that has been asked for.
        """
        return self._queue.claim(self._ranked)

    def __aiter__(self) -> AsyncIterator[T]:
        """The values, as they come, until the port is closed."""
        return self

    async def __anext__(self) -> T:
        if self._queue.spent:
            raise StopAsyncIteration
        future = self.recv()
        try:
            return await future
        except PortClosed:
            raise StopAsyncIteration from None
        except BaseException:
            self._queue.take_back(future)
            raise

    def tied_to(self, call: Future[Any]) -> PortReceiver[T]:
        """Tie this receiver to a call.

        Once the call has failed and all earlier values are read, `recv` raises its error.

        A sender that dies ends no port, as others may send as well. So tie a port that you give to
        a call to that call: ``port, pages = Channel.open()``, then
        ``pages.tied_to(crawlers.crawl.call(port))``.

        Args:
            call: The future of the call.

        Returns:
            This receiver.

        Raises:
            TypeError: `call` is no future.
        """
        if not isinstance(call, Future):
            raise TypeError(f"a receiver is tied to the future of a call, got {call!r}")
        self._queue.tie(call)
        return self

    def ranked(self) -> PortReceiver[tuple[int, T]]:
        """Return this port as one of ``(rank, value)`` pairs, for answers to `send`."""
        return PortReceiver(self._queue, ranked=True)

    def __repr__(self) -> str:
        return f"<PortReceiver {self._queue.describe()}>"

    def __reduce__(self) -> Any:
        raise TypeError(
            "cannot pickle a PortReceiver: it stays with the actor that opened it. Send the Port"
            " instead"
        )


class Channel(Generic[T]):
    """Opens ports in the current actor."""

    @staticmethod
    def open(once: bool = False) -> tuple[Port[T], PortReceiver[T]]:
        """Open a port; return it and its receiver.

        Args:
            once: For exactly one value.
        """
        queue = _Queue(once)
        return queue.port(), PortReceiver(queue)

    @staticmethod
    def open_ranked(once: bool = False) -> tuple[Port[T], PortReceiver[tuple[int, T]]]:
        """As `open`; the receiver gives ``(rank, value)``, for answers to `send`.

        Args:
            once: As for `open`.
        """
        queue = _Queue(once)
        return queue.port(), PortReceiver(queue, ranked=True)


class _Queue:
    """Values that arrived, and futures that wait for some.

    Held by the hub while its receiver lives.

    A future is completed under the lock, so that it either waits or is done: in between, a reader
    would give it a second place, and the value for that would be lost; and a reader that times out
    would miss the value just taken for it.
    """

    def __init__(self, once: bool) -> None:
        cell = context()._cell
        self._hub = cell.hub
        self._hub.listen()  # a client that has no procs may be sent to
        self._once = once
        self._claimed = False
        self._lock = threading.RLock()  # a callback may ask for the next value
        self._frames: deque[Frame] = deque()
        # weak: a future that no one holds any more must not take a value with it
        self._waiting: deque[weakref.ref[FutureState]] = deque()
        self._closed: str | None = None
        self._failed: Future[Any] | None = None  # the call that it is tied to, once that has failed
        self.id = next(self._hub.port_ids)
        self._pressure = Pressure(self.id, self._frames)
        self._hub.ports[self.id] = _Sink(self)
        weakref.finalize(self, _forget, self._hub, self.id, self._pressure)
        cell.ports.add(self)

    def port(self) -> Port[Any]:
        frame = Frame(PORT, VALUE, NO_RANK, self.id, 0, 0, b"", b"")
        return Port(self._hub.address, frame, self._once)

    def claim(self, ranked: bool) -> Future[Any]:
        with self._lock:
            if self._once and self._claimed:
                raise ValueError("OncePort is already used: this port was opened for one value")
            self._claimed = True
            promise: Promise[Any] = Promise(_Claim(self, ranked))
            self._enlist(promise.future)
        return promise.future

    def enlist_again(self, future: FutureState) -> None:
        """Give a future that had given its place back the next value, or a place at the end.

        A future that did not keeps what it has.
        """
        with self._lock:
            if operation_of(future) is not None and all(
                entry() is not future for entry in self._waiting
            ):
                self._enlist(future)

    def _enlist(self, future: FutureState) -> None:
        if self._frames:
            frame = self._frames.popleft()
            self._pressure.went(frame)
            self._give(future, frame)
        elif self._failed is not None:
            self._fail(future, self._failed)
        elif self._closed is not None:
            Promise.of(future).reject(PortClosed(self._closed))
        elif self._hub.end is not None:
            Promise.of(future).reject(PortClosed(f"Port closed: {self._hub.end.reason}"))
        else:
            self._waiting.append(weakref.ref(future))

    def withdraw(self, future: FutureState) -> bool:
        """Take a future off the list; False if it is not there."""
        with self._lock:
            for entry in self._waiting:
                if entry() is future:
                    self._waiting.remove(entry)
                    return True
        return False

    def take_back(self, future: FutureState) -> None:
        """Put back a value that was given to a future just when its reader was cancelled."""
        with self._lock:
            frame = unread(future)
            if frame is not None:
                waiting = self._next_waiting()
                if waiting is None:
                    self._frames.appendleft(frame)
                    self._pressure.put_back(frame)
                else:
                    self._give(waiting, frame)

    def arrived(self, origin: Origin, frame: Frame) -> None:
        with self._lock:
            future = self._next_waiting()
            if future is None:
                self._frames.append(frame)
                # here, the thread that sends may be the one that is to read
                if origin.peer != self._hub.address:
                    self._pressure.came(origin, frame)
            else:
                self._give(future, frame)

    def _next_waiting(self) -> FutureState | None:
        future = None
        while self._waiting and future is None:
            future = self._waiting.popleft()()
        return future

    @property
    def spent(self) -> bool:
        """True if no further value will come, as the port was made for one."""
        return self._once and self._claimed

    def close(self, reason: str) -> None:
        with self._lock:
            self._closed = f"Port closed: {reason}"
            while (future := self._next_waiting()) is not None:
                Promise.of(future).reject(PortClosed(self._closed))

    def tie(self, call: Future[Any]) -> None:
        """Let those who wait at this port hear of the failure of a call."""
        here = weakref.ref(self)

        def ended() -> None:
            queue = here()
            if queue is not None and has_failed(call):
                queue._end_with(call)

        subscribe(call, ended)

    def _end_with(self, call: Future[Any]) -> None:
        with self._lock:
            self._failed = call
            while (future := self._next_waiting()) is not None:
                self._fail(future, call)

    @staticmethod
    def _fail(future: FutureState, call: Future[Any]) -> None:
        def read(_: object) -> Any:
            raise Outcome(
                call.exception() or EOFError("the call that the receiver is tied to has ended")
            )

        Promise.of(future).resolve(None, read)

    def describe(self) -> str:
        return f"{self.id}: {len(self._frames)} values queued"

    @staticmethod
    def _give(future: FutureState, frame: Frame) -> None:
        claim = operation_of(future)
        Promise.of(future).resolve(frame, claim.read if isinstance(claim, _Claim) else None)


class _Sink:
    """The receiver registered in the hub.

    It holds the port weakly, so that a forgotten receiver ends its port.
    """

    def __init__(self, queue: _Queue) -> None:
        self._queue = weakref.ref(queue)

    def arrived(self, origin: Origin, frame: Frame) -> None:
        queue = self._queue()
        if queue is not None:
            queue.arrived(origin, frame)


def _forget(hub: MessageHub, port: int, pressure: Pressure) -> None:
    """A receiver is gone. On any thread, inside of any lock, as garbage is collected anywhere."""
    hub.ports.pop(port, None)
    if pressure.paused:
        # it sends, which a finalizer must not: it may run inside of any lock
        hub.poller.call_soon(pressure.release)


class _Claim(PendingOperation):
    """A place in a port's queue."""

    __slots__ = ("_queue", "_ranked")
    name = "a value on a port"

    def __init__(self, queue: _Queue, ranked: bool) -> None:
        self._queue = queue
        self._ranked = ranked

    def describe(self) -> str:
        return f"a value on port {self._queue.id}"

    def observed(self, future: FutureState, loop: Any) -> None:
        self._queue.enlist_again(future)

    def cancel(self, future: FutureState) -> bool:
        waited = self._queue.withdraw(future)
        if waited:
            Promise.of(future).reject(cancelled_error(self.describe()))
        return waited

    def abandoned(self, future: FutureState) -> None:
        self._queue.withdraw(future)

    def read(self, frame: Frame) -> Any:
        if frame.flags != VALUE:
            raise Outcome(to_exception(frame, "a call that answers to a port"))
        value = read_value(frame)
        if not self._ranked:
            return value
        if frame.rank == NO_RANK:
            raise ValueError(
                "this value carries no rank: a ranked receiver takes answers to send(), not bare"
                " port.send()"
            )
        return frame.rank, value
