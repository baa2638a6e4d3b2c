"""What runs an actor: its mailbox, its end, what it owns. `sync_cell` and `async_cell` add the thread.

Life of a cell::

    constructing ──▶ serving ──▶ ending ──▶ ended
         └── raised ─────────────▲

Ending, in this order: queued calls are answered with the reason, and the owner hears of a failure, at once; the message
in progress ends; owned meshes are stopped, youngest first; ``__cleanup__`` runs; whoever asked for the stop is told. What bounds it:
`cleanup_timeout` after a stop was asked for, the cell counts as ended whatever its thread still does.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from ... import config
from ...errors import BackpressureError
from ..net.connection import Connection
from ..shape import Extent, Point
from ..supervision.failure import EXCEPTION, STOPPED, UNHANDLED, UNSTARTED, Failure, MeshFailure
from ..supervision.ownership import Abandon, Fail, Instruction, Judge, OwnedMesh, Ownership, Restart
from ..supervision.restart import Plan, RestartGroup, Strategy
from ..wire import pickling
from ..wire.address import ActorAddress, ProcAddress
from ..wire.frame import ERROR, REPLY, URGENT, VALUE, Frame
from .context import Context
from .deadlock import Noted
from .exception_pickle import dump_exception
from .future import Future
from .instance import CreatorInstance, Instance
from .message import SETTLE, SUPERVISE
from .node import Node, Origin
from .ports import response_port
from .remote_error import dump_error, explain, format_remote
from .restarter import Restarter

_SETTLE = SETTLE.decode()
logger = logging.getLogger("monarch.runtime")


class Owned(OwnedMesh):
    """An owned mesh, with what its owner can do to it."""

    handle: weakref.ref[Any] | None = None
    """The mesh that the program holds."""

    def stop(self, reason: str) -> Future[Any]:
        raise NotImplementedError

    # where a group starts ranks again

    def stop_ranks(self, ranks: Sequence[int], reason: str) -> Future[None]:
        """Stop some ranks, which will start again; done when they have ended."""
        raise NotImplementedError

    def start_ranks(self, ranks: Sequence[int]) -> Sequence[Future[Any]]:
        """Start the next incarnation of ranks that have ended; they are there when all the futures are done."""
        raise NotImplementedError

    def abandon(self, ranks: Sequence[int]) -> None:
        """Ranks that have failed will not start again: tell whoever waits for that."""
        raise NotImplementedError


class SpawnSpec(NamedTuple):
    """One actor mesh to be spawned; the same for every rank."""

    uid: int
    name: str
    class_name: str
    owner: ActorAddress
    creator: CreatorInstance
    proc_mesh: Any
    extent: Extent
    restarts: bool = False  # whether a rank that fails may be started again
    incarnation: int = 0  # how often this rank has been
    rank: int | None = None  # which rank, where the message that carries this does not say it


class BaseCell:
    """What the client's root actor and every spawned actor have in common.

    Args:
        node: The hub of this process.
        uid: The actor's id.
        record: Who it is.
    """

    def __init__(self, node: Node, uid: int, record: CreatorInstance) -> None:
        self.node = node
        self.uid = uid
        self.ownership: Ownership[Owned] = Ownership()
        self._owning = threading.Lock()
        self.ports: weakref.WeakSet[Any] = weakref.WeakSet()
        self.instance = Instance(self, record)
        self.record = record

    @property
    def address(self) -> ActorAddress:
        return ActorAddress(self.node.address, self.uid)

    @property
    def incarnation(self) -> int:
        """How often this actor has been started again after a failure."""
        return 0

    def receive(self, origin: Origin, frame: Frame) -> None:
        raise NotImplementedError

    def heard(self, origin: Origin, frame: Frame) -> None:
        """An actor that this one owns tells of its failure, or that it has stopped itself."""
        failure = pickling.loads(frame.payload)
        if isinstance(failure.mesh_uid, int):
            self.node.remember(origin.peer, failure.mesh_uid, failure)
        self.rank_failed(failure)

    # supervision: events go to `ownership`, its instructions are carried out here; on any thread

    def own(self, mesh: Owned) -> None:
        """A mesh was created by this actor.

        Raises:
            RuntimeError: The actor is ending.
        """
        with self._owning:
            self.ownership.created(mesh)

    def disown(self, uid: int | str) -> None:
        """A mesh is being stopped on purpose."""
        with self._owning:
            self.ownership.stopped(uid)

    def rank_failed(self, failure: Failure) -> None:
        """Something that this actor owns has failed."""
        with self._owning:
            instructions = self.ownership.rank_failed(failure, time.monotonic())
        self._carry_out(instructions)

    def proc_failed(self, address: ProcAddress, failure: Failure) -> None:
        """A process is gone, on which this actor may own something."""
        if failure.is_stop or failure.cause == UNSTARTED:  # stops are meant, and `initialized` tells what did not start
            return
        with self._owning:
            instructions = self.ownership.process_ended(address, failure, time.monotonic())
        self._carry_out(instructions)

    def note_spawned(self, procs: Sequence[ProcAddress]) -> None:
        """A mesh was spawned: its owner hears of ranks on processes that were gone before, as of those that go later."""
        for address in procs:
            failure = self.node.process_fate(address)
            if failure is not None:
                self.proc_failed(address, failure)

    def restart_group(self, strategy: Strategy) -> RestartGroup:
        """The group of a strategy in what this actor owns."""
        with self._owning:
            return self.ownership.group(strategy)

    def startable(self, mesh: Owned, ranks: Sequence[int]) -> list[int]:
        """Of the ranks that a restarter is about to start, those that can be."""
        with self._owning:
            return self.ownership.startable(mesh.uid, ranks)

    def restarted(self, group: RestartGroup, plan: Plan, error: str = "") -> None:
        """A restarter has carried out its plan, or could not."""
        with self._owning:
            instructions = self.ownership.restarted(group, plan, time.monotonic(), error)
        self._carry_out(instructions)

    def _carry_out(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            if isinstance(instruction, Judge):
                self.judge(instruction.failure, instruction.mesh)
            elif isinstance(instruction, Restart):
                Restarter(self, instruction.group).begin(instruction.plan)
            elif isinstance(instruction, Abandon):
                for uid, ranks in instruction.ranks.items():
                    mesh = self.ownership.get(uid)
                    if mesh is not None:  # not stopped meanwhile
                        mesh.abandon(ranks)
            elif isinstance(instruction, Fail):
                self.fail_unhandled(instruction.failure)

    def judge(self, failure: Failure, mesh: OwnedMesh) -> None:
        """Have ``__supervise__`` called."""
        raise NotImplementedError

    @staticmethod
    def public(failure: Failure, mesh: OwnedMesh) -> MeshFailure:
        """A failure as programs see it."""
        handle = mesh.handle if isinstance(mesh, Owned) else None
        return MeshFailure(failure, handle() if handle is not None else None)

    def fail_unhandled(self, failure: Failure, error: BaseException | None = None) -> None:
        """End, because a failure was not handled, or because handling it raised `error`."""
        raise NotImplementedError

    def note_unsettled(self, uid: int, procs: Sequence[ProcAddress]) -> None:
        """These actors were sent something that nobody waits for."""

    def note_stopped(self, uid: int) -> None:
        """A mesh that this actor owns is being stopped."""

    def end(self, failure: Failure) -> None:
        """Let the actor end, with a failure or because it was stopped; on any thread."""
        raise NotImplementedError

    def stop_itself(self, reason: str) -> None:
        """Let the actor end at its own request; on any thread."""
        self.end(self.own_failure(STOPPED, reason))

    def own_failure(self, cause: str, reason: str, source: Failure | None = None, error: bytes = b"") -> Failure:
        """A failure of this actor, with everything known about where it is."""
        record = self.record
        proc = f"{record.proc_mesh.name}{record.rank!r}" if record.proc_mesh is not None else ""
        return Failure(
            cause, reason, str(record), record.name, self.uid, record.rank.rank, proc, os.getpid(), socket.gethostname(),
            source=source, error=error,
        )  # fmt: skip


class Cell(BaseCell):
    """One spawned actor, without its thread.

    Args:
        spec: What was spawned.
        rank: Which rank of it this is.
        init: Pickle and buffers of the class and its constructor's arguments.
        on_failed: Told of a failure in place of the owner, for actors that nobody owns.
    """

    def __init__(
        self,
        node: Node,
        spec: SpawnSpec,
        rank: int,
        init: tuple[Any, list[Any]],
        on_failed: Callable[[Failure], None] | None = None,
    ) -> None:
        record = CreatorInstance(spec.name, spec.class_name, Point(rank, spec.extent), spec.proc_mesh, spec.creator)
        super().__init__(node, spec.uid, record)
        self._spec = spec
        self._init: tuple[Any, list[Any]] | None = init
        self._on_failed = on_failed
        self._context = Context(self, rank, spec.extent)
        self._lock = threading.Lock()
        self._ending: Failure | None = None
        self._ended = False
        self._when_ended: list[Callable[[], None]] = []
        self._active: dict[object, tuple[Origin, Frame]] = {}  # by activity: the thread (None), or a task
        self.waits: dict[object, Noted] = {}  # by activity as well
        self._paused: list[Connection] = []
        self.on_finished: Callable[[], None] | None = None
        self._mailbox_limit = config.value("mailbox_limit")
        self.actor: Any = None

    @property
    def incarnation(self) -> int:
        return self._spec.incarnation

    def own_failure(self, cause: str, reason: str, source: Failure | None = None, error: bytes = b"") -> Failure:
        failure = super().own_failure(cause, reason, source, error)
        return failure._replace(restarts=self._spec.restarts, incarnation=self._spec.incarnation)

    # its end

    def end(self, failure: Failure) -> None:
        with self._lock:
            if self._ending is not None:
                return
            self._ending = failure
        try:
            self._close_inbox(failure)
        finally:
            self._wake()
        self.node.poller.call_later(config.value("cleanup_timeout"), self._finished)

    def stop(self, failure: Failure, done: Callable[[], None]) -> None:
        """Stop on request; `done` is called when it has ended, within `cleanup_timeout`."""
        with self._lock:
            if not self._ended:
                self._when_ended.append(done)
                done = _nothing
        done()
        self.end(failure)

    def stop_itself(self, reason: str) -> None:
        failure = self.own_failure(STOPPED, reason)._replace(restarts=False)
        if self._on_failed is None:
            self._tell_owner(failure)  # first: who is refused from now on must not know more than the owner
        self.end(failure)

    def _fail(self, error: BaseException) -> None:
        self.end(self.own_failure(EXCEPTION, format_remote(error), error=dump_exception(error)))

    def _wake(self) -> None:
        raise NotImplementedError

    def _close_inbox(self, failure: Failure) -> None:
        """First step of the end, at once, whatever the actor's thread does: nobody queues here any more."""
        self.node.unregister(self.uid, failure)
        self._refuse_queued(failure)
        self._resume_senders()
        if not failure.is_stop:
            self._tell_owner(failure)

    def _refuse_queued(self, failure: Failure) -> None:
        for origin, frame in self._drain():
            self.node.refuse(origin, frame, failure)

    def _stop_owned(self, failure: Failure) -> Iterator[Future[Any]]:
        """Stop what it owns, one after the other, youngest first; from now on it cannot own anything more."""
        reason = failure.reason if failure.is_stop else f"its owner {self.record} failed"
        with self._owning:
            owned = self.ownership.ended()
        for mesh in owned:
            yield mesh.stop(reason)

    def _refuse_active(self) -> Failure:
        """Second step: answer the calls in progress that will not be."""
        failure = self._ending
        if failure is None:  # its thread ended in a way that nobody planned
            failure = self.own_failure(EXCEPTION, "its thread ended unexpectedly")
            self.end(failure)
        active, self._active = self._active, {}
        for origin, frame in active.values():
            self.node.refuse(origin, frame, failure)
        self.node.refuse_open_responses(self.uid, failure)
        return failure

    def _drain(self) -> list[tuple[Origin, Frame]]:
        raise NotImplementedError

    def _tell_owner(self, failure: Failure) -> None:
        if self._on_failed is not None:
            self._on_failed(failure)
            return
        owner = self._spec.owner
        content = pickling.dumps(failure)
        self.node.cast([owner.proc], owner.uid, SUPERVISE, content, None, self.uid, URGENT)

    def _finished(self) -> None:
        """Last step of the end, or the bound on it."""
        with self._lock:
            if self._ended:
                return
            self._ended = True
            waiting, self._when_ended = self._when_ended, []
        failure = self._refuse_active()  # its thread may not have got there in time
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
        threading.Thread(target=self._run, name=f"monarch-actor-{self.record.name}", daemon=True).start()

    def _run(self) -> None:
        """What the thread does, for as long as the actor lives."""
        raise NotImplementedError

    def try_to_start(self) -> None:
        """Start its thread, unless it was stopped before; it fails where the system has no thread to give."""
        if self._ending is not None:
            self._finished()
            return
        try:
            self.start()
        except RuntimeError as error:
            self._fail(error)
            self._finished()

    def discard(self, answer: Callable[[Origin, Frame], None]) -> None:
        """It will never run, as what had to happen first has failed: nobody's failure but that one's."""
        with self._lock:
            self._ending = self._ending or Failure(STOPPED, "it was never started", str(self.record))
        for origin, frame in self._drain():
            answer(origin, frame)
        self._finished()

    # handling messages

    def _construct(self) -> bool:
        """Unpickle the class and its arguments, and call it; False if that failed."""
        assert self._init is not None
        try:
            try:
                cls, args, kwargs = pickling.loads(*self._init)
            except Exception as error:
                explain(error, f"the class could not be read in {self._place}, where its module must be importable")
                raise
            self._init = None
            self.actor = cls(*args, **kwargs)
        except BaseException as error:
            self._fail(error)
            return False
        return True

    @property
    def _place(self) -> str:
        mesh = self.record.proc_mesh
        return f"proc {mesh.name}{self.record.rank!r}" if mesh is not None else "the client"

    def _method(self, name: str) -> Any:
        if name == _SETTLE:
            return _nothing
        attribute = getattr(type(self.actor), name)
        return getattr(attribute, "method", attribute)

    def _arguments(self, origin: Origin, frame: Frame, explicit: bool) -> tuple[tuple[Any, ...], dict[str, Any]]:
        try:
            args, kwargs = pickling.loads(frame.payload, frame.buffers)
        except Exception as error:
            explain(error, f"the arguments could not be read in {self._place}, where their modules must be importable")
            raise
        if explicit:
            head = frame._replace(payload=b"", buffers=())
            self.node.open_responses[origin.peer, frame.request, frame.rank] = (self.uid, origin, head)
            args = (response_port(origin.peer, self.uid, frame), *args)
        return args, kwargs

    def _answer(self, origin: Origin, frame: Frame, name: str, result: Any) -> None:
        try:
            payload, buffers = pickling.dumps_value(result)
            self.node.check_size(payload, buffers)
        except Exception as error:
            explain(error, f"the result of {self.record.name}.{name}() cannot be sent")
            self._answer_error(origin, frame, name, error)
            return
        reply = Frame(REPLY, VALUE, frame.rank, self.uid, frame.sender, frame.request, b"", payload, buffers)
        with suppress(BackpressureError):  # the caller does not read; the reply is queued for when it does
            origin.send(reply)

    def _answer_error(self, origin: Origin, frame: Frame, name: str, error: BaseException) -> None:
        message = f"Actor call {self.record.name}.{name} failed."
        payload = dump_error(error, message)
        with suppress(BackpressureError):
            origin.send(Frame(REPLY, ERROR, frame.rank, self.uid, frame.sender, frame.request, b"", payload))

    def _raised(self, origin: Origin, frame: Frame, name: str, error: BaseException, explicit: bool) -> None:
        """An endpoint raised: its caller's concern if there is one, else the owner's."""
        if frame.request and not explicit:
            self._answer_error(origin, frame, name, error)
        else:
            self._fail(error)

    def _verdict(self, failure: Failure, handled: object) -> None:
        self._carry_out(self.ownership.judged(failure, bool(handled)))

    def fail_unhandled(self, failure: Failure, error: BaseException | None = None) -> None:
        reason = f"{self.record} did not handle a failure of what it owns:\n{failure.explain()}"
        if error is not None:
            reason = f"{format_remote(error)}\nThis error occurred while handling another failure:\n{failure.explain()}"
        self.end(self.own_failure(UNHANDLED, reason, failure))

    def undeliverable(self, address: ActorAddress, failure: Failure) -> None:
        """A one-way message of this actor found nobody. Only actors that ask for it are told."""
        hook = getattr(self.actor, "_handle_undeliverable_message", None)
        if hook is not None:
            self.call_soon(
                lambda: hook(UndeliverableMessageEnvelope(str(self.record), str(address), failure.explain()))
            )

    def call_soon(self, function: Callable[[], object]) -> None:
        """Run a hook on the actor's thread, between messages."""
        raise NotImplementedError

    # for the detection of deadlocks, on the poller's thread

    @property
    def active(self) -> dict[object, tuple[Origin, Frame]]:
        """The calls in progress, by the activity that handles each."""
        return self._active.copy()

    @property
    def serving(self) -> object:
        """The activity that takes what is queued."""
        return None

    def queued(self) -> list[tuple[Origin, Frame]]:
        """What was received and not begun; nothing is taken out."""
        raise NotImplementedError

    def limited(self) -> Collection[object] | None:
        """The tasks that a timer may cancel, whatever they wait for; None if it may be any of them."""
        return ()

    # back-pressure

    def _check_mailbox(self, origin: Origin, length: int) -> None:
        if length > self._mailbox_limit and isinstance(origin, Connection) and origin not in self._paused:
            self._paused.append(origin)
            origin.pause()

    def _resume_senders(self) -> None:
        while self._paused:
            self._paused.pop().resume()


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
    with suppress(OSError, ValueError, AttributeError):  # stderr may be gone, with the host agent for one
        print(f"{record}: __cleanup__ raised\n{format_remote(error)}", file=sys.stderr, flush=True)


def drain_queue(queue: SimpleQueue[Any]) -> list[Any]:
    """Everything queued right now."""
    items = []
    while True:
        try:
            items.append(queue.get_nowait())
        except Empty:
            return items


def _nothing(*args: object) -> None:
    pass
