"""The cell of an actor: its mailbox, its start and its end.

`proc_service` makes one for each actor that its proc is asked to spawn. `ActorCell` is the common
part; the subclasses in `sync_cell` and `async_cell` add the thread.

Life of a cell::

    constructing ──▶ serving ──▶ ending ──▶ ended
         └── raised ─────────────▲

Ending, in this order: queued calls are answered with the reason, and the owner hears of a failure,
at once; the message in progress ends; owned meshes are stopped, youngest first; ``__cleanup__``
runs; those who asked for the stop are told. `cleanup_timeout` after a stop was asked for, the cell
counts as ended, even if its thread still runs.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ... import config
from ..._guards.surroundings import explained, refuse_gevent
from ..._namedtuple import NamedTuple
from ..._unsendable import explain
from ...errors import BackpressureError
from ..calls.exception_pickle import dump_exception
from ..calls.future import Future
from ..calls.message import SUPERVISE, answer_to, decode_meta
from ..calls.rebuild import read_value
from ..calls.remote_error import format_remote
from ..calls.waits import WaitRecord
from ..extension import keep_raised
from ..hub import life
from ..hub.contracts import Origin
from ..hub.message_hub import MessageHub
from ..hub.pressure import Pressure
from ..hub.spawn_requests import CreatorInstance, SpawnSpec
from ..shape import Point
from ..supervision.failure import EXCEPTION, HOST, STOPPED, UNHANDLED, Failure
from ..wire import pickling
from ..wire.address import ActorAddress
from ..wire.frame import CANCEL, CANCELLED, URGENT, Frame
from . import sampling
from .actor import OWN_METHODS
from .answering_cell import AnsweringCell
from .context import Context

if TYPE_CHECKING:
    from .gate import Gate

ASIDE = URGENT | CANCEL
"""Flags of messages that do not go into the mailbox."""


class ActorCell(AnsweringCell):
    """One spawned actor, without its thread.

    Args:
        spec: The spawned actor mesh.
        rank: Which rank of it this is.
        init: Pickle and buffers of the class and its constructor's arguments.
        on_failed: Told of a failure in place of the owner, for actors without an owner.

    Attributes:
        begun: How many calls it has begun to handle, by endpoint; `raised`: how many of these have
            raised.
        sampler: Looks at some of them; None without telemetry.
    """

    def __init__(
        self,
        hub: MessageHub,
        spec: SpawnSpec,
        rank: int,
        init: tuple[Any, list[Any]],
        on_failed: Callable[[Failure], None] | None = None,
    ) -> None:
        record = CreatorInstance(
            spec.name, spec.class_name, Point(rank, spec.extent), spec.proc_mesh, spec.creator
        )
        super().__init__(hub, spec.uid, record)
        self._spec = spec
        self._init: tuple[Any, list[Any]] | None = init
        self.classes = {}
        self._on_failed = on_failed
        self._context = Context(self, rank, spec.extent)
        self._lock = threading.Lock()
        self._ending: Failure | None = None
        self._ended = False
        self._when_ended: list[Callable[[], None]] = []
        self._inbox: deque[Any] = deque()  # messages received and not begun
        self.pressure = Pressure(spec.uid, self._inbox)
        self.begun: defaultdict[str, int] = defaultdict(int)
        self.raised: dict[str, tuple[int, int]] = {}  # by endpoint: how often, and when last, in µs
        # by activity: the thread (None), or a task
        self._active: dict[object, tuple[Origin, Frame]] = {}
        self.waits: dict[object, WaitRecord] = {}  # by activity as well
        self.detector = hub.detector
        self.on_finished: Callable[[], None] | None = None
        self.actor: Any = None
        self._thread: threading.Thread | None = None
        self.gate: Gate | None = None  # while it waits for the bootstrap function
        self.sampler = sampling.start(hub)
        life.remember(hub.address, spec.uid, life.CREATED)

    @property
    def incarnation(self) -> int:
        return self._spec.incarnation

    @property
    def ending(self) -> Failure | None:
        return self._ending

    def own_failure(
        self, cause: str, reason: str, source: Failure | None = None, error: bytes = b""
    ) -> Failure:
        failure = super().own_failure(cause, reason, source, error)
        return failure._replace(restarts=self._spec.restarts, incarnation=self._spec.incarnation)

    # its end

    def end(self, failure: Failure) -> None:
        with self._lock:
            if self._ending is not None:
                return
            self._ending = failure
        life.remember(self.hub.address, self.uid, life.STOPPING, failure.reason)
        try:
            self._close_inbox(failure)
        finally:
            self._wake()
        # bounds the end: the thread may be busy in user code, and callers must not wait for that
        self.hub.poller.call_later(config.value("cleanup_timeout"), self._finished)

    def stop(self, failure: Failure, done: Callable[[], None]) -> None:
        """Stop on request; `done` is called when it has ended, within `cleanup_timeout`."""
        with self._lock:
            ended = self._ended
            if not ended:
                self._when_ended.append(done)
        if ended:
            done()
        self.end(failure)

    def stop_itself(self, reason: str) -> None:
        failure = self.own_failure(STOPPED, reason)._replace(restarts=False)
        if self._on_failed is None:
            # first: a caller that is refused from now on must not know more than the owner
            self._tell_owner(failure)
        self.end(failure)

    def abandon(self) -> None:
        super().abandon()
        self._next_is(_end_child)

    def _next_is(self, function: Callable[[], object]) -> None:
        """Have this called first as soon as the code that runs gives control back."""
        raise NotImplementedError

    def _fail(self, error: BaseException) -> None:
        self.end(self.own_failure(EXCEPTION, format_remote(error), error=dump_exception(error)))

    def _wake(self) -> None:
        raise NotImplementedError

    def _close_inbox(self, failure: Failure) -> None:
        """Close the inbox at once, even while the thread is busy: the first step of the end."""
        self.hub.actors.unregister(self.uid, failure)
        self._refuse_queued(failure)
        if not failure.is_stop and failure.cause != HOST:  # of which the agent tells
            self._tell_owner(failure)

    def _refuse_queued(self, failure: Failure) -> None:
        for origin, frame in self._drain():
            self.hub.refuse(origin, frame, failure)
        self.pressure.release()  # also those who were told to wait at this very moment

    def _stop_owned(self, failure: Failure) -> Iterator[Future[Any]]:
        """Stop what it owns, one by one, youngest first; from now on it owns nothing more."""
        reason = failure.reason if failure.is_stop else f"its owner {self.record} failed"
        with self._owning:
            owned = self.ownership.ended()
        for mesh in owned:
            yield mesh.stop(reason)

    def _refuse_active(self) -> Failure:
        """Second step: answer the calls in progress that will not be."""
        failure = self._ending
        if failure is None:  # its thread ended without being asked to
            failure = self.own_failure(EXCEPTION, "its thread ended unexpectedly")
            self.end(failure)
        active, self._active = self._active, {}
        for origin, frame in active.values():
            self.hub.refuse(origin, frame, failure)
        self.hub.refuse_open_responses(self.uid, failure)
        return failure

    def _drain(self) -> list[tuple[Origin, Frame]]:
        raise NotImplementedError

    def _tell_owner(self, failure: Failure) -> None:
        if self._on_failed is not None:
            self._on_failed(failure)
            return
        owner = self._spec.owner
        content = pickling.dumps(failure)
        # urgent: it passes by the window of a full mailbox, which an owner that is stuck would
        # never empty
        self.hub.cast([owner.proc], owner.uid, SUPERVISE, content, None, self.uid, URGENT)

    def _finished(self) -> None:
        """Last step of the end, or the bound on it."""
        with self._lock:
            if self._ended:
                return
            self._ended = True
            waiting, self._when_ended = self._when_ended, []
        failure = self._refuse_active()  # its thread may not have got there in time
        life.remember_end(self.hub.address, failure, self.uid)
        for _ in self._stop_owned(failure):
            pass
        if self.on_finished is not None:
            self.on_finished()
        for port in list(self.ports):
            port.close(f"the actor that opened it, {self.record}, has ended")
        for done in waiting:
            done()

    # its start

    def start(self) -> None:
        """Start its thread."""
        self._thread = self.hub.thread(target=self._run, name=f"monarch-actor-{self.record.name}")
        try:
            self._thread.start()
        except RuntimeError as error:
            raise explained(error, "the actor's thread") from None

    @property
    def thread(self) -> int | None:
        """The thread's identifier, as `threading.get_ident` has it; None before it has started."""
        return None if self._thread is None else self._thread.ident

    def miss_thread(self) -> None:
        """The actor has failed if its thread has vanished.

        Python does not know: to `is_alive`, it lives.
        """
        number = None if self._thread is None else self._thread.native_id
        if number is None or thread_lives(number):
            return
        with self._lock:
            if self._ended:  # as it should, and its thread with it
                return
        reason = (
            "its thread has vanished: code in C has ended it (pthread_exit), or a system call has"
        )
        self.end(self.own_failure(EXCEPTION, reason))
        self._finished()

    def _run(self) -> None:
        """Run the actor's loop on its thread, until the actor ends."""
        raise NotImplementedError

    def try_to_start(self) -> None:
        """Start its thread unless it was stopped; it fails where the system has no thread left."""
        if self._ending is not None:
            self._finished()
            return
        try:
            self.start()
        except RuntimeError as error:
            self._fail(error)
            self._finished()

    def discard(self, answer: Callable[[Origin, Frame], None]) -> None:
        """End an actor that never runs, since its precondition failed, which alone is a failure."""
        with self._lock:
            self._ending = self._ending or Failure(
                STOPPED, "it was never started", str(self.record)
            )
        for origin, frame in self._drain():
            answer(origin, frame)
        self._finished()

    # handling messages

    def _construct(self) -> bool:
        """Unpickle the class and its arguments, and call it; False if that failed."""
        assert self._init is not None
        life.remember(self.hub.address, self.uid, life.INITIALIZING)
        try:
            try:
                cls, args, kwargs = pickling.loads(*self._init)
            except Exception as error:
                where = f"in {self._place}, where its module must be importable"
                explain(error, f"the class could not be read {where}")
                raise
            # it may be large, and is not needed again: a restart sends another
            self._init = None
            refuse_gevent()  # its module may have patched this process just now
            self.actor = cls(*args, **kwargs)
            self._context._handled()
            life.remember(self.hub.address, self.uid, life.IDLE)
        except BaseException as error:
            self._context._handled(error=error)
            if config.value("debug_on_error"):
                keep_raised(error)
            self._fail(error)
            return False
        return True

    @property
    def _place(self) -> str:
        mesh = self.record.proc_mesh
        return f"proc {mesh.name}{self.record.rank!r}" if mesh is not None else "the client"

    def _method(self, name: str) -> Any:
        if name[0] == "\0":
            return OWN_METHODS[name]
        attribute = getattr(type(self.actor), name)
        return getattr(attribute, "method", attribute)

    def _arguments(
        self, origin: Origin, frame: Frame, explicit: bool
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        try:
            args, kwargs = read_value(frame)
        except Exception as error:
            where = f"in {self._place}, where their modules must be importable"
            explain(error, f"the arguments could not be read {where}")
            raise
        if explicit:
            args = (self._response_port(origin, frame), *args)
        return args, kwargs

    def _raised(
        self, origin: Origin, frame: Frame, name: str, error: BaseException, explicit: bool
    ) -> None:
        """An endpoint raised: its caller's concern if there is one, else the owner's."""
        self.raised[name] = self.raised.get(name, (0,))[0] + 1, time.time_ns() // 1000
        if self.sampler is not None:
            self.sampler.raised(frame)
        if config.value("debug_on_error"):
            keep_raised(error)
        if frame.request and not explicit:
            self._answer_error(origin, frame, name, error)
        else:
            self._fail(error)

    def _verdict(self, failure: Failure, handled: object) -> None:
        self._carry_out(self.ownership.judged(failure, bool(handled)))

    def fail_unhandled(self, failure: Failure, error: BaseException | None = None) -> None:
        reason = f"{self.record} did not handle a failure of what it owns:\n{failure.explain()}"
        if error is not None:
            reason = (
                f"{format_remote(error)}\nThis error occurred while handling another"
                f" failure:\n{failure.explain()}"
            )
        self.end(self.own_failure(UNHANDLED, reason, failure))

    def undeliverable(self, address: ActorAddress, failure: Failure) -> None:
        """Tell the actor, if it has the hook, that its one-way message found no receiver."""
        hook = getattr(self.actor, "_handle_undeliverable_message", None)
        if hook is not None:
            told = str(self.record), str(address), failure.explain()
            self.call_soon(lambda: hook(UndeliverableMessageEnvelope(*told)))

    def heard(self, origin: Origin, frame: Frame) -> None:
        if not frame.flags & CANCEL:
            super().heard(origin, frame)
            return
        for item in self.queued():
            asker, call = item
            if call.request == frame.request and asker.peer == origin.peer and self._remove(item):
                with suppress(BackpressureError):
                    asker.send(answer_to(call, CANCELLED))

    def _remove(self, item: tuple[Origin, Frame]) -> bool:
        """Take a message out of the mailbox; False if it is not there any more."""
        raise NotImplementedError

    def call_soon(self, function: Callable[[], object]) -> None:
        """Run a hook on the actor's thread, between messages."""
        raise NotImplementedError

    def holds_up(self, task: object) -> bool:
        return task in self._active

    # for the detection of deadlocks, on the poller's thread

    @property
    def active(self) -> dict[object, tuple[Origin, Frame]]:
        """The calls in progress, by the activity that handles each."""
        return self._active.copy()

    def handling(self) -> dict[object, str]:
        """The names of their endpoints, by the same activities."""
        return {
            activity: decode_meta(frame.meta)[0] for activity, (_, frame) in self.active.items()
        }

    @property
    def serving(self) -> object:
        """The activity that takes queued messages."""
        return None

    def queued(self) -> list[tuple[Origin, Frame]]:
        """Return the messages that are received and not begun, without removing them."""
        raise NotImplementedError

    def limited(self) -> Collection[object] | None:
        """Return the tasks that a timer may cancel, even while they wait; None for all."""
        return ()


def actors_of(hub: MessageHub) -> list[ActorCell]:
    """The actors of this process that have not ended."""
    return [each for each in list(hub.actors.values()) if isinstance(each, ActorCell)]


class UndeliverableMessageEnvelope(NamedTuple):
    """A one-way message that could not be delivered."""

    sender_path: str
    destination: str
    error: str

    def sender(self) -> str:
        return self.sender_path

    def dest(self) -> str:
        return self.destination

    def error_msg(self) -> str:
        return self.error


def report_cleanup_error(record: CreatorInstance, error: BaseException) -> None:
    """A raising ``__cleanup__`` ends nothing more, but is not lost."""
    # stderr may be gone, with the host agent for one
    with suppress(OSError, ValueError, AttributeError):
        print(f"{record}: __cleanup__ raised\n{format_remote(error)}", file=sys.stderr, flush=True)


def _end_child() -> None:
    """End a forked child after its code has returned to the actor that forked it.

    That actor lives on in the parent, and only there.
    """
    report = (
        "a child that an actor has forked must end by os._exit(): there is no actor in it to return"
        " to, or to await in"
    )
    with suppress(OSError, ValueError, AttributeError):
        print(report, file=sys.stderr)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(1)


def thread_lives(number: int) -> bool:
    """Return whether a thread of this process has this `native_id`; True where that is unknown."""
    try:
        tasks = os.listdir("/proc/self/task")
    except OSError:
        return True
    return str(number) in tasks or str(threading.get_native_id()) not in tasks
